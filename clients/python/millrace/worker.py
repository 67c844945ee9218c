"""Workers of Relay queues.

A worker claims the jobs of one queue and runs a handler for each::

    def send(run):
        smtp.send(run.job.payload["to"])

    worker = millrace.Worker(client.relay(), "mail", send, concurrency=8)
    worker.run(handle_signals=True)

A handler may start twice, but a result is accepted once. Handlers should be safe to repeat, or
keep their progress in the job's state.

In Relay an attempt fails by its timeout alone. When a handler raises, the worker logs the reason,
sends it with the state that was not sent yet, and stops its heartbeats: the job returns after its
timeout and has one retry less. Operators see the reason. A job that is out of retries becomes a
dead letter of its queue, which has it too, see :meth:`Relay.dead_letters`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Callable, List, Optional, Sequence

from . import _wire
from ._attempt import Attempt, HandlerRun
from ._batcher import MAX_BATCHED_BYTES, Batcher, NoBatches, SendSingly
from ._context import Context
from ._failure import text_of, type_of
from ._handler import check_result, handler_problem
from ._outage import Log
from ._runner import Runner
from ._stop import Control, process_name
from .errors import Error, RunLostError, invalid
from .relay import Jobs, Relay, RelayHeartbeat, RelayJob, RelayRun, run_lost

__all__ = ["AfterRun", "Handler", "Middleware", "Run", "Worker"]


class Run(HandlerRun):
    """One run of a job, as its handler gets it. Its methods may be called by several threads. Once
    the run has ended they raise :class:`RunLostError` or :class:`RunFinishedError` and send
    nothing. For the test of a handler, make one of a job alone: ``Run(job)``."""

    def __init__(
        self, job: RelayJob, attempt: Optional[Attempt] = None, relay: Optional[Relay] = None
    ) -> None:
        super().__init__(attempt)
        self.job = job
        """The job as it was claimed, with the state that an earlier run has stored."""
        self._relay = relay

    def set_state(self, state: Any) -> None:
        """Set a state, any JSON value, to be stored by the next heartbeat. It replaces a state that
        was not sent yet. The state is also stored when the handler fails, but not when it succeeds,
        as the job is removed then. A state that the server refuses is logged and dropped.

        :raises InvalidError: if the state is not JSON.
        """
        self._attempt.stage(state)

    def save_state(self, state: Any) -> None:
        """Store a state at once, with a heartbeat of its own, and return when the server has it.
        After a retryable error the state is sent with the next heartbeat.

        :raises Error: as :meth:`Relay.heartbeat`.
        """
        self._attempt.save(state)

    def requeue(self, jobs: Jobs, mode: str = "") -> None:
        """Replace this job by others and end the run. The worker will not complete it. To run the
        same job again later, pass ``dataclasses.replace(run.job, run_at=…)``.

        :raises Error: as :meth:`Relay.requeue`, after which the run continues.
        :raises RunLostError: when the run is lost, so that nothing was stored.
        """
        attempt, relay = self._attempt, self._relay

        def act(ctx: Context) -> None:
            assert relay is not None
            try:
                relay._requeue(ctx, self.job.run(), jobs, mode)
            except RunLostError as error:
                if not error.uncertain:  # else an earlier try has requeued it
                    raise

        attempt.finish(act)


Handler = Callable[[Run], Any]
"""Executes one run of a job. It is a plain function: an async one is refused. When it returns, the
job is completed; what it returns is ignored. When it raises, the job returns to its queue after its
timeout, and operators and its dead letter have the reason."""

Middleware = Callable[[Handler], Handler]
"""Wraps a handler, for example to log or trace its runs."""

AfterRun = Callable[[RelayJob, Optional[BaseException]], Any]
"""Called for each run when nothing more will be sent about it, with the reason why the job was not
completed: ``None`` if it was, or was requeued by its handler."""


class Worker:
    """Claims the jobs of one Relay queue and runs a handler for each. A worker runs once.

    :param relay: The contract to claim jobs from.
    :param queue: The queue's name.
    :param handler: Called for every job, with its :class:`Run`, in a thread of its own.
    :param name: Identifies the worker to the server, in up to 255 bytes. Empty means host name and
        process id.
    :param concurrency: Limits the handlers that run at once, and so the jobs that this worker has
        claimed.
    :param middleware: Wraps the handler; the first is the outermost.
    :param poll_wait: How many seconds the server may wait for a job before it answers that there
        is none, at most 30. With 0 the server answers at once.
    :param poll_interval: The least time between two polls that bring no job. It keeps the worker
        from polling in a tight loop when the server does not wait.
    :param max_heartbeat_interval: Limits the time between heartbeats, which is a third of the job's
        timeout. A handler learns from its heartbeats that its job was deleted or replaced; set this
        for it to learn that earlier under long timeouts.
    :param drain_timeout: How many seconds handlers may continue after a stop. With 0 their contexts
        end at once.
    :param after_run: Called for each run when nothing more will be sent about it, see
        :data:`AfterRun`. Several threads call it.
    :param logger: Gets failures and lost runs and, at level debug, each job that was started and
        completed. ``None`` is ``logging.getLogger("millrace")``.
    :raises InvalidError: if an argument is wrong.
    """

    def __init__(
        self,
        relay: Relay,
        queue: str,
        handler: Handler,
        *,
        name: str = "",
        concurrency: int = 1,
        middleware: Sequence[Middleware] = (),
        poll_wait: float = 30.0,
        poll_interval: float = 1.0,
        max_heartbeat_interval: Optional[float] = None,
        drain_timeout: float = 25.0,
        after_run: Optional[AfterRun] = None,
        logger: Optional[logging.Logger] = None,
    ) -> None:
        check_worker(
            "relay worker",
            source=(relay, Relay, "client.relay()"),
            queue=queue,
            name=name or process_name(),
            handlers=[handler],
            numbers={
                "concurrency": concurrency - 1,
                "poll_wait": poll_wait,
                "poll_interval": poll_interval,
                "max_heartbeat_interval": max_heartbeat_interval or 0,
                "drain_timeout": drain_timeout,
            },
        )
        for wrap in reversed(middleware):
            handler = wrap(handler)
        log = logging.LoggerAdapter(logger or logging.getLogger("millrace"), {})
        source = _RelaySource(relay, queue, name or process_name(), handler, after_run)
        runner = Runner(
            source,
            concurrency=concurrency,
            poll_wait=min(poll_wait, 30.0),
            poll_pause=poll_interval,
            drain_timeout=drain_timeout,
            max_heartbeat_interval=max_heartbeat_interval,
            backoff=relay._client._http.backoff,
            log=log,
        )
        self._control = Control(runner)
        self._log_start = start_logger(
            log, "relay", [queue], relay._client._http.address, concurrency
        )

    def run(self, *, handle_signals: bool = False) -> None:
        """Claim and execute jobs until :meth:`stop`, and drain then: stop polling and let running
        handlers finish under their heartbeats. After the drain timeout it ends their contexts and
        waits for them to return. No thread is left when it returns. The poll that is under way at
        the stop may take half a second more, and its jobs are executed; then it is cut off, and
        jobs that were claimed in that moment return after their timeout.

        Each job gets a heartbeat at every third of its timeout, which also stores the state that
        the handler has set meanwhile. A lease of timeout 0 cannot be extended; its heartbeats, one
        a second, only detect the loss of the run. A run is lost when a heartbeat is answered with
        404, when the server has refused all of them for a whole timeout, such as for a wrong token,
        or when the answer to its completion says so, as when the server was away for longer than
        the timeout. A lost run is never completed: its job runs again.

        Runs that end at about the same time are completed in one request, and heartbeats that are
        due together and have no state share one too, as with :meth:`Relay.complete_all` and
        :meth:`Relay.heartbeat_all`. None waits for others. With a server that does not have these
        requests each run has its own.

        Time in which the server cannot be reached, or asks to try again (a
        :class:`RetryableError`), does not count: it gives no job to another worker then. Handlers
        go on, and a completion is tried until the server gives a definite answer; after a stop,
        until 10 s after the drain timeout. The log gets one line when the server begins to fail
        requests, and one when it answers again.

        While the server answers with errors, the worker polls again after random pauses that grow,
        and not before Retry-After. Errors of single jobs are logged.

        When an operator drains the worker on the server, it stops polling, lets its handlers finish
        without a limit of time, and this returns.

        :param handle_signals: Stop on the first SIGINT or SIGTERM, kill on the second. It needs the
            main thread. Without it, KeyboardInterrupt does the same and is raised in the end.
        :raises DrainTimeoutError: when the contexts of some handlers had to be ended.
        """
        self._log_start()
        self._control.run(handle_signals)

    def stop(self) -> None:
        """End :meth:`run`, which drains first. It returns at once, and may be called by any thread,
        by signal handlers, and before run."""
        self._control.stop()

    def kill(self, cause: Optional[BaseException] = None) -> None:
        """Stop, and end the contexts of the handlers now, as after the drain timeout. ``cause`` is
        the cause of the :class:`DrainTimeoutError` that they get."""
        self._control.kill(cause)


def start_logger(
    log: Log, contract: str, queues: Sequence[str], server: str, concurrency: int
) -> Callable[[], None]:
    """Return what logs at the start of a worker what it waits for."""
    names = ", ".join(sorted(queues)) or "all queues"

    def start() -> None:
        text = "waiting for jobs of %s (%s) at %s, %d at a time"
        log.info(text, names, contract, server, concurrency)

    return start


def check_worker(
    op: str, *, source: Any, queue: str, name: str, handlers: Sequence[Any], numbers: Any
) -> None:
    """Raise what is wrong with the arguments of a worker. ``source`` is what it claims from, the
    class of that, and how a caller gets one."""
    problems = []
    given, wanted, call = source
    if not isinstance(given, wanted):
        problems.append(f"a {type(given).__name__} has no jobs for a worker: pass {call}")
    try:
        _wire.check_name("queue", queue)
        _wire.check_header("name", name)
    except ValueError as error:
        problems.append(str(error))
    for handler in handlers:
        problem = handler_problem(handler)
        if problem:
            problems.append(problem)
    for what, number in numbers.items():
        if number < 0:
            problems.append(f"{what} is too small")
    if problems:
        raise invalid(op, ", ".join(problems))


@dataclass
class _End:
    """A run that ends with success."""

    run: RelayRun
    uncertain: bool = False
    """Whether the answer of a batch with it was lost, which may have ended the run."""


class _RelaySource:
    """Claims the jobs of one Relay queue."""

    def __init__(
        self,
        relay: Relay,
        queue: str,
        name: str,
        handler: Handler,
        after_run: Optional[AfterRun],
    ) -> None:
        self.relay = relay
        self.handler = handler
        self.after_run = after_run
        self._queue = queue
        self._name = name
        self.completions: Batcher[_End] = Batcher(
            "relay complete", self._complete, self._complete_all
        )
        self.heartbeats: Batcher[RelayRun] = Batcher(
            "relay heartbeat", relay._heartbeat, self._heartbeat_all
        )

    def claim(self, ctx: Context, max_jobs: int, wait: float) -> List[_RelayLease]:
        jobs = self.relay._claim(ctx, self._queue, max_jobs, wait, self._name, single_try=True)
        return [_RelayLease(self, job) for job in jobs]

    def wait(self) -> None:
        self.completions.wait()
        self.heartbeats.wait()

    def _complete(self, ctx: Context, end: _End) -> None:
        """Complete a run in a request of its own. It raises RunLostError when the run is lost."""
        try:
            self.relay._complete(ctx, end.run)
        except RunLostError as error:
            error.uncertain = error.uncertain or end.uncertain
            raise

    def _complete_all(self, ctx: Context, ends: List[_End]) -> List[Optional[Exception]]:
        """Complete runs in one request."""
        try:
            with Context(ctx) as once:  # the entries go on one by one, so its failures do not count
                runs = [end.run for end in ends]
                known = self.relay._complete_all(once, runs, single_try=True)
        except Error as error:
            for end in ends:
                answered = error.status != 0 and error.retryable
                end.uncertain = end.uncertain or error.uncertain or answered
            raise _batch_failure(error)
        return [None if ok else run_lost("relay complete", 200) for ok in known]

    def _heartbeat_all(self, ctx: Context, runs: List[RelayRun]) -> List[Optional[Exception]]:
        """Send heartbeats in one request."""
        entries = [RelayHeartbeat(run.queue, run.id, run.run_id) for run in runs]
        try:
            known = self.relay._heartbeat_all(ctx, entries, single_try=True)
        except Error as error:
            raise _batch_failure(error)
        return [None if ok else run_lost("relay heartbeat", 404) for ok in known]


def _batch_failure(error: Error) -> SendSingly:
    """Decide what becomes of the entries of a batch that has failed. A batch is tried once, and its
    entries go on one by one, as if it had not been sent: that is right for every server and proxy,
    whatever its answer means. An answer that another batch would get too, such as 404 from a server
    that does not have the route, ends batches for a while."""
    if error.status and not error.retryable:
        return NoBatches()
    return SendSingly()


class _RelayLease:
    """One claimed job. Relay has no release."""

    can_release = False

    def __init__(self, source: _RelaySource, job: RelayJob) -> None:
        self._source = source
        self._job = job
        self._run = job.run()

    @property
    def timeout(self) -> float:
        return self._job.timeout

    @property
    def name(self) -> str:
        return f"job {self._job.id} of {self._job.queue}, run {self._job.run_id}"

    def handle(self, attempt: Attempt) -> None:
        check_result(self._source.handler(Run(self._job, attempt, self._source.relay)))

    def heartbeat(self, ctx: Context, state: Any) -> bool:
        # A state goes in a request of its own: a caller that stops waiting for a batch cannot take
        # its entry back, and a state must not arrive after a newer one.
        if state is not _wire.UNSET or not self._fits_batch():
            self._source.relay._heartbeat(ctx, self._run, state)
        else:
            self._source.heartbeats.send(ctx, self._run)
        return False

    def complete(self, ctx: Context) -> Optional[Exception]:
        if self._fits_batch():
            self._source.completions.send(ctx, _End(self._run))
        else:
            self._source.relay._complete(ctx, self._run)
        return None

    def report(self, ctx: Context, failure: BaseException, cause: Optional[BaseException]) -> None:
        # The lease goes on until it ends. A server that does not have the request gets no reason.
        run = self._run
        entry = RelayHeartbeat(
            run.queue,
            run.id,
            run.run_id,
            error=text_of(failure),
            error_type=type_of(failure, cause),
        )
        try:
            known = self._source.relay._heartbeat_all(ctx, [entry])
        except Error as refusal:
            if refusal.status not in (404, 405):
                raise
        else:
            if not known[0]:
                raise run_lost("relay heartbeat", 404)

    def release(self, ctx: Context) -> None:
        raise NotImplementedError

    def run_ended(self, reason: Optional[BaseException]) -> None:
        if self._source.after_run is not None:
            self._source.after_run(self._job, reason)

    def _fits_batch(self) -> bool:
        """Whether the names of the job are short enough to share a request."""
        names = self._job.queue + self._job.id
        return len(names.encode("utf-8", "replace")) <= MAX_BATCHED_BYTES
