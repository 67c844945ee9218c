"""Claims jobs from a source and runs a handler for each. It knows nothing of the contract behind
the source.

One runner is one poll loop and, per claimed job, two threads::

    poll ──▶ source.claim ──▶ process ──▶ handler
     ▲                           │  └───── heartbeats, until the handler has returned
     └── a slot is free ◀────────┴──────── complete, report or release the run

A slot is reserved before a job is claimed for it, so no claimed job waits for a handler.
"""

from __future__ import annotations

import functools
import threading
import time
from typing import Callable, List, Optional, Protocol, Sequence

from ._attempt import FINISH_GRACE, Attempt, Lease
from ._context import Context, ended_after
from ._http import MAX_RETRY_AFTER, Backoff
from ._outage import Log, ServerOutage
from .errors import DrainTimeoutError, Error, Release, RunLostError
from .relay import Drained

POLL_GRACE = 0.5
"""How many seconds the poll that is under way when the worker stops may still take: jobs in an
answer that is cut off have no worker until their leases expire."""


class Source(Protocol):
    """Claims jobs."""

    def claim(self, ctx: Context, max_jobs: int, wait: float) -> Sequence[Lease]:
        """Lease up to ``max_jobs`` jobs and wait up to ``wait`` seconds for the first one. None is
        no error. It makes one try, because the runner has its own backoff. It raises Drained where
        the worker gets no further jobs."""

    def wait(self) -> None:
        """Wait until no request is under way, after the last run has ended."""


class Slots:
    """Limits how many handlers run at once."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._free = count
        self._changed = threading.Condition()

    def reserve(self, ctx: Context) -> int:
        """Wait for a free slot and take all that are free. It takes none once the context has
        ended."""
        forget = ctx.on_end(self._wake)
        with self._changed:
            self._changed.wait_for(lambda: self._free > 0 or ctx.ended)
            reserved = 0 if ctx.ended else self._free
            self._free -= reserved
        forget()
        return reserved

    def release(self, count: int) -> None:
        """Give slots back."""
        with self._changed:
            self._free += count
            self._changed.notify_all()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


class Threads:
    """Threads that are waited for together."""

    def __init__(self) -> None:
        self._running = 0
        self._changed = threading.Condition()

    def start(self, work: Callable[[], None], name: str) -> None:
        """Do some work in a thread of its own."""
        with self._changed:
            threading.Thread(target=self._do, args=(work,), name=name, daemon=True).start()
            self._running += 1  # before the thread can take the lock

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def any_left(self) -> bool:
        """Return whether one of them still runs."""
        with self._changed:
            return self._running > 0

    def wait(self, ctx: Context, timeout: Optional[float] = None) -> bool:
        """Wait until all of them have ended, or the context has ended, and return whether they
        have."""
        forget = ctx.on_end(self._wake)
        with self._changed:
            self._changed.wait_for(lambda: self._running == 0 or ctx.ended, timeout)
            over = self._running == 0
        forget()
        return over

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


class Runner:
    """See the text of the module. It is used once."""

    def __init__(
        self,
        source: Source,
        *,
        concurrency: int,
        poll_wait: float,
        poll_pause: float,
        drain_timeout: float,
        max_heartbeat_interval: Optional[float],
        backoff: Backoff,
        log: Log,
    ) -> None:
        self._source = source
        self._slots = Slots(concurrency)
        self._poll_wait = poll_wait
        self._poll_pause = poll_pause
        self._drain_timeout = drain_timeout
        self._max_heartbeat_interval = max_heartbeat_interval
        self._backoff = backoff
        self._log = log
        self._outage = ServerOutage(log)
        self._handlers = Threads()
        self.polling = Context()
        """Its end stops the runner."""
        self._killed = Context()
        self._cut_off = False  # whether handlers were running when their contexts were ended

    def run(self) -> None:
        """Claim and execute jobs until ``polling`` ends, and drain then. No thread is left when it
        returns.

        :raises DrainTimeoutError: when the contexts of some handlers had to be ended.
        """
        try:
            if self._poll():
                self._log.info("drained by an operator: no new jobs; running handlers may finish")
                self._handlers.wait(self.polling)
            self._drain()
        finally:
            self._source.wait()

    def kill(self, cause: DrainTimeoutError) -> None:
        """End the contexts of all handlers."""
        self._cut_off = self._cut_off or self._handlers.any_left()
        self._killed.cancel(cause)

    def _poll(self) -> bool:
        """Claim a job for every free slot, again and again, until ``polling`` ends or the worker
        is drained, which it returns."""
        failures = 0
        while True:
            free = self._slots.reserve(self.polling)
            if free == 0:
                return False
            # The pause begins before the claim: a claim that waited in the server has paused long
            # enough, a claim that was answered at once has not.
            began = time.monotonic()
            leases: Sequence[Lease] = ()
            try:
                # After a failure the answer shows at once that the outage has ended.
                leases = self._claim(free, 0.0 if failures else self._poll_wait)
            except Drained:
                self._outage.poll_succeeded()
                return True
            except Error as error:
                if self.polling.ended:
                    return False
                failures += 1
                self._outage.poll_failed(error)
                retry_after = min(error.retry_after, MAX_RETRY_AFTER)
                self.polling.wait(self._backoff.delay(failures, retry_after))
            else:
                failures = 0
                if not leases:
                    self.polling.wait(began + self._poll_pause - time.monotonic())
            finally:
                self._slots.release(free - len(leases))

    def _claim(self, free: int, wait: float) -> List[Lease]:
        """Claim jobs and start their handlers."""
        with ended_after(self.polling, POLL_GRACE) as ctx:
            leases = list(self._source.claim(ctx, free, wait))
        # The server has answered before the handlers of these jobs start: an outcome it refuses
        # may come at once, and begins an outage that this poll does not end.
        self._outage.poll_succeeded()
        if len(leases) > free:
            self._log.error(
                "the server sent %d jobs more than were asked for; they will time out",
                len(leases) - free,
            )
            leases = leases[:free]
        after_stop = self.polling.ended
        for lease in leases:
            self._start(lease, after_stop)
        return leases

    def _start(self, lease: Lease, after_stop: bool) -> None:
        work = functools.partial(self._process, lease, after_stop)
        try:
            self._handlers.start(work, f"millrace {lease.name}")
        except RuntimeError as error:  # the system has no further thread
            self._log.error("%s: not executed; its lease has to expire: %s", lease.name, error)
            lease.run_ended(error)
            self._slots.release(1)

    def _drain(self) -> None:
        """Wait for the handlers, and end their contexts when the drain timeout has passed, unless
        they are ended before. It waits for a handler that ignores its context too: that handler
        still has a lease, which its heartbeats extend."""
        if not self._handlers.wait(self._killed, self._drain_timeout) and not self._killed.ended:
            self._log.warning(
                "handlers did not finish within %g s; ending their contexts", self._drain_timeout
            )
            self.kill(DrainTimeoutError("the drain timeout has passed"))
        self._handlers.wait(Context())
        if self._cut_off:
            raise DrainTimeoutError("handlers did not finish in time")

    def _process(self, lease: Lease, after_stop: bool) -> None:
        """Run the handler of one job, from the claim to the outcome. A job that arrived after the
        stop is released where the contract allows that, else it is executed in the time left."""
        outcome: Optional[BaseException] = None
        try:
            with Context(self._killed) as ctx:
                attempt = Attempt(lease, ctx, self._killed, self._outage, self._log)
                if after_stop and lease.can_release:
                    outcome = Release("arrived after the stop")
                    self._release(attempt)
                else:
                    outcome = self._execute(attempt)
                attempt.close()
        finally:
            try:
                lease.run_ended(outcome)
            except Exception:
                self._log.exception("after_run failed")
            self._slots.release(1)

    def _release(self, attempt: Attempt) -> None:
        try:
            attempt.finish(attempt.lease.release)
        except Error as error:
            what = "a job that arrived after the stop was not released; its lease has to expire"
            _log_unfinished(attempt, what, error)

    def _execute(self, attempt: Attempt) -> Optional[BaseException]:
        """Call the handler under heartbeats, and send the outcome."""
        attempt.log.debug("job started")
        handling = Context()
        heartbeats = threading.Thread(
            target=attempt.keep_alive,
            args=(handling, self._max_heartbeat_interval),
            name=f"millrace heartbeats of {attempt.lease.name}",
            daemon=True,
        )
        heartbeats.start()
        failure: Optional[BaseException] = None
        try:
            attempt.lease.handle(attempt)
        except BaseException as error:  # SystemExit in a handler is its failure, too
            failure = error
        cause = attempt.ctx.cause
        handling.cancel()
        heartbeats.join()
        return self._finish(attempt, failure, cause)

    def _finish(
        self,
        attempt: Attempt,
        failure: Optional[BaseException],
        cause: Optional[BaseException],
    ) -> Optional[BaseException]:
        """Send the outcome of a run, and return why the job was not completed; None if it was, or
        was requeued or released by the handler. ``cause`` is why the handler's context had ended,
        else None. Nothing is sent about a run that was lost or has finished."""
        end = attempt.end()
        if isinstance(end, RunLostError):
            attempt.log.warning("run lost; its outcome is dropped: %s (%s)", end, failure)
            return end
        if end is not None and failure is not None:
            attempt.log.error("handler failed after the end of its run", exc_info=failure)
            return failure
        if end is not None:
            attempt.log.debug("job requeued or released")
            return None
        if failure is not None:
            self._fail(attempt, failure, cause)
            return failure
        return self._complete(attempt)

    def _complete(self, attempt: Attempt) -> Optional[BaseException]:
        """Send the success of a run, and return why the job was not completed."""
        try:
            refused = attempt.finish(attempt.lease.complete)
        except Exception as error:
            what = "job done but not completed; the run ends with its lease"
            _log_unfinished(attempt, what, error)
            return error
        if isinstance(refused, Exception):
            attempt.log.warning("the server refused the result; the run has failed: %s", refused)
            return refused
        attempt.log.debug("job completed after %.3f s", time.monotonic() - attempt.started)
        return None

    def _fail(
        self, attempt: Attempt, failure: BaseException, cause: Optional[BaseException]
    ) -> None:
        """Report the failure of a handler. A staged state is sent first, for the next run to
        continue from."""
        rest = "" if attempt.lease.can_release else "; the run ends with its lease"
        attempt.log.error("handler failed%s", rest, exc_info=failure)
        self._send_staged_state(attempt)
        try:
            attempt.finish(lambda ctx: attempt.lease.report(ctx, failure, cause))
        except Exception as error:
            what = "failure not reported; the run ends with its lease"
            _log_unfinished(attempt, what, error)

    def _send_staged_state(self, attempt: Attempt) -> None:
        """Send the state that waits for a heartbeat."""
        if not attempt.has_staged():
            return
        try:
            with Context(timeout=FINISH_GRACE) as ctx:
                attempt.heartbeat(ctx)
        except Error as error:
            attempt.log.warning("last state not stored: %s", error)


def _log_unfinished(attempt: Attempt, what: str, error: Exception) -> None:
    """Log that an outcome was not accepted, or may have been with a lost answer."""
    if not isinstance(error, RunLostError):
        attempt.log.error("%s: %s", what, error)
    elif error.uncertain:
        attempt.log.warning(
            "an answer was lost and the run has ended; its outcome was probably accepted: %s",
            error,
        )
    else:
        attempt.log.warning("run lost; its outcome is dropped: %s", error)
