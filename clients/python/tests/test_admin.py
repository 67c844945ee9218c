"""The admin API against a real server."""

from __future__ import annotations

import unittest
from datetime import datetime, timedelta, timezone
from typing import Any, Callable, List

import millrace
from millrace import (
    AdminAction,
    AdminCountQuery,
    AdminDeadLetterFilter,
    AdminJobFilter,
    AdminQueueChange,
    AdminQueueFilter,
    AdminScheduleSpec,
    AdminSubmission,
    Contract,
    TaskFlowSpec,
)

from .base import BOUND, ServerTest, until


class AdminTest(ServerTest):
    def setUp(self) -> None:
        self.admin = self.client.admin().with_actor("tests")
        self.flow = self.client.task_flow()
        self.api = self.client.worker_api()
        self.queue = self.name()

    def number(self, id: str) -> int:
        """Return the number of a job of TaskFlow."""
        (job,) = self.admin.jobs(AdminJobFilter(contract="taskflow", id=id))
        return job.number

    def fail_one(self) -> str:
        """Claim a job, have it fail, and return its id."""
        (run,) = self.api.claim(Contract.TASK_FLOW, [self.queue], wait=10)
        self.api.fail(run.run_id, millrace.JobFailure("no disk", "io"))
        return run.id

    def test_jobs(self) -> None:
        ids = [self.flow.submit(TaskFlowSpec(f"{i}", self.queue, {"n": i})).id for i in range(3)]
        filter = AdminJobFilter(
            contract="taskflow",
            queue=self.queue,
            states=["READY", "RUNNING"],
            phases=["ready"],
            created_from=datetime.now(timezone.utc) - timedelta(hours=1),
            created_before=datetime.now(timezone.utc) + timedelta(hours=1),
            max_age="90m",
        )
        found = list(self.admin.jobs(filter, page_size=2))
        self.assertEqual([job.id for job in found], ids[::-1])
        found = list(self.admin.jobs(filter, oldest=True))
        self.assertEqual([job.id for job in found], ids)
        some = AdminJobFilter(numbers=[found[0].number, found[2].number])
        self.assertEqual({job.id for job in self.admin.jobs(some)}, {ids[0], ids[2]})

        some = AdminJobFilter(queue=self.queue, body_contains='"N":1')
        self.assertEqual([job.id for job in self.admin.jobs(some)], [ids[1]])

        job = self.admin.job(found[1].number)
        self.assertEqual((job.contract, job.queue, job.id), ("taskflow", self.queue, ids[1]))
        self.assertEqual((job.state, job.phase, job.payload), ("READY", "ready", {"n": 1}))
        self.assertIn(AdminAction.DELETE, job.actions)
        self.assertTrue(job.links.why)
        body = self.admin.job_body(job.number, millrace.AdminBody.PAYLOAD)
        self.assertEqual(body, b'{"n":1}')
        with self.assertRaises(millrace.NotFoundError):
            self.admin.job_body(job.number, millrace.AdminBody.RESULT)
        with self.assertRaises(millrace.NotFoundError):
            self.admin.job(10**12)

    def test_why(self) -> None:
        first = self.flow.submit(TaskFlowSpec("first", self.queue))
        second = self.flow.submit(TaskFlowSpec("second", self.queue, dependencies=[first.id]))
        why = self.admin.why(self.number(second.id))
        codes = [reason.code for reason in why.reasons]
        self.assertIn(millrace.AdminReasonCode.WAITS_FOR_DEPENDENCIES, codes)
        self.assertEqual((why.summary, why.next), (why.reasons[0].text, None))
        self.assertTrue(why.reasons[0].facts)
        self.api.claim(Contract.TASK_FLOW, [self.queue])
        why = self.admin.why(self.number(first.id))
        self.assertEqual(why.reasons[0].code, millrace.AdminReasonCode.RUNNING)

    def test_timeline(self) -> None:
        id = self.flow.submit(TaskFlowSpec("a", self.queue)).id
        self.fail_one()
        timeline = self.admin.timeline(self.number(id))
        kinds = [entry.kind for entry in timeline.entries]
        self.assertEqual(kinds[0], "submitted")
        (attempt,) = [entry for entry in timeline.entries if entry.kind == "attempt"]
        self.assertIsNotNone(attempt.from_time)
        self.assertIn("no disk", attempt.error or "")
        self.assertFalse(timeline.truncated)

    def test_actions(self) -> None:
        id = self.flow.submit(TaskFlowSpec("a", self.queue)).id
        number = self.number(id)
        with self.assertRaises(millrace.ConflictError) as caught:
            self.admin.act_on_job(number, AdminAction.RETRY)
        self.assertEqual(caught.exception.code, "NOT_ALLOWED")
        self.fail_one()
        copy = self.admin.act_on_job(number, AdminAction.RERUN)
        self.assertEqual(copy.source_number, number)
        gone = self.admin.act_on_job(copy.number, AdminAction.DELETE)
        self.assertEqual(gone.state, "gone")
        with self.assertRaises(millrace.Error):
            self.admin.act_on_job(number, "dance")

    def test_retry(self) -> None:
        forge = self.client.forge_run()
        forge = forge.with_api_key(forge.create_first_api_key(forge.create_client()).api_key)
        id = forge.submit(millrace.ForgeRunSpec("EXECUTE", "FAIL_IMMEDIATE")).job_id
        forge.wait(id, timeout=BOUND)
        (job,) = self.admin.jobs(AdminJobFilter(contract="forgerun", id=id))
        again = self.admin.act_on_job(job.number, AdminAction.RETRY)
        self.assertEqual(again.number, job.number)
        self.assertNotEqual(again.state, "FAILED")

    def test_submit(self) -> None:
        request = {"name": "a", "queue": self.queue, "payload": {"n": 1}}
        submission = AdminSubmission("taskflow", request, idempotency_key=self.name())
        made = self.admin.submit_job(submission)
        self.assertEqual((made.contract, made.state), ("taskflow", "READY"))
        self.assertEqual(self.admin.submit_job(submission).number, made.number)
        with self.assertRaises(millrace.InvalidError):
            self.admin.submit_job(AdminSubmission("taskflow", {"queue": self.queue}))

    def test_queues_and_counts(self) -> None:
        self.flow.submit(TaskFlowSpec("a", self.queue))
        mine = AdminQueueFilter(
            contract="taskflow", name_contains=self.queue, order="name", page_size=1
        )

        def find() -> List[millrace.AdminQueue]:
            return [queue for queue in self.admin.queues(mine) if queue.queue == self.queue]

        (queue,) = until("the queue", find)
        self.assertEqual((queue.ready, queue.paused), (1, False))
        change = AdminQueueChange(paused=True, max_running=3, rate_limit=5, rate_period="1m")
        queue = self.admin.set_queue("taskflow", self.queue, change)
        self.assertEqual((queue.paused, queue.max_running, queue.rate_limit), (True, 3, 5))
        (job,) = self.admin.jobs(AdminJobFilter(contract="taskflow", queue=self.queue))
        until(
            "it is in force",
            lambda: self.admin.why(job.number).reasons[0].code == "queue_paused",
        )
        queue = self.admin.reset_queue("taskflow", self.queue)
        self.assertEqual((queue.paused, queue.max_running), (False, 0))
        by_queue = AdminCountQuery("queue", contract="taskflow", queue=self.queue)
        self.assertEqual([count.count for count in self.admin.counts(by_queue)], [1])

    def test_dead_letters(self) -> None:
        id = self.flow.submit(TaskFlowSpec("a", self.queue)).id
        self.fail_one()
        mine = AdminDeadLetterFilter(
            contract="taskflow",
            queue=self.queue,
            error_contains="DISK",
            failed_from=datetime.now(timezone.utc) - timedelta(hours=1),
            failed_before=datetime.now(timezone.utc) + timedelta(hours=1),
        )
        failed = AdminJobFilter(queue=self.queue, error_contains="DISK")
        failed.finished_from = datetime.now(timezone.utc) - timedelta(hours=1)
        (job,) = until("the failed job", lambda: list(self.admin.jobs(failed)))
        self.assertEqual((job.id, job.finished_at is None), (id, False))
        failed.finished_before = failed.finished_from
        self.assertEqual(list(self.admin.jobs(failed)), [])
        (dead_letter,) = until("the dead letter", lambda: list(self.admin.dead_letters(mine)))
        self.assertEqual((dead_letter.job_id, dead_letter.error), (id, "no disk"))
        self.assertEqual(self.admin.dead_letter(dead_letter.id), dead_letter)
        groups = list(self.admin.dead_letter_groups("taskflow", page_size=1))
        self.assertIn(dead_letter.fingerprint, [group.fingerprint for group in groups])
        again = self.admin.replay_dead_letter(dead_letter.id)
        self.assertEqual(again.state, "READY")
        with self.assertRaises(millrace.ConflictError):
            self.admin.replay_dead_letter(dead_letter.id)
        self.fail_one()
        self.admin.replay_dead_letter(dead_letter.id, again=True)
        self.admin.discard_dead_letter(dead_letter.id)
        with self.assertRaises(millrace.NotFoundError):
            self.admin.dead_letter(dead_letter.id)

    def test_nodes_and_workers(self) -> None:
        (node,) = self.admin.nodes()
        self.assertFalse(node.draining)
        self.assertIn("relay", node.contracts)
        self.assertEqual(node.store.state, "ok")
        names = [contract.contract for contract in self.admin.contracts()]
        self.assertIn("taskflow", names)
        health = self.admin.health()
        self.assertTrue(health.ok and health.components)
        with self.assertRaises(millrace.NotFoundError):
            self.admin.drain_worker("nobody")
        with self.assertRaises(millrace.NotFoundError):
            self.admin.resume_worker("nobody")

    def test_schedules(self) -> None:
        name = self.name()
        request = {"name": "tick", "queue": self.queue}
        spec = AdminScheduleSpec(
            cron="0 3 * * *",
            time_zone="Europe/Berlin",
            contract="taskflow",
            request=request,
            starts_at=datetime.now(timezone.utc) - timedelta(days=1),
        )
        made = self.admin.create_schedule(name, spec)
        self.assertEqual((made.cron, made.request), ("0 3 * * *", request))
        with self.assertRaises(millrace.ConflictError):
            self.admin.create_schedule(name, spec)
        self.assertEqual(len(self.admin.schedule(name, next=3).next_times), 3)
        self.assertTrue(self.admin.pause_schedule(name).paused)
        self.assertFalse(self.admin.resume_schedule(name).paused)
        self.assertEqual(self.admin.run_schedule(name).queue, self.queue)
        changed = self.admin.set_schedule(name, AdminScheduleSpec(every="1s", overlap="skip"))
        self.assertEqual((changed.cron, changed.every), ("", "1s"))
        ticks = until("a tick", lambda: list(self.admin.schedule_ticks(name)))
        self.assertIn(ticks[-1].outcome, ("submitted", "skipped"))
        self.assertIn(name, [schedule.name for schedule in self.admin.schedules(page_size=1)])
        self.admin.delete_schedule(name)
        with self.assertRaises(millrace.NotFoundError):
            self.admin.delete_schedule(name)

    def test_a_wrong_token_is_refused(self) -> None:
        nobody = millrace.Client(self.server.url, token="wrong").admin()
        with self.assertRaises(millrace.UnauthorizedError):
            nobody.health()

    def test_bad_input_changes_nothing(self) -> None:
        calls: List[Callable[[], Any]] = [
            lambda: self.admin.with_actor("two\nlines"),
            lambda: list(self.admin.jobs(AdminJobFilter(contract="none"))),
            lambda: list(self.admin.jobs(AdminJobFilter(max_age="soon"))),
            lambda: list(self.admin.counts(AdminCountQuery("colour"))),
            lambda: self.admin.set_queue("taskflow", self.queue, AdminQueueChange(rate_limit=-1)),
            lambda: self.admin.set_queue("", self.queue, AdminQueueChange(paused=True)),
            lambda: self.admin.create_schedule(self.name(), AdminScheduleSpec(every="1s")),
            lambda: self.admin.create_schedule("no name!", AdminScheduleSpec(every="1s")),
            lambda: self.admin.submit_job(AdminSubmission("taskflow", object())),
            lambda: self.admin.drain_worker(""),
        ]
        for i, call in enumerate(calls):
            with self.subTest(i), self.assertRaises(millrace.InvalidError):
                call()
        filter = AdminQueueFilter(name_contains=self.queue)
        self.assertEqual([q for q in self.admin.queues(filter) if q.queue == self.queue], [])


if __name__ == "__main__":
    unittest.main()
