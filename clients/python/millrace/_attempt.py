"""One run of a job in this process."""

from __future__ import annotations

import math
import threading
import time
from contextlib import contextmanager
from typing import Any, Callable, Iterator, Optional, Protocol, Tuple

from . import _wire
from ._context import Context, ended_after
from ._http import ended_error
from ._outage import Log, RunLog, ServerOutage
from .errors import Error, InvalidError, RunCanceledError, RunFinishedError, RunLostError, invalid

ZERO_LEASE_HEARTBEAT = 1.0
"""The heartbeat interval of a run with timeout 0. Its lease cannot be extended, but the answer to a
heartbeat shows when the run is lost."""

HEARTBEAT_TIMEOUT = 1.0
"""The least time that one heartbeat gets, however short its interval is, so that a slow server can
still answer."""

FINISH_GRACE = 10.0
"""How long the outcome of a run is still tried after the worker has ended the contexts of its
handlers."""


class Lease(Protocol):
    """One claimed job, under the run id of its claim. It is all that a runner needs of a
    contract."""

    @property
    def timeout(self) -> float:
        """How many seconds the lease lasts after the claim and after each heartbeat; 0 means that
        heartbeats cannot extend it."""

    @property
    def name(self) -> str:
        """Identifies the run in the log."""

    def handle(self, attempt: Attempt) -> None:
        """Call the handler."""

    def heartbeat(self, ctx: Context, state: Any) -> bool:
        """Extend the lease and store the state unless that is UNSET. It fails with RunLostError
        when the lease has ended, and returns whether the server asks the run to end although it
        still has its lease."""

    def complete(self, ctx: Context) -> Optional[Exception]:
        """End the lease with success. A result that the server refuses ends it with a failure, and
        the refusal is returned. It may be called again after an error."""

    def report(self, ctx: Context, failure: BaseException, cause: Optional[BaseException]) -> None:
        """Report why a handler failed. ``cause`` is why its context had ended before the handler
        returned, else None. The lease ends by it, unless :attr:`can_release` is false. It may be
        called again after an error."""

    def release(self, ctx: Context) -> None:
        """Give the job back without an attempt counted. It may be called again after an error."""

    @property
    def can_release(self) -> bool:
        """Whether the contract has releases. Without them a failed job returns when its lease
        expires."""

    def run_ended(self, reason: Optional[BaseException]) -> None:
        """Take note that nothing more will be sent about the run, with the reason why the job was
        not completed; None if it was, or was requeued or released by the handler."""


def is_definite(error: BaseException) -> bool:
    """Whether the error of a request is an answer that another try would get too. No answer and a
    retryable one are not: they say nothing about the run."""
    return isinstance(error, Error) and error.status != 0 and not error.retryable


class Attempt:
    """Keeps the lease of a run alive while its handler works, and makes sure that nothing is sent
    about the run after it was lost or finished::

                    run lost, or definite refusals for a whole lease
        running ──────────────────────────────────────────────────────────▶ lost
            │
            └── completed, failed, requeued, released, handler returned ──▶ finished

    Heartbeats come from a thread of their own, and the handler may save a state or requeue its job
    at any time. ``_requests`` lets one request at a time through: a heartbeat that reached the
    server after the completion would be answered as if the run were lost.
    """

    def __init__(self, lease: Lease, ctx: Context, killed: Context, outage: ServerOutage, log: Log):
        self.lease = lease
        self.ctx = ctx
        """The context of the handler."""
        self.log = RunLog(log, lease.name)
        self.started = time.monotonic()
        self._killed = killed  # ends when the worker ends the contexts of all handlers
        self._outage = outage
        self._requests = threading.Lock()
        self._lock = threading.Lock()
        self._loss: Optional[Error] = None
        self._finished = False
        self._staged: Any = _wire.UNSET

    def end(self) -> Optional[Error]:
        """Return why nothing more can be sent about the run; None while it is running."""
        with self._lock:
            return self._end()

    def _end(self) -> Optional[Error]:
        if self._loss is not None:
            return self._loss
        return RunFinishedError("run", message="it has ended already") if self._finished else None

    def stage(self, state: Any) -> None:
        """Keep a state for the next heartbeat, in place of one that was not sent yet."""
        try:
            encoded = _wire.RawJSON(_wire.encode(state, "state"))
        except ValueError as error:
            raise invalid("set state", error)
        with self._lock:
            end = self._end()
            if end is not None:
                raise end
            self._staged = encoded

    def has_staged(self) -> bool:
        """Whether a state waits for the next heartbeat."""
        with self._lock:
            return self._staged is not _wire.UNSET

    def mark_lost(self, loss: Error) -> None:
        """End a running attempt and its handler's context."""
        with self._lock:
            if self._end() is not None:
                return
            self._loss = loss
        self.ctx.cancel(loss)

    def close(self) -> None:
        """End a running attempt whose handler has returned and whose outcome was not accepted."""
        with self._lock:
            self._finished = True

    @contextmanager
    def _request(self, ctx: Context, op: str) -> Iterator[None]:
        """Let one request about the run through, after those before it. It lets none through when
        the attempt has ended. A request that fails with RunLostError ends the attempt."""
        while not self._requests.acquire(timeout=0.05):
            if ctx.ended:
                raise ended_error(ctx, op, Error(op))
        try:
            end = self.end()
            if end is not None:
                raise end
            yield
        except RunLostError as error:
            self.mark_lost(error)
            raise
        finally:
            self._requests.release()

    def start(self, call: Callable[[Context], None]) -> None:
        """Send a request that begins the work on the job."""
        with self._request(self.ctx, "start"):
            call(self.ctx)

    def heartbeat(self, ctx: Context) -> None:
        """Extend the lease and send the staged state with it."""
        with self._request(ctx, "heartbeat"):
            self._send_heartbeat(ctx)

    def save(self, state: Any) -> None:
        """Stage a state and send it at once, so that the result is the server's answer to this
        very state."""
        with self._request(self.ctx, "save state"):
            self.stage(state)
            self._send_heartbeat(self.ctx)

    def _send_heartbeat(self, ctx: Context) -> None:
        """Send one heartbeat. A state that the server refuses is dropped, because it would make
        every further heartbeat fail."""
        with self._lock:
            staged = self._staged
        try:
            if self.lease.heartbeat(ctx, staged):
                self.ctx.cancel(RunCanceledError("the server asks the run to end"))
        except InvalidError:
            self._unstage(staged)
            raise
        self._unstage(staged)

    def _unstage(self, state: Any) -> None:
        """Drop a state that was sent, unless a newer one was staged meanwhile."""
        with self._lock:
            if self._staged is state:
                self._staged = _wire.UNSET

    def finish(self, act: Callable[[Context], Any]) -> Any:
        """End the run by ``act``, unless the attempt has ended already. It is tried until the
        server gives a definite answer, and for a grace after a kill of the handlers."""
        ctx = ended_after(self._killed, FINISH_GRACE, outage=self._outage)
        with ctx, self._request(ctx, "finish"):
            try:
                result = act(ctx)
            except Error as error:
                if is_definite(error):
                    self._outage.outcome_answered()
                raise
            self._outage.outcome_answered()
            with self._lock:
                self._finished = True
            return result

    def finish_with(self, end: Callable[[], Any]) -> None:
        """End the run by ``end``, which sends no request about it, unless the attempt has ended
        already. Heartbeats wait meanwhile."""
        with self._request(self.ctx, "finish with"):
            end()
            with self._lock:
                self._finished = True

    def keep_alive(self, ctx: Context, max_interval: Optional[float]) -> None:
        """Send heartbeats until the context or the attempt ends.

        When the server has definitely refused all of them for a whole lease, such as for a wrong
        token, another worker may have the job by now: the run is marked lost. Heartbeats without a
        definite answer do not count, because a server that is unavailable gives no job to another
        worker.
        """
        interval, allowed = heartbeat_schedule(self.lease.timeout, max_interval)
        missed = refused = 0  # in a row
        due = time.monotonic() + interval
        while not ctx.wait(due - time.monotonic()) and self.end() is None:
            due = max(due + interval, time.monotonic())
            try:
                self._heartbeat_within(ctx, max(interval, HEARTBEAT_TIMEOUT))
            except RunLostError:
                self._outage.heartbeat_answered(missed)
                return
            except Error as error:
                if ctx.ended or self.end() is not None:
                    break
                missed += 1
                self._outage.heartbeat_failed(missed, error)
                refused += is_definite(error)
                if 0 < allowed <= refused:
                    message = "none was accepted within the lease"
                    self.mark_lost(RunLostError("heartbeat", message=message, cause=error))
                    break
                continue
            self._outage.heartbeat_answered(missed)
            missed = refused = 0
        self._outage.run_ended(missed)

    def _heartbeat_within(self, ctx: Context, bound: float) -> None:
        """Send a heartbeat, and a second one without the state if the state is refused."""
        had_state = self.has_staged()
        with Context(ctx, timeout=bound) as bounded:
            try:
                self.heartbeat(bounded)
            except InvalidError as error:
                if not had_state:
                    raise
                self.log.error("state refused and dropped: %s", error)
                self.heartbeat(bounded)


def heartbeat_schedule(timeout: float, max_interval: Optional[float]) -> Tuple[float, int]:
    """Return the seconds between heartbeats, a third of the lease and at most ``max_interval``,
    and how many of them may be refused in a row before a whole lease has passed; 0 means any
    number."""
    if timeout <= 0:
        return min(ZERO_LEASE_HEARTBEAT, max_interval or ZERO_LEASE_HEARTBEAT), 0
    interval = timeout / 3
    if not max_interval or max_interval >= interval:
        return interval, 3
    return max_interval, math.ceil(timeout / max_interval)


class HandlerRun:
    """What the run of a job offers its handler, whoever has claimed it."""

    def __init__(self, attempt: Optional[Attempt]) -> None:
        self._claimed = attempt
        self._ctx = Context() if attempt is None else attempt.ctx

    @property
    def _attempt(self) -> Attempt:
        """The run in this process. One that was made by hand, as in the test of a handler, has
        none."""
        if self._claimed is None:
            raise invalid("run", "not claimed by a worker")
        return self._claimed

    @property
    def ended(self) -> bool:
        """Whether the handler should end: see :attr:`cause`."""
        return self._ctx.ended

    @property
    def cause(self) -> Optional[BaseException]:
        """Why the handler should end: a :class:`RunLostError` when another worker may have the
        job, so that what the handler does is ignored; a :class:`RunCanceledError` when the server
        asks the run to end, which still has its lease; a :class:`DrainTimeoutError` when the worker
        has to end; ``None`` otherwise."""
        return self._ctx.cause

    def finish_with(self, end: Callable[[], Any]) -> None:
        """End the run by something else than a request of the worker: by a transaction of the
        handler's own, which records the end of the run with ``millrace.complete`` or
        ``millrace.fail``. ``end`` does that and commits. The worker sends nothing about the run
        while ``end`` runs, so that should be short against the lease, and nothing after ``end`` has
        returned: the result of the handler is then ignored.

        What ``end`` raises is raised here, and the run continues; with :class:`RunLostError` it is
        lost.

        :raises RunLostError: if the run was lost before; ``end`` is not called then.
        :raises RunFinishedError: if the run has ended before; ``end`` is not called then.
        """
        self._attempt.finish_with(end)

    def wait(self, seconds: float) -> bool:
        """Pause, but no longer than until the handler should end, and return :attr:`ended`. Use it
        in the place of :func:`time.sleep`."""
        return self._ctx.wait(seconds)

    def check(self) -> None:
        """Raise :attr:`cause` if the handler should end."""
        cause = self.cause
        if cause is not None:
            raise cause
