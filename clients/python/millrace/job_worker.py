"""Workers of the jobs of all contracts but Relay.

A worker claims the jobs of one contract over the worker API and runs handlers for them::

    def load(run):
        return {"rows": copy(run.job.payload["table"])}

    worker = millrace.JobWorker(client.worker_api(), millrace.Contract.TASK_FLOW, {"etl": load})
    worker.run(handle_signals=True)

What a handler returns is the result of the job. When it raises, the attempt fails, and the job is
retried by its policy; with a :class:`JobError` that is final the job fails at once; with
:class:`Release` the job is released.
"""

from __future__ import annotations

import logging
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from . import _wire
from ._attempt import Attempt, HandlerRun
from ._batcher import MAX_BATCHED_BYTES, Batcher, NoBatches, SendSingly
from ._context import Context
from ._failure import text_of, truncate, type_of
from ._handler import check_result
from ._runner import Runner
from ._stop import Control, process_name
from .errors import (
    DrainTimeoutError,
    Error,
    InvalidError,
    JobError,
    Release,
    RunCanceledError,
    RunLostError,
    invalid,
)
from .worker import check_worker, start_logger
from .worker_api import ClaimedJob, Contract, JobFailure, RunOutcome, WorkerAPI

__all__ = ["AfterJobRun", "JobHandler", "JobMiddleware", "JobRun", "JobWorker"]



class JobRun(HandlerRun):
    """One run of a job, as its handler gets it. Its methods may be called by several threads. Once
    the run has ended they raise :class:`RunLostError` or :class:`RunFinishedError` and send
    nothing. For the test of a handler, make one of a job alone: ``JobRun(job)``.

    What a handler raises after a :class:`DrainTimeoutError` releases the job without counting a
    failure, unless it is final."""

    def __init__(
        self,
        job: ClaimedJob,
        attempt: Optional[Attempt] = None,
        api: Optional[WorkerAPI] = None,
    ) -> None:
        super().__init__(attempt)
        self.job = job
        """The job as it was claimed, with the state that an earlier run has stored."""
        self._api = api

    def set_state(self, state: Any) -> None:
        """Set a state, any JSON value, to be stored by the next heartbeat. It replaces a state that
        was not sent yet. The state is also stored when the handler fails. A state that the server
        refuses is logged and dropped.

        :raises InvalidError: if the state is not JSON.
        """
        self._attempt.stage(state)

    def save_state(self, state: Any) -> None:
        """Store a state at once, with a heartbeat of its own, and return when the server has it.
        After a retryable error the state is sent with the next heartbeat.

        :raises Error: as :meth:`WorkerAPI.heartbeat`.
        """
        self._attempt.save(state)

    def release(self) -> None:
        """Release the job and end the run, without counting an attempt where the contract allows
        that. The result of the handler is then ignored.

        :raises Error: as :meth:`WorkerAPI.release`, after which the run continues.
        """
        attempt, api = self._attempt, self._api

        def act(ctx: Context) -> None:
            assert api is not None
            api._release(ctx, self.job.run_id)

        attempt.finish(act)


JobHandler = Callable[[JobRun], Any]
"""Executes one run of a job. It is a plain function: an async one is refused. What it returns is
the result of the job: any JSON value, or ``None`` for none."""

JobMiddleware = Callable[[JobHandler], JobHandler]
"""Wraps a handler, for example to log or trace its runs."""

AfterJobRun = Callable[[ClaimedJob, Optional[BaseException]], Any]
"""Called for each run when nothing more will be sent about it, with the reason why the job was not
completed: ``None`` if it was, or was released by its handler. A result that the server refuses is a
reason."""


class JobWorker:
    """Claims the jobs of one contract over the worker API and runs handlers for them. A worker runs
    once.

    :param api: The worker API to claim jobs from.
    :param contract: The contract of the jobs, see :class:`Contract`.
    :param handlers: The handlers by queue, called with a :class:`JobRun` in a thread of its own.
        The worker claims jobs of these queues only. With a handler under ``""`` it claims jobs of
        all queues, and that handler gets those of the queues that have no other.
    :param name: Identifies the worker to the server. Empty means host name and process id.
    :param concurrency: Limits the handlers that run at once, and so the jobs that this worker has
        claimed.
    :param middleware: Wraps every handler; the first is the outermost.
    :param poll_wait: How many seconds the server may wait for a job before it answers that there
        is none, at most 30. With 0 the server answers at once.
    :param poll_interval: The least time between two polls that bring no job.
    :param max_heartbeat_interval: Limits the time between heartbeats, which is a third of the
        lease. Handlers learn from their heartbeats that their run was lost or is asked to end.
    :param drain_timeout: How many seconds handlers may continue after a stop. With 0 their contexts
        end at once.
    :param after_run: Called for each run when nothing more will be sent about it, see
        :data:`AfterJobRun`. Several threads call it.
    :param logger: Gets failures and lost runs and, at level debug, each job that was started and
        completed. ``None`` is ``logging.getLogger("millrace")``.
    :raises InvalidError: if an argument is wrong.
    """

    def __init__(
        self,
        api: WorkerAPI,
        contract: str,
        handlers: Mapping[str, JobHandler],
        *,
        name: str = "",
        concurrency: int = 1,
        middleware: Sequence[JobMiddleware] = (),
        poll_wait: float = 30.0,
        poll_interval: float = 1.0,
        max_heartbeat_interval: Optional[float] = None,
        drain_timeout: float = 25.0,
        after_run: Optional[AfterJobRun] = None,
        logger: Optional[logging.Logger] = None,
    ) -> None:
        if not handlers:
            raise invalid("job worker", "handlers are required")
        if contract == "relay":
            raise invalid("job worker", "jobs of Relay are claimed by a Worker")
        check_worker(
            "job worker",
            source=(api, WorkerAPI, "client.worker_api()"),
            queue=contract,
            name=name or process_name(),
            handlers=list(handlers.values()),
            numbers={
                "concurrency": concurrency - 1,
                "poll_wait": poll_wait,
                "poll_interval": poll_interval,
                "max_heartbeat_interval": max_heartbeat_interval or 0,
                "drain_timeout": drain_timeout,
            },
        )
        wrapped: Dict[str, JobHandler] = {}
        for queue, handler in handlers.items():
            for wrap in reversed(middleware):
                handler = wrap(handler)
            wrapped[queue] = handler
        log = logging.LoggerAdapter(logger or logging.getLogger("millrace"), {})
        source = _JobSource(api, contract, wrapped, name or process_name(), after_run)
        runner = Runner(
            source,
            concurrency=concurrency,
            poll_wait=min(poll_wait, 30.0),
            poll_pause=poll_interval,
            drain_timeout=drain_timeout,
            max_heartbeat_interval=max_heartbeat_interval,
            backoff=api._client._http.backoff,
            log=log,
        )
        self._control = Control(runner)
        queues = [] if "" in handlers else list(handlers)
        self._log_start = start_logger(
            log, contract, queues, api._client._http.address, concurrency
        )

    def run(self, *, handle_signals: bool = False) -> None:
        """Claim and execute jobs until :meth:`stop`, and drain then: stop polling and let running
        handlers finish under their heartbeats. After the drain timeout it ends their contexts,
        waits for them to return and releases their jobs. No thread is left when it returns. The
        poll that is under way at the stop may take half a second more, and its jobs are released;
        then it is cut off, and jobs that were claimed in that moment return when their leases
        expire.

        Each run gets a heartbeat at every third of its lease, which also stores the state that the
        handler has set meanwhile. A run is lost when the server says so, or when it has refused all
        heartbeats for a whole lease; nothing more is sent about it then. Time in which the server
        cannot be reached, or asks to try again, does not count: handlers go on, and an outcome is
        tried until the server gives a definite answer; after a stop, until 10 s after the drain
        timeout. Outcomes that are ready at about the same time share a request, as with
        :meth:`WorkerAPI.finish`, except those of Images.

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


class _JobSource:
    """Claims jobs over the worker API and finishes them."""

    def __init__(
        self,
        api: WorkerAPI,
        contract: str,
        handlers: Dict[str, JobHandler],
        name: str,
        after_run: Optional[AfterJobRun],
    ) -> None:
        self.api = api
        self.handlers = handlers
        self.after_run = after_run
        self._contract = contract
        self._name = name
        self._queues = [] if "" in handlers else sorted(handlers)
        self._outcomes: Batcher[RunOutcome] = Batcher(
            "worker finish", self._finish_one, self._finish_all
        )

    def claim(self, ctx: Context, max_jobs: int, wait: float) -> List[_JobLease]:
        jobs = self.api._claim(
            ctx, self._contract, self._queues, max_jobs, wait, self._name, single_try=True
        )
        return [_JobLease(self, job) for job in jobs]

    def wait(self) -> None:
        self._outcomes.wait()

    def finish(self, ctx: Context, outcome: RunOutcome) -> None:
        """Send the outcome of a run, together with others that are ready at the same time. A large
        outcome goes in a request of its own, and so does one of Images: the server checks the
        objects that a result names before it accepts it, which takes time that the outcomes of
        other runs should not wait."""
        if self._contract == Contract.IMAGES or _size(outcome) > MAX_BATCHED_BYTES:
            self._finish_one(ctx, outcome)
        else:
            self._outcomes.send(ctx, outcome)

    def _finish_one(self, ctx: Context, outcome: RunOutcome) -> None:
        """End a run in a request of its own."""
        if outcome.failure is not None:
            self.api._fail(ctx, outcome.run_id, outcome.failure)
        elif outcome.released:
            self.api._release(ctx, outcome.run_id)
        else:
            self.api._complete(ctx, outcome.run_id, outcome.result)

    def _finish_all(
        self, ctx: Context, outcomes: List[RunOutcome]
    ) -> List[Optional[Exception]]:
        """End runs in one request. Where the server has refused all of it, each is sent again
        alone: after an InvalidError to learn which one is wrong, and after another refusal, such as
        404 from a server that does not have the route, because later batches would get it too."""
        try:
            return [result.error for result in self.api._finish(ctx, outcomes)]
        except InvalidError:
            raise SendSingly()
        except Error as error:
            if 0 < error.status < 500 and not error.retryable:
                raise NoBatches()
            raise


class _JobLease:
    """One claimed job."""

    can_release = True

    def __init__(self, source: _JobSource, job: ClaimedJob) -> None:
        self._source = source
        self._job = job
        self._result: Any = None  # JSON, once the handler has succeeded

    @property
    def timeout(self) -> float:
        return self._job.lease

    @property
    def name(self) -> str:
        job = self._job
        return f"job {job.id} of {job.contract} {job.queue}, run {job.run_id}"

    def handle(self, attempt: Attempt) -> None:
        """Call the handler of the job's queue. ForgeRun has a state for a claimed job that was not
        started yet, so its runs are started first."""
        handlers = self._source.handlers
        handler = handlers.get(self._job.queue) or handlers.get("")
        if handler is None:
            raise Release(f"no handler for queue {self._job.queue!r}")
        if self._job.contract == Contract.FORGE_RUN:
            try:
                attempt.start(lambda ctx: self._post_start(ctx))
            except Error as error:
                raise Release("not started") from error
        result = handler(JobRun(self._job, attempt, self._source.api))
        check_result(result)
        if result is None:
            return
        try:
            self._result = _wire.RawJSON(_wire.encode(result, "the handler's result"))
        except ValueError as error:
            raise JobError(str(error), error_type="result", final=True) from None

    def _post_start(self, ctx: Context) -> None:
        self._source.api._post(ctx, "worker start", self._job.run_id, "start", b"{}")

    def heartbeat(self, ctx: Context, state: Any) -> bool:
        return self._source.api._heartbeat(ctx, self._job.run_id, state).cancel

    def complete(self, ctx: Context) -> Optional[Exception]:
        """Send the result. A result that the server refuses becomes a failure. It is final, because
        the result of another run would have the same form, except in Images: that also refuses a
        result whose objects it does not find, and another run may store them."""
        try:
            self._source.finish(ctx, RunOutcome(self._job.run_id, self._result))
            return None
        except InvalidError as refused:
            failure = JobFailure(
                truncate(f"result refused: {refused}"),
                "result",
                retryable=self._job.contract == Contract.IMAGES,
            )
            self._source.finish(ctx, RunOutcome(self._job.run_id, failure=failure))
            return refused

    def release(self, ctx: Context) -> None:
        self._source.finish(ctx, RunOutcome(self._job.run_id, released=True))

    def report(self, ctx: Context, failure: BaseException, cause: Optional[BaseException]) -> None:
        """Release a job whose handler was stopped by the drain of the worker or raised Release, and
        report every other failure."""
        final = isinstance(failure, JobError) and failure.final
        drained = isinstance(cause, DrainTimeoutError)
        if (drained or isinstance(failure, Release)) and not final:
            return self.release(ctx)
        canceled = isinstance(cause, RunCanceledError)
        report = JobFailure(text_of(failure), type_of(failure, cause), retryable=not final)
        try:
            self._report(ctx, report)
        except RunLostError:
            if not canceled:  # else the server had ended the run when it asked for that
                raise

    def _report(self, ctx: Context, report: JobFailure) -> None:
        try:
            self._source.finish(ctx, RunOutcome(self._job.run_id, failure=report))
        except InvalidError:
            # The type is the handler's own text. If the server refuses it, the failure counts
            # without it.
            report = JobFailure(report.error, retryable=report.retryable)
            self._source.finish(ctx, RunOutcome(self._job.run_id, failure=report))

    def run_ended(self, reason: Optional[BaseException]) -> None:
        if self._source.after_run is not None:
            self._source.after_run(self._job, reason)


def _size(outcome: RunOutcome) -> int:
    """Return about how many bytes the outcome has on the wire."""
    if outcome.failure is not None:
        return len(outcome.failure.error.encode("utf-8")) + len(outcome.failure.error_type)
    return len(outcome.result.text) if isinstance(outcome.result, _wire.RawJSON) else 0
