"""TaskFlow, and the worker API with its workers, against a real server."""

from __future__ import annotations

import threading
import unittest
from collections import Counter
from datetime import datetime, timedelta, timezone
from typing import Any, Callable, Dict, List, Optional

import millrace
from millrace import (
    ClaimedJob,
    Contract,
    JobError,
    JobFailure,
    JobRun,
    JobWorker,
    RunOutcome,
    TaskFlowGraphBuilder,
    TaskFlowFilter,
    TaskFlowPatch,
    TaskFlowRetryPolicy,
    TaskFlowSpec,
)

from .base import BOUND, TOKEN, ServerTest, until
from .fake import FakeServer, Reply
from .server import CALLBACK_SECRET, SETTINGS, Server

FINAL = JobFailure("no", "net")


class FlowCase(ServerTest):
    """What the tests share."""

    def setUp(self) -> None:
        self.flow = self.client.task_flow()
        self.api = self.client.worker_api()
        self.queue = self.name()

    def spec(self, name: str = "job", **members: Any) -> TaskFlowSpec:
        return TaskFlowSpec(name, self.queue, **members)

    def claim(self) -> ClaimedJob:
        (job,) = self.api.claim(Contract.TASK_FLOW, [self.queue], wait=10)
        return job


class TaskFlowTest(FlowCase):
    def test_create(self) -> None:
        retry = TaskFlowRetryPolicy(2, millrace.TaskFlowBackoffStrategy.LINEAR, 1.5, 7)
        job = self.flow.submit(self.spec(payload={"n": 1}, priority=7, retry=retry))
        self.assertEqual((job.status, job.payload, job.priority), ("READY", {"n": 1}, 7))
        linear = millrace.TaskFlowBackoffStrategy.LINEAR
        self.assertEqual(job.retry, TaskFlowRetryPolicy(2, linear, 2, 7))
        plain = self.flow.submit(self.spec())
        self.assertEqual((plain.payload, plain.priority), ({}, 5))
        self.assertEqual(self.flow.submit(self.spec(payload=None)).payload, None)
        again = self.flow.submit(job)  # a job is a spec
        self.assertNotEqual(again.id, job.id)
        self.assertEqual(self.flow.get(again.id).retry, job.retry)

    def test_callback(self) -> None:
        both: List[List[str]] = [[], ["taskflow.job.*"]]
        for events in both:
            callback = millrace.TaskFlowCallback("http://127.0.0.1:1/told", events)
            made = self.flow.submit(self.spec(callback=callback))
            kept = self.flow.get(made.id).callback
            assert kept is not None
            self.assertEqual(kept.url, callback.url)
            if events:
                self.assertEqual(kept.events, events)
            self.assertEqual(self.flow.get(self.flow.submit(made).id).callback, kept)
        self.assertIsNone(self.flow.submit(self.spec()).callback)
        wrong: Any = {"url": "http://127.0.0.1:1/told"}
        with self.assertRaisesRegex(TypeError, "callback is a dict, not a TaskFlowCallback"):
            self.flow.submit(self.spec(callback=wrong))

    def test_a_callback_is_verified(self) -> None:
        fake = FakeServer(Reply(200))
        self.addCleanup(fake.close)
        made = self.flow.submit(self.spec(callback=millrace.TaskFlowCallback(fake.url)))
        self.api.complete(self.claim().run_id, {"sent": 2})
        until("the callback has come", lambda: fake.requests)
        (request,) = fake.requests
        event = millrace.verify_webhook(CALLBACK_SECRET, request.headers, request.body)
        self.assertEqual((event.type, event.data["id"]), ("taskflow.job.completed", made.id))
        self.assertEqual(event.data["result"], {"sent": 2})
        self.assertTrue(event.event_id)
        self.assertGreaterEqual(event.occurred_at, made.created_at)

    def test_submit_once(self) -> None:
        key = self.name()
        first = self.flow.submit_once(key, self.spec())
        self.assertEqual(self.flow.submit_once(key, self.spec()).id, first.id)
        with self.assertRaises(millrace.ConflictError) as caught:
            self.flow.submit_once(key, self.spec("other"))
        self.assertEqual(caught.exception.code, "IDEMPOTENCY_CONFLICT")
        self.assertTrue(caught.exception.instance)

    def test_update_and_delete(self) -> None:
        first = self.flow.submit(self.spec("first"))
        second = self.flow.submit(self.spec("second", dependencies=[first.id]))
        self.assertEqual(second.status, "PENDING")
        with self.assertRaises(millrace.ConflictError):
            self.flow.delete(first.id)
        patch = TaskFlowPatch(
            name="new", priority=9, payload=[1], retry=TaskFlowRetryPolicy(1), dependencies=[]
        )
        changed = self.flow.update(second.id, patch)
        self.assertEqual((changed.name, changed.priority, changed.payload), ("new", 9, [1]))
        self.assertEqual((changed.status, changed.dependencies), ("READY", []))
        self.assertEqual(changed.retry.max_attempts if changed.retry else 0, 1)
        moved = self.flow.update(second.id, TaskFlowPatch(queue=self.queue + "b"))
        self.assertEqual((moved.queue, moved.name), (self.queue + "b", "new"))
        self.flow.delete(first.id)
        with self.assertRaises(millrace.NotFoundError):
            self.flow.get(first.id)
        third = self.flow.submit(self.spec("third", dependencies=[second.id]))
        self.flow.delete_with_dependents(second.id)
        with self.assertRaises(millrace.NotFoundError):
            self.flow.get(third.id)

    def test_cycles(self) -> None:
        first = self.flow.submit(self.spec("first"))
        second = self.flow.submit(self.spec("second", dependencies=[first.id]))
        third = self.flow.submit(self.spec("third", dependencies=[second.id]))
        waits = self.flow.update(second.id, TaskFlowPatch(dependencies=[first.id]))
        self.assertEqual(waits.status, "PENDING")
        with self.assertRaises(millrace.CycleError) as caught:
            self.flow.update(second.id, TaskFlowPatch(dependencies=[third.id]))
        self.assertEqual(set(caught.exception.cycle), {second.id, third.id})
        self.assertIsInstance(caught.exception, millrace.ConflictError)

    def test_graph(self) -> None:
        before = self.flow.submit(self.spec("before"))
        graph = TaskFlowGraphBuilder()
        extract = graph.add("extract", self.spec("extract", dependencies=[before.id]))
        left = graph.add("left", self.spec("left"), extract)
        right = graph.add("right", self.spec("right"), extract)
        graph.add("load", self.spec("load"), left, right)
        self.assertEqual(graph.refs(), ["extract", "left", "right", "load"])
        ids = self.flow.submit_graph(graph)
        found = self.flow.graph(ids["load"])
        self.assertEqual({n.id for n in found.jobs}, {*ids.values(), before.id})
        pairs = {(e.from_id, e.to_id) for e in found.edges}
        self.assertIn((ids["extract"], ids["left"]), pairs)
        self.assertEqual((len(pairs), found.final, found.truncated), (5, False, False))
        key = self.name()
        first = self.flow.submit_graph_once(key, graph)
        self.assertEqual(first, self.flow.submit_graph_once(key, graph))

        order: List[str] = []
        worker = self.background(
            JobWorker(self.api, Contract.TASK_FLOW, {self.queue: lambda r: order.append(r.job.id)})
        )
        done = self.flow.wait_graph(ids["load"], timeout=BOUND)
        worker.stop()
        self.assertTrue(all(node.status == "COMPLETED" for node in done.jobs))
        self.assertLess(order.index(ids["extract"]), order.index(ids["right"]))
        self.assertLess(order.index(ids["right"]), order.index(ids["load"]))

    def test_graphs_that_are_wrong(self) -> None:
        def built(*parts: List[str]) -> TaskFlowGraphBuilder:
            graph = TaskFlowGraphBuilder()
            for ref, *after in parts:
                graph.add(ref, self.spec(), *after)
            return graph

        for graph, text in (
            (built(), "empty"),
            (built(["a"], ["a"]), "twice"),
            (built(["a", "b"]), "not in the graph"),
            (built([""]), "ref is empty"),
        ):
            with self.assertRaisesRegex(millrace.InvalidError, text):
                self.flow.submit_graph(graph)
        graph = built(["x", "a"], ["a", "b"], ["b", "c"], ["c", "a"], ["d", "x"])
        with self.assertRaises(millrace.CycleError) as caught:
            self.flow.submit_graph(graph)
        self.assertEqual(caught.exception.cycle, ["a", "b", "c"])
        chain = built(["0"], *([f"{i}", f"{i - 1}"] for i in range(1, 3000)))
        self.assertEqual(chain._cycle(), [])
        with self.assertRaises(millrace.InvalidError):
            bad = TaskFlowGraphBuilder()
            bad.add("a", TaskFlowSpec("a", "no queue!"))
            self.flow.submit_graph(bad)

    def test_search(self) -> None:
        before = datetime.now(timezone.utc) - timedelta(minutes=1)
        made = [self.flow.submit(self.spec(f"{i}", priority=i)).id for i in range(1, 6)]
        found = [job.id for job in self.flow.search(TaskFlowFilter(queue=self.queue, page_size=2))]
        self.assertEqual(found, made[::-1])
        page = self.flow.page(TaskFlowFilter(queue=self.queue, page_size=4))
        rest = self.flow.page(TaskFlowFilter(queue=self.queue, page_size=4), page.next)
        self.assertEqual((len(page.jobs), len(rest.jobs), rest.next), (4, 1, ""))
        some = TaskFlowFilter(
            queue=self.queue,
            status="READY",
            priority_min=2,
            priority_max=3,
            created_after=before,
            created_before=datetime.now(timezone.utc) + timedelta(minutes=1),
        )
        self.assertEqual([job.name for job in self.flow.search(some)], ["3", "2"])
        self.assertTrue(next(self.flow.search()))
        with self.assertRaises(millrace.InvalidError):
            self.flow.page(TaskFlowFilter(status="NONE"))
        with self.assertRaises(millrace.InvalidError):
            self.flow.page(TaskFlowFilter(), "no cursor")
        with self.assertRaises(millrace.InvalidError):
            self.flow.page(TaskFlowFilter(created_after=datetime(2026, 1, 1)))

    def test_rerun(self) -> None:
        first = self.flow.submit(self.spec("first"))
        second = self.flow.submit(self.spec("second", dependencies=[first.id]))
        self.api.fail(self.claim().run_id, FINAL)
        failed = self.flow.wait(first.id, timeout=BOUND)
        self.assertEqual(failed.status, "FAILED")
        assert failed.last_error is not None
        self.assertEqual(
            (failed.last_error.message, failed.last_error.error_type), ("no", "net")
        )
        self.assertEqual(self.flow.wait(second.id).status, "BLOCKED")
        copies = self.flow.rerun(first.id)
        self.assertEqual(set(copies), {first.id, second.id})
        with self.assertRaises(millrace.ConflictError) as caught:
            self.flow.rerun(first.id)
        self.assertEqual(caught.exception.copies, copies)
        self.assertEqual(set(self.flow.rerun(first.id, again=True)), set(copies))
        self.assertEqual(set(self.flow.rerun_graph(first.id, again=True)), set(copies))
        self.assertTrue(self.flow.get(first.id).rerun_as)

    def test_cancel(self) -> None:
        job = self.flow.submit(self.spec())
        with self.assertRaises(millrace.ConflictError):
            self.flow.cancel(job.id)
        run = self.claim()
        self.assertEqual(self.flow.cancel(job.id).status, "FAILED")
        with self.assertRaises(millrace.RunLostError):
            self.api.heartbeat(run.run_id)

    def test_bad_input_changes_nothing(self) -> None:
        calls: List[Callable[[], Any]] = [
            lambda: self.flow.submit(TaskFlowSpec("", self.queue)),
            lambda: self.flow.submit(TaskFlowSpec("a", "no queue!")),
            lambda: self.flow.submit(self.spec(priority=11)),
            lambda: self.flow.submit(self.spec(payload=object())),
            lambda: self.flow.submit(self.spec(payload="x" * 70_000)),
            lambda: self.flow.submit(self.spec(dependencies=["none"])),
            lambda: self.flow.submit(self.spec(retry=TaskFlowRetryPolicy(max_attempts=11))),
            lambda: self.flow.submit(self.spec(retry=TaskFlowRetryPolicy(base_delay=float("nan")))),
            lambda: self.flow.submit_once("two\nlines", self.spec()),
            lambda: self.flow.get(""),
            lambda: self.api.claim("none"),
            lambda: self.api.claim(Contract.TASK_FLOW, max=0),
            lambda: self.api.claim(Contract.TASK_FLOW, wait=float("nan")),
            lambda: self.api.claim_job(Contract.TASK_FLOW, ""),
            lambda: self.api.heartbeat(""),
            lambda: self.api.complete("run", object()),
            lambda: self.api.finish([RunOutcome("run", result=1, released=True)]),
            lambda: self.api.finish([RunOutcome("")]),
            lambda: self.api.finish([RunOutcome("run")] * 1001),
        ]
        for i, call in enumerate(calls):
            with self.subTest(i), self.assertRaises(millrace.InvalidError):
                call()
        self.assertEqual(list(self.flow.search(TaskFlowFilter(queue=self.queue))), [])


class WorkerAPITest(FlowCase):
    def test_life_of_a_run(self) -> None:
        made = self.flow.submit(self.spec(payload={"n": 1}))
        job = self.claim()
        self.assertEqual((job.id, job.payload, job.attempt), (made.id, {"n": 1}, 1))
        self.assertGreater(job.lease, 0)
        reply = self.api.heartbeat(job.run_id, {"at": 1})
        self.assertFalse(reply.cancel)
        self.assertGreater(reply.lease_until, datetime.now(timezone.utc))
        self.api.start(job.run_id)
        self.api.release(job.run_id)
        with self.assertRaises(millrace.RunLostError):
            self.api.complete(job.run_id)
        again = self.api.claim_job(Contract.TASK_FLOW, made.id, "tests")
        self.assertEqual((again.state, again.attempt), ({"at": 1}, 1))
        with self.assertRaises(millrace.ConflictError):
            self.api.claim_job(Contract.TASK_FLOW, made.id)
        self.api.complete(again.run_id, {"rows": 7})
        done = self.flow.wait(made.id)
        self.assertEqual((done.status, done.result), ("COMPLETED", {"rows": 7}))
        with self.assertRaises(millrace.NotFoundError):
            self.api.claim_job(Contract.TASK_FLOW, "none")

    def test_finish(self) -> None:
        for i in range(4):
            self.flow.submit(self.spec(f"{i}"))
        runs = [self.claim() for _ in range(4)]
        results = self.api.finish(
            [
                RunOutcome(runs[0].run_id, {"n": 1}),
                RunOutcome(runs[1].run_id, failure=FINAL),
                RunOutcome(runs[0].run_id, released=True),
                RunOutcome(runs[2].run_id, released=True),
                RunOutcome('no "run"'),
                RunOutcome(runs[3].run_id),
            ]
        )
        self.assertEqual(
            [result.status for result in results],
            ["COMPLETED", "FAILED", "", "READY", "", "COMPLETED"],
        )
        self.assertEqual(results[1].job_id, runs[1].id)
        for i in (2, 4):
            self.assertIsInstance(results[i].error, millrace.RunLostError)
        self.assertEqual(self.api.finish([]), [])


class JobWorkerCase(FlowCase):
    """What the tests of workers share."""

    def setUp(self) -> None:
        super().setUp()
        self.log, self.lines = self.logger()
        self.outcomes: Dict[str, Optional[BaseException]] = {}

    def note(self, job: ClaimedJob, reason: Optional[BaseException]) -> None:
        self.outcomes[job.id] = reason

    def work(self, handlers: Any, **options: Any) -> Any:
        if callable(handlers):
            handlers = {self.queue: handlers}
        options = {
            "logger": self.log,
            "after_run": self.note,
            "poll_interval": 0.05,
            **options,
        }
        return self.background(JobWorker(self.api, Contract.TASK_FLOW, handlers, **options))

    def submit_many(self, count: int) -> List[str]:
        """Submit jobs and return their ids."""
        return [self.flow.submit(self.spec(f"{i}")).id for i in range(count)]


class JobWorkerTest(JobWorkerCase):
    def finished(self, handler: Callable[[JobRun], Any], **members: Any) -> millrace.TaskFlowJob:
        """Have one job run once and return it then."""
        made = self.flow.submit(self.spec(**members))
        worker = self.work(handler)
        until("the run has ended", lambda: made.id in self.outcomes)
        worker.stop()
        return self.flow.get(made.id)

    def test_results(self) -> None:
        for result in (None, {"n": 1}, [1, "ü"], "\ud800", 2**80, {"x": "y" * 5000}):
            job = self.finished(lambda run: result)
            self.assertEqual((job.status, job.result), ("COMPLETED", result))

    def test_failures(self) -> None:
        def crash(run: JobRun) -> None:
            raise KeyError("a\x00b")

        def give_up(run: JobRun) -> None:
            raise JobError("never", error_type="bad", final=True)

        def wrap(run: JobRun) -> None:
            try:
                crash(run)
            except KeyError as error:
                raise millrace.final(error) from error

        def odd(run: JobRun) -> None:
            raise JobError("e" * 100_000, error_type="t" * 300, final=True)

        def long(run: JobRun) -> None:
            raise JobError("ü" * 1_000_000, final=True)

        def no_json(run: JobRun) -> object:
            return object()

        def too_large(run: JobRun) -> str:
            return "x" * (5 << 20)

        retry = TaskFlowRetryPolicy(base_delay=300)
        for handler, status, error_type in (
            (crash, "READY", "KeyError"),
            (give_up, "FAILED", "bad"),
            (wrap, "FAILED", "KeyError"),
            (odd, "FAILED", ""),
            (long, "FAILED", ""),
            (no_json, "FAILED", "result"),
            (too_large, "FAILED", "result"),
            (lambda run: exit(1), "READY", "SystemExit"),
        ):
            job = self.finished(handler, retry=retry)
            self.assertEqual(job.status, status)
            assert job.last_error is not None
            self.assertEqual(job.last_error.error_type, error_type)
            self.assertTrue(job.last_error.message)
            self.assertIsNotNone(self.outcomes[job.id])

    def test_release(self) -> None:
        runs: List[int] = []

        def handle(run: JobRun) -> None:
            runs.append(run.job.attempt)
            if len(runs) == 1:
                raise millrace.Release("not now")
            if len(runs) == 2:
                run.release()
                with self.assertRaises(millrace.RunFinishedError):
                    run.save_state(1)
                with self.assertRaises(millrace.RunFinishedError):
                    run.release()

        made = self.flow.submit(self.spec())
        worker = self.work(handle)
        self.assertEqual(self.flow.wait(made.id, BOUND).status, "COMPLETED")
        worker.stop()
        self.assertEqual(runs, [1, 1, 1])  # no attempt was counted

    def test_states(self) -> None:
        states: List[Any] = []

        def handle(run: JobRun) -> None:
            states.append(run.job.state)
            if len(states) == 1:
                run.save_state({"saved": 1})
                run.set_state({"set": 2})
                raise millrace.Release()

        made = self.flow.submit(self.spec())
        worker = self.work(handle)
        self.flow.wait(made.id, BOUND)
        worker.stop()
        self.assertEqual(states, [None, {"set": 2}])

    def test_a_canceled_run(self) -> None:
        made = self.flow.submit(self.spec())
        causes: List[Any] = []

        def handle(run: JobRun) -> None:
            self.flow.cancel(made.id)
            self.assertTrue(run.wait(BOUND) and run.ended)
            causes.append(run.cause)
            run.check()

        worker = self.work(handle, max_heartbeat_interval=0.05)
        until("the run has ended", lambda: made.id in self.outcomes)
        worker.stop()
        self.assertIsInstance(causes[0], millrace.RunLostError)
        self.assertIsInstance(self.outcomes[made.id], millrace.RunLostError)

    def test_a_drain_releases_what_does_not_finish(self) -> None:
        made = self.flow.submit(self.spec())
        began = threading.Event()

        def handle(run: JobRun) -> None:
            began.set()
            run.wait(BOUND)
            run.check()

        worker = self.work(handle, drain_timeout=0.1)
        began.wait(BOUND)
        with self.assertRaises(millrace.DrainTimeoutError):
            worker.stop()
        job = self.flow.get(made.id)
        self.assertEqual((job.status, job.failed_attempts), ("READY", 0))

    def test_kill(self) -> None:
        made = self.flow.submit(self.spec())
        began = threading.Event()

        def handle(run: JobRun) -> None:
            began.set()
            run.wait(BOUND)
            raise RuntimeError("stopped")

        worker = self.work(handle)
        began.wait(BOUND)
        worker.worker.kill()
        with self.assertRaises(millrace.DrainTimeoutError):
            worker.join()
        self.assertEqual(self.flow.get(made.id).status, "READY")

    def test_an_operator_drains_a_worker(self) -> None:
        name, admin = self.name(), self.client.admin()
        worker = self.work(lambda run: None, name=name, poll_wait=1)
        until("it is known", lambda: [w for w in admin.workers() if w.name == name])
        admin.drain_worker(name)
        worker.join()
        admin.resume_worker(name)

    def test_handlers_by_queue(self) -> None:
        other = self.name()
        first = self.flow.submit(self.spec())
        second = self.flow.submit(TaskFlowSpec("second", other))
        calls: List[str] = []

        def wrap(handler: millrace.JobHandler) -> millrace.JobHandler:
            def call(run: JobRun) -> Any:
                calls.append("wrap")
                return handler(run)

            return call

        worker = self.work(
            {self.queue: lambda run: calls.append("own"), "": lambda run: calls.append("rest")},
            middleware=[wrap],
        )
        self.flow.wait(first.id, BOUND)
        self.flow.wait(second.id, BOUND)
        worker.stop()
        self.assertIn("own", calls)
        self.assertIn("rest", calls)
        self.assertGreaterEqual(calls.count("wrap"), 2)

    def test_many_short_jobs(self) -> None:
        made = self.submit_many(60)
        worker = self.work(lambda run: run.job.id, concurrency=8)
        until("all are done", lambda: len(self.outcomes) == 60)
        worker.stop()
        self.assertEqual(set(self.outcomes.values()), {None})
        self.assertEqual({self.flow.get(id).result for id in made}, set(made))

    def test_arguments(self) -> None:
        def handle(run: JobRun) -> None:
            pass

        cases: List[Any] = [
            ("", {"q": handle}, {}),
            (Contract.TASK_FLOW, {}, {}),
            (Contract.TASK_FLOW, {"q": None}, {}),
            (Contract.TASK_FLOW, {"q": handle}, {"concurrency": -1}),
        ]
        for contract, handlers, options in cases:
            with self.assertRaises(millrace.InvalidError):
                JobWorker(self.api, contract, handlers, **options)


class JobWorkerOutageTest(JobWorkerCase):
    """With a server of its own."""

    server: Server

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = Server(*SETTINGS).start()
        cls.client = millrace.Client(cls.server.url, token=TOKEN)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.server.close()

    def test_no_work_is_lost_or_doubled_when_the_server_is_killed(self) -> None:
        made, lock, go_on = self.submit_many(60), threading.Lock(), threading.Event()
        runs: Counter[str] = Counter()
        waiting: List[str] = []

        def handle(run: JobRun) -> str:
            with lock:
                runs[run.job.id] += 1
                if len(runs) > 20:
                    waiting.append(run.job.run_id)
            if run.job.run_id in waiting:
                go_on.wait(BOUND)
            return run.job.id

        worker = self.work(handle, concurrency=10)
        # All slots have runs when the server is killed: no answer to a claim is on its way.
        until("all slots wait", lambda: (len(waiting), len(self.outcomes)) == (10, 20))
        self.server.kill()
        go_on.set()  # the outcomes are tried while no server is there
        until("the worker has noticed", lambda: self.lines.having("the server does not answer"))
        self.assertEqual(len(self.outcomes), 20)
        self.server.start()
        until("all jobs are done", lambda: len(self.outcomes) == len(made))
        worker.stop()
        self.assertEqual(set(self.outcomes.values()), {None})
        jobs = [self.flow.get(id) for id in made]
        self.assertEqual({job.status for job in jobs}, {"COMPLETED"})
        self.assertEqual([job.result for job in jobs], made)
        self.assertEqual([job.failed_attempts for job in jobs], [0] * len(made))
        self.assertEqual(runs, Counter(made))
        self.assertTrue(self.lines.having("the server answers again"))

    def test_a_handler_outlives_the_server(self) -> None:
        made = self.flow.submit(self.spec())
        began, go_on = threading.Event(), threading.Event()
        runs: List[str] = []

        def handle(run: JobRun) -> str:
            runs.append(run.job.run_id)
            began.set()
            while not go_on.wait(0.01):
                run.check()
            run.save_state({"after": "the outage"})
            return "done"

        worker = self.work(handle, max_heartbeat_interval=0.1)
        self.assertTrue(began.wait(BOUND))
        self.server.kill()
        until("heartbeats fail", lambda: self.lines.having("the server does not answer"))
        self.server.start()
        until("it answers again", lambda: self.lines.having("the server answers again"))
        go_on.set()
        until("the run has ended", lambda: made.id in self.outcomes)
        worker.stop()
        self.assertEqual((len(runs), self.outcomes[made.id]), (1, None))
        job = self.flow.get(made.id)
        self.assertEqual((job.status, job.result), ("COMPLETED", "done"))


if __name__ == "__main__":
    unittest.main()
