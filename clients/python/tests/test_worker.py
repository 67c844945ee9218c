"""Workers of Relay against a real server, which is killed and started again in some tests."""

from __future__ import annotations

import functools
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import unittest
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any, Callable, Dict, List, Optional

import millrace
from millrace import RelaySpec, Run, Worker

from .base import BOUND, TOKEN, ServerTest, until
from .fake import FakeServer, Reply
from .server import SETTINGS, Server

PACKAGE = str(pathlib.Path(__file__).parent.parent)


class WorkerCase(ServerTest):
    """What the tests of workers share."""

    def setUp(self) -> None:
        self.relay = self.client.relay()
        self.queue = self.name()
        self.log, self.lines = self.logger()
        self.outcomes: Dict[str, Optional[BaseException]] = {}

    def enqueue(self, count: int = 1, **members: Any) -> None:
        spec = RelaySpec(self.queue, "", timeout=60)
        jobs = [replace(spec, id=f"{i}", **members) for i in range(count)]
        self.relay.enqueue(jobs)

    def note(self, job: millrace.RelayJob, reason: Optional[BaseException]) -> None:
        self.outcomes[job.id] = reason

    def work(self, handler: Callable[[Run], Any], **options: Any) -> Any:
        options.setdefault("logger", self.log)
        options.setdefault("after_run", self.note)
        options.setdefault("poll_interval", 0.05)
        return self.background(Worker(self.relay, self.queue, handler, **options))

    def empty(self) -> bool:
        return all(not self.relay.exists(self.queue, id) for id in self.outcomes)


class WorkerTest(WorkerCase):
    def test_every_job_once(self) -> None:
        self.enqueue(200)
        seen: Counter[str] = Counter()
        lock = threading.Lock()

        def handle(run: Run) -> None:
            with lock:
                seen[run.job.id] += 1

        worker = self.work(handle, concurrency=8)
        until("all jobs are done", lambda: len(self.outcomes) == 200)
        worker.stop()
        self.assertEqual(set(seen.values()), {1})
        self.assertEqual(set(self.outcomes.values()), {None})
        self.assertTrue(self.empty())

    def test_no_thread_is_left(self) -> None:
        self.enqueue(4)
        worker = self.work(lambda run: None, concurrency=4)
        until("all jobs are done", lambda: len(self.outcomes) == 4)
        worker.stop()
        left = [t.name for t in threading.enumerate() if t.name.startswith("millrace")]
        self.assertEqual(left, [])

    def test_concurrency_is_bounded(self) -> None:
        self.enqueue(12)
        running, max_running = [0], [0]
        lock = threading.Lock()

        def handle(run: Run) -> None:
            with lock:
                running[0] += 1
                max_running[0] = max(max_running[0], running[0])
            run.wait(0.02)
            with lock:
                running[0] -= 1

        worker = self.work(handle, concurrency=3)
        until("all jobs are done", lambda: len(self.outcomes) == 12)
        worker.stop()
        self.assertEqual(max_running[0], 3)

    def test_state(self) -> None:
        self.enqueue(timeout=1, state={"done": 0})
        seen: List[Any] = []

        def handle(run: Run) -> None:
            seen.append(run.job.state)
            if len(seen) == 1:
                run.save_state({"done": 1})
                self.assertEqual(self.relay.get(self.queue, "0").state, {"done": 1})
                run.set_state({"done": 2})
                until(
                    "a heartbeat has stored the state",
                    lambda: self.relay.get(self.queue, "0").state == {"done": 2},
                )
                run.set_state({"done": 3})
                raise RuntimeError("the first run fails")

        worker = self.work(handle)
        until("the job is done", lambda: len(seen) == 2 and not self.relay.exists(self.queue, "0"))
        worker.stop()
        self.assertEqual(seen, [{"done": 0}, {"done": 3}])
        self.assertTrue(self.lines.having("handler failed"))

    def test_heartbeats_keep_a_run(self) -> None:
        self.enqueue(timeout=1)
        runs: List[str] = []

        def handle(run: Run) -> None:
            runs.append(run.job.run_id)
            run.wait(2.5)

        worker = self.work(handle)
        until("the job is done", lambda: "0" in self.outcomes)
        worker.stop()
        self.assertEqual((len(runs), self.outcomes), (1, {"0": None}))

    def test_a_lost_run_is_noticed(self) -> None:
        self.enqueue(timeout=1)
        causes: List[Optional[BaseException]] = []

        def handle(run: Run) -> None:
            if causes:
                return
            self.relay.enqueue(
                RelaySpec(self.queue, "0", timeout=60, payload="new"), millrace.RelayMode.REPLACE
            )
            self.assertTrue(run.wait(BOUND))
            causes.append(run.cause)
            calls: List[Callable[[], Any]] = [
                run.check,
                lambda: run.save_state(1),
                lambda: run.set_state(1),
                lambda: run.requeue([]),
            ]
            for call in calls:
                self.assertTrue(run.ended)
                with self.assertRaises(millrace.RunLostError):
                    call()

        ended: List[Optional[BaseException]] = []
        worker = self.work(handle, after_run=lambda job, reason: ended.append(reason))
        until("the new job is done", lambda: not self.relay.exists(self.queue, "0"))
        worker.stop()
        self.assertIsInstance(causes[0], millrace.RunLostError)
        self.assertIsInstance(ended[0], millrace.RunLostError)
        self.assertIsNone(ended[1])

    def test_the_end_of_a_lost_run(self) -> None:
        """By the answer to its end, a completion alone, one in a batch, and a requeue."""
        count = 30
        for ending in ("complete", "requeue"):
            self.queue = self.name()
            log, lines = self.logger()
            self.enqueue(count)
            ended: List[Optional[BaseException]] = []

            def handle(run: Run) -> None:
                if run.job.payload == "again":
                    return
                again = replace(run.job, payload="again")
                self.relay.enqueue(again, millrace.RelayMode.REPLACE)
                if ending == "requeue":
                    run.requeue(RelaySpec(self.queue, "stored", timeout=60))

            worker = self.work(
                handle,
                concurrency=count,
                logger=log,
                after_run=lambda job, reason: ended.append(reason),
            )
            until("all have run twice", lambda: len(ended) == 2 * count)
            worker.stop()
            lost = [reason for reason in ended if reason is not None]
            self.assertEqual({type(reason) for reason in lost}, {millrace.RunLostError})
            self.assertEqual(len(lost), count)
            self.assertEqual(len(lines.having("run lost; its outcome is dropped")), count)
            self.assertEqual(len(lines.having("job completed")), count)
            self.assertFalse(self.relay.exists(self.queue, "stored"))

    def test_the_reason_of_a_failure(self) -> None:
        self.enqueue(timeout=2, max_retries=0, state={"step": 1})

        def handle(run: Run) -> None:
            run.set_state({"step": 2})
            raise KeyError("no such mailbox")

        worker = self.work(handle)
        until("the run has ended", lambda: self.outcomes)
        admin = self.client.admin()
        (job,) = admin.jobs(millrace.AdminJobFilter(contract="relay", queue=self.queue))
        summary = admin.why(job.number).summary
        self.assertRegex(summary, "has failed .*: 'no such mailbox'. No attempt is left")
        until("it is given up", lambda: not self.relay.exists(self.queue, "0"))
        worker.stop()
        (dead_letter,) = self.relay.dead_letters(self.queue)
        self.assertEqual(dead_letter.error, "'no such mailbox'")
        self.assertEqual(dead_letter.state, {"step": 2})
        sentence = admin.why(job.number).summary
        self.assertIn("Its error is KeyError: 'no such mailbox'.", sentence)
        errors = [entry.error for entry in admin.timeline(job.number).entries if entry.error]
        self.assertEqual(errors, ["'no such mailbox'"])
        self.assertFalse(self.lines.having("failure not reported"))
        started = self.lines.having(f"waiting for jobs of {self.queue} (relay) at http")
        self.assertEqual(len(started), 1)

    def test_requeue(self) -> None:
        self.enqueue()

        def handle(run: Run) -> None:
            if run.job.payload is not None:
                return
            run.requeue(replace(run.job, payload=1, run_at=datetime.now(timezone.utc)))
            with self.assertRaises(millrace.RunFinishedError):
                run.save_state({})
            with self.assertRaises(millrace.RunFinishedError):
                run.requeue([])

        worker = self.work(handle)
        until("the job is done", lambda: not self.relay.exists(self.queue, "0"))
        worker.stop()
        self.assertEqual(self.outcomes, {"0": None})

    def test_finish_with(self) -> None:
        self.enqueue(timeout=3)
        sent: List[str] = []
        job = millrace.RelayJob("", "", 0)
        heartbeat = self.relay._heartbeat

        def counted(*args: Any) -> Any:
            sent.append("heartbeat")
            return heartbeat(*args)

        relay = self.client.relay()
        setattr(relay, "_heartbeat", counted)

        def fail() -> None:
            raise KeyError("rolled back")

        def end() -> None:
            sent.clear()
            time.sleep(0.3)  # six heartbeats
            self.relay.complete(job.run())  # in the place of millrace.complete
            self.assertEqual(sent, [])

        def handle(run: Run) -> None:
            nonlocal job
            job = run.job
            with self.assertRaises(KeyError):
                run.finish_with(fail)
            run.save_state({"the run": "goes on"})
            run.finish_with(end)
            time.sleep(0.3)
            with self.assertRaises(millrace.RunFinishedError):
                run.finish_with(fail)
            with self.assertRaises(millrace.RunFinishedError):
                run.save_state({})

        worker = self.background(
            Worker(
                relay,
                self.queue,
                handle,
                max_heartbeat_interval=0.05,
                logger=self.log,
                after_run=self.note,
            )
        )
        until("the run has ended", lambda: self.outcomes)
        worker.stop()
        self.assertEqual(sent, [])
        self.assertFalse(self.relay.exists(self.queue, "0"))
        self.assertEqual(self.outcomes, {"0": None})

    def test_finish_with_after_a_loss(self) -> None:
        tasks, queue = self.client.task_flow(), self.name()
        tasks.submit(millrace.TaskFlowSpec("n", queue))
        causes: List[Optional[BaseException]] = []

        def end() -> None:
            raise millrace.RunLostError("complete", message="MILLRACE_RUN_LOST")

        def handle(run: millrace.JobRun) -> None:
            with self.assertRaises(millrace.RunLostError):
                run.finish_with(end)
            causes.append(run.cause)
            with self.assertRaises(millrace.RunLostError):
                run.finish_with(lambda: causes.append(None))

        worker = self.background(
            millrace.JobWorker(
                self.client.worker_api(),
                millrace.Contract.TASK_FLOW,
                {queue: handle},
                logger=self.log,
                after_run=lambda job, reason: causes.append(reason),
            )
        )
        until("the run has ended", lambda: len(causes) == 2)
        worker.stop()
        for cause in causes:
            self.assertIsInstance(cause, millrace.RunLostError)

    def test_a_conflict_leaves_the_run_as_it_is(self) -> None:
        self.enqueue(2)
        refused: List[bool] = []

        def handle(run: Run) -> None:
            other = "1" if run.job.id == "0" else "0"
            try:
                run.requeue(RelaySpec(self.queue, other, timeout=60))
            except millrace.ConflictError:
                refused.append(True)
                raise

        worker = self.work(handle)
        until("one is refused", lambda: refused)
        worker.stop()
        self.assertIsInstance(self.outcomes["0"], millrace.ConflictError)

    def test_states_that_are_refused(self) -> None:
        self.enqueue(timeout=3)

        def handle(run: Run) -> None:
            with self.assertRaises(millrace.InvalidError):
                run.set_state(object())
            with self.assertRaises(millrace.InvalidError):
                run.save_state("x" * (2 << 20))
            run.set_state("x" * (2 << 20))
            until("it is dropped", lambda: self.lines.having("state refused and dropped"))

        worker = self.work(handle)
        until("the job is done", lambda: "0" in self.outcomes)
        worker.stop()
        self.assertEqual(self.outcomes, {"0": None})

    def test_drain_timeout(self) -> None:
        self.enqueue()
        began, causes = threading.Event(), list[Any]()

        def handle(run: Run) -> None:
            began.set()
            run.wait(BOUND)
            causes.append(run.cause)

        worker = self.work(handle, drain_timeout=0.1)
        began.wait(BOUND)
        with self.assertRaises(millrace.DrainTimeoutError):
            worker.stop()
        self.assertIsInstance(causes[0], millrace.DrainTimeoutError)
        self.assertEqual(self.outcomes, {"0": None})  # what it returns counts all the same

    def test_a_drain_waits_for_handlers(self) -> None:
        self.enqueue(2)
        began, go_on = threading.Event(), threading.Event()

        def handle(run: Run) -> None:
            began.set()
            go_on.wait(BOUND)

        worker = self.work(handle)
        began.wait(BOUND)
        worker.worker.stop()
        go_on.set()
        worker.join()
        self.assertEqual(self.outcomes, {"0": None})
        self.assertTrue(self.relay.exists(self.queue, "1"))

    def test_kill(self) -> None:
        self.enqueue()
        began, causes = threading.Event(), list[Any]()

        def handle(run: Run) -> None:
            began.set()
            run.wait(BOUND)
            causes.append(run.cause)
            run.check()

        worker = self.work(handle)
        began.wait(BOUND)
        why = RuntimeError("power cut")
        worker.worker.kill(why)
        with self.assertRaises(millrace.DrainTimeoutError):
            worker.join()
        self.assertIs(causes[0].__cause__, why)
        self.assertIs(self.outcomes["0"], causes[0])

    def test_an_operator_drains_a_worker(self) -> None:
        self.enqueue()
        name, admin = self.name(), self.client.admin().with_actor("tests")
        began, go_on = threading.Event(), threading.Event()

        def handle(run: Run) -> None:
            began.set()
            go_on.wait(BOUND)

        worker = self.work(handle, name=name, concurrency=2, poll_wait=1)
        began.wait(BOUND)
        (found,) = [w for w in admin.workers() if w.name == name]
        self.assertEqual((found.queues, found.draining), ([self.queue], False))
        admin.drain_worker(name)
        until("the worker knows", lambda: self.lines.having("drained by an operator"))
        go_on.set()
        worker.join()  # without an error: it has ended by itself
        self.assertEqual(self.outcomes, {"0": None})
        admin.resume_worker(name)

    def test_middleware(self) -> None:
        self.enqueue()
        calls: List[str] = []

        def named(name: str) -> Callable[[millrace.Handler], millrace.Handler]:
            def wrap(handler: millrace.Handler) -> millrace.Handler:
                def call(run: Run) -> None:
                    calls.append(name)
                    handler(run)

                return call

            return wrap

        worker = self.work(lambda run: calls.append("handler"), middleware=[named("a"), named("b")])
        until("the job is done", lambda: "0" in self.outcomes)
        worker.stop()
        self.assertEqual(calls, ["a", "b", "handler"])

    def test_handlers_that_end_their_thread(self) -> None:
        self.enqueue(timeout=1, max_retries=0)
        worker = self.work(lambda run: sys.exit(3))
        until("the run has ended", lambda: "0" in self.outcomes)
        worker.stop()
        self.assertIsInstance(self.outcomes["0"], SystemExit)

    def test_a_callback_that_fails_harms_nothing(self) -> None:
        self.enqueue(2)
        worker = self.work(lambda run: None, after_run=lambda job, reason: 1 / 0)
        for id in ("0", "1"):
            until("the job is done", lambda: not self.relay.exists(self.queue, id))
        worker.stop()
        self.assertEqual(len(self.lines.having("after_run failed")), 2)

    def test_runs_that_are_made_by_hand(self) -> None:
        run = Run(millrace.RelayJob("q", "a", 30, payload={"n": 1}))
        self.assertEqual((run.job.payload, run.ended, run.cause), ({"n": 1}, False, None))
        self.assertFalse(run.wait(0.001))
        run.check()
        calls: List[Callable[[], Any]] = [
            lambda: run.set_state(1),
            lambda: run.save_state(1),
            lambda: run.requeue([]),
        ]
        for call in calls:
            with self.assertRaises(millrace.InvalidError):
                call()
        job = millrace.JobRun(millrace.ClaimedJob("j"))
        job.check()
        with self.assertRaises(millrace.InvalidError):
            job.release()
        with self.assertRaises(millrace.InvalidError):
            job.finish_with(job.check)

    def test_arguments(self) -> None:
        def handle(run: Run) -> None:
            pass

        for queue, handler, options in (
            ("", handle, {}),
            ("q", None, {}),
            ("q", handle, {"concurrency": 0}),
            ("q", handle, {"poll_wait": -1}),
            ("q", handle, {"poll_interval": -1}),
            ("q", handle, {"drain_timeout": -1}),
            ("q", handle, {"max_heartbeat_interval": -1}),
            ("q", handle, {"name": "two\nlines"}),
        ):
            with self.assertRaises(millrace.InvalidError):
                Worker(self.relay, queue, handler, **options)  # type: ignore[arg-type]
        for relay, said in ((self.client, "client.relay()"), ("http://localhost", "client.relay()")):
            with self.assertRaisesRegex(millrace.InvalidError, said):
                Worker(relay, "q", handle)  # type: ignore[arg-type]
        with self.assertRaisesRegex(millrace.InvalidError, "Worker"):
            millrace.JobWorker(self.client.worker_api(), "relay", {"": lambda run: None})
        worker = Worker(self.relay, "q", handle)
        worker.stop()  # before run: it ends at once
        worker.run()
        with self.assertRaises(millrace.InvalidError):
            worker.run()

    def test_handlers_that_would_not_run(self) -> None:
        async def coroutine(run: Any) -> None:
            pass

        def generator(run: Any) -> Any:
            yield

        class Callable:
            async def __call__(self, run: Any) -> None:
                pass

        def nothing() -> None:
            pass

        handlers: Dict[Any, str] = {
            coroutine: "is async",
            functools.partial(coroutine): "is async",
            Callable(): "is async",
            generator: "is a generator",
            nothing: "does not take one argument",
            (lambda run, ctx: None): "does not take one argument",
        }
        for handler, said in handlers.items():
            with self.assertRaisesRegex(millrace.InvalidError, said):
                Worker(self.relay, "q", handler)
            with self.assertRaisesRegex(millrace.InvalidError, said):
                millrace.JobWorker(self.client.worker_api(), "taskflow", {"": handler})
        Worker(self.relay, "q", print)

    def test_results_that_did_not_run(self) -> None:
        async def coroutine(run: Any) -> None:
            pass

        def generator(run: Any) -> Any:
            yield

        def call(handler: Any, run: Any) -> Any:
            return handler(run)

        for handler in (coroutine, generator):
            self.enqueue(timeout=1, max_retries=0)
            worker = self.work(functools.partial(call, handler))
            until("the run has failed", lambda: self.outcomes.get("0") is not None)
            worker.stop()
            self.assertIn("did not run", str(self.outcomes.pop("0")))
            until("the job is given up", lambda: not self.relay.exists(self.queue, "0"))

    def test_a_wrong_token_ends_the_run_after_its_lease(self) -> None:
        # The polls are answered by one server, the heartbeats refused by another.
        fake = FakeServer(Reply(401, b"a token is needed"))
        self.addCleanup(fake.close)
        relay = millrace.Client(fake.url).relay()
        self.enqueue(timeout=1)
        causes: List[Optional[BaseException]] = []
        setattr(relay, "_claim", self.relay._claim)

        def handle(run: Run) -> None:
            run.wait(BOUND)
            causes.append(run.cause)

        worker = self.background(
            Worker(relay, self.queue, handle, logger=self.log, after_run=self.note)
        )
        until("the run is lost", lambda: causes)
        worker.stop()
        self.assertIsInstance(causes[0], millrace.RunLostError)

    def test_a_server_without_batches(self) -> None:
        self.enqueue(50)
        relay = millrace.Client(self.server.url).relay()

        def refuse(*_: Any, **__: Any) -> List[bool]:
            batches.append(1)
            raise millrace.NotFoundError("relay complete all", status=404)

        batches: List[int] = []
        setattr(relay, "_complete_all", refuse)
        worker = self.background(
            Worker(
                relay,
                self.queue,
                lambda run: run.wait(0.01),
                concurrency=16,
                logger=self.log,
                after_run=self.note,
            )
        )
        until("all jobs are done", lambda: len(self.outcomes) == 50)
        worker.stop()
        self.assertEqual(set(self.outcomes.values()), {None})
        self.assertLessEqual(len(batches), 4)


class OutageTest(WorkerCase):
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
        count, lock = 120, threading.Lock()
        runs: Counter[str] = Counter()
        self.enqueue(count, timeout=10)

        def handle(run: Run) -> None:
            with lock:
                runs[run.job.id] += 1
            run.wait(0.05)

        worker = self.work(handle, concurrency=8)
        for done in (20, 50, 80):
            until(f"{done} runs", lambda: len(self.outcomes) >= done)
            self.server.kill()
            self.server.start()
        until("all jobs are done", lambda: len(self.outcomes) == count)
        worker.stop()
        # The answer to a completion may be cut off, too.
        lost = [reason for reason in self.outcomes.values() if reason is not None]
        self.assertEqual([r for r in lost if not getattr(r, "uncertain", False)], [])
        # A job in an answer that the kill cut off has no worker: it would come back after its
        # timeout, which has not passed. All others ran once.
        self.assertEqual(sum(runs.values()), count)
        self.assertTrue(self.empty())
        self.assertTrue(self.lines.having("the server answers again"))

    def test_a_handler_outlives_the_server(self) -> None:
        self.enqueue(timeout=30)
        began, go_on = threading.Event(), threading.Event()
        runs: List[str] = []

        def handle(run: Run) -> None:
            runs.append(run.job.run_id)
            began.set()
            while not go_on.wait(0.01):
                run.check()
            run.save_state({"after": "the outage"})

        worker = self.work(handle, max_heartbeat_interval=0.1)
        began.wait(BOUND)
        self.server.kill()
        until("heartbeats fail", lambda: self.lines.having("the server does not answer"))
        self.server.start()
        until("it answers again", lambda: self.lines.having("the server answers again"))
        go_on.set()
        until("the run has ended", lambda: "0" in self.outcomes)
        worker.stop()
        self.assertEqual((len(runs), self.outcomes["0"]), (1, None))
        self.assertFalse(self.relay.exists(self.queue, "0"))

    def test_a_completion_waits_for_the_server(self) -> None:
        self.enqueue(timeout=60)
        began, go_on = threading.Event(), threading.Event()

        def handle(run: Run) -> None:
            began.set()
            go_on.wait(BOUND)

        worker = self.work(handle)
        began.wait(BOUND)
        self.server.kill()
        go_on.set()
        until("it is noticed", lambda: self.lines.having("the server does not answer"))
        self.assertEqual(self.outcomes, {})
        self.server.start()
        until("the run has ended", lambda: "0" in self.outcomes)
        worker.stop()
        self.assertEqual(self.outcomes, {"0": None})
        self.assertFalse(self.relay.exists(self.queue, "0"))

    def test_a_worker_starts_before_its_server(self) -> None:
        self.enqueue()
        self.server.kill()
        worker = self.work(lambda run: None)
        until("polls fail", lambda: self.lines.having("the server does not answer"))
        self.server.start()
        until("the job is done", lambda: "0" in self.outcomes)
        worker.stop()
        self.assertEqual(len(self.lines.having("does not answer")), 1)

    def test_a_stop_in_an_outage(self) -> None:
        self.server.pause()
        try:
            worker = self.work(lambda run: None)
            until("it runs", lambda: threading.active_count() > 1)
            worker.stop()  # cuts off the poll that hangs
        finally:
            self.server.resume()


PROGRAM = """
import logging, sys
import millrace

logging.basicConfig(level=logging.INFO, stream=sys.stderr)

def handle(run):
    print("began", run.job.id, flush=True)
    ended = run.wait({seconds})
    print("ended", ended, type(run.cause).__name__, flush=True)

worker = millrace.Worker(millrace.Client({url!r}).relay(), {queue!r}, handle)
try:
    worker.run({options})
    print("over", flush=True)
except millrace.DrainTimeoutError:
    print("killed", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


class SignalTest(ServerTest):
    def start(self, seconds: float, options: str) -> subprocess.Popen[str]:
        """Start a program that works on one job."""
        queue = self.name()
        self.client.relay().enqueue(RelaySpec(queue, "0", timeout=60))
        program = PROGRAM.format(
            url=self.server.url, queue=queue, seconds=seconds, options=options
        )
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": PACKAGE},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        assert process.stdout is not None
        self.addCleanup(process.stdout.close)
        self.assertEqual(process.stdout.readline(), "began 0\n")
        return process

    def rest(self, process: subprocess.Popen[str]) -> List[str]:
        assert process.stdout is not None
        return process.stdout.read().split("\n")[:-1]

    def test_a_signal_drains(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            process = self.start(0.5, "handle_signals=True")
            process.send_signal(number)
            self.assertEqual(self.rest(process), ["ended False NoneType", "over"])

    def test_a_second_signal_kills(self) -> None:
        process = self.start(BOUND, "handle_signals=True")
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        self.assertEqual(self.rest(process), ["ended True Killed", "killed"])

    def test_ctrl_c_drains_without_handlers_of_signals(self) -> None:
        process = self.start(0.5, "")
        process.send_signal(signal.SIGINT)
        self.assertEqual(self.rest(process), ["ended False NoneType", "interrupted"])


if __name__ == "__main__":
    unittest.main()
