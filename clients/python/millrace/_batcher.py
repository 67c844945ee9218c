"""Entries about runs that share a request."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Callable, Generic, List, Optional, Tuple, TypeVar

from ._context import Context
from ._http import ended_error
from .errors import Error

T = TypeVar("T")

MAX_SENDERS = 4
"""The most requests under way. It is more than one, so that a request that hangs does not delay
every other entry."""

MAX_BATCH_ENTRIES = 1000
"""The most entries in a request."""

MAX_BATCHED_BYTES = 2 << 10
"""The size up to which an entry should share a request: a thousand of them stay below the limit of
the request, and none delays the others."""

NO_BATCHES_PAUSE = 600.0
"""How many seconds nothing is batched after the server took no batch. It bounds what a server
without batches is asked in vain, and ends so that one that is upgraded gets them."""


class SendSingly(Exception):
    """Each entry must go in a request of its own."""


class NoBatches(SendSingly):
    """The server takes no batches, so that later entries must go singly too."""


@dataclass
class _Pending(Generic[T]):
    """An entry that waits for its request."""

    ctx: Context
    entry: T
    wake: threading.Event
    answered: bool = False
    failure: Optional[Exception] = None

    def answer(self, failure: Optional[Exception]) -> None:
        """Give the caller what its entry has failed with; None if it has not."""
        self.failure, self.answered = failure, True
        self.wake.set()


class Batcher(Generic[T]):
    """Sends entries about runs, such as their outcomes, several in one request where that costs no
    time. An entry is sent at once while fewer than ``MAX_SENDERS`` requests are under way. Those
    that come while all senders are busy wait and go together with the next request::

        send ──▶ pending ──▶ sender 1 … MAX_SENDERS ──▶ one entry: send_one
                                                    └─▶ several:   send_all

    So a worker with many short jobs makes few requests, and a single entry waits for no other.

    ``send_all`` returns what each entry has failed with, None for those that have not. It raises
    what all of them have failed with; after :class:`SendSingly` each is sent by ``send_one``.
    """

    def __init__(
        self,
        op: str,
        send_one: Callable[[Context, T], None],
        send_all: Callable[[Context, List[T]], List[Optional[Exception]]],
    ) -> None:
        self._op = op
        self._send_one = send_one
        self._send_all = send_all
        self._lock = threading.Condition()
        self._senders = 0
        self._pending: List[_Pending[T]] = []
        self._single_until = 0.0

    def send(self, ctx: Context, entry: T) -> None:
        """Send an entry, together with others that come at the same time. It raises what
        ``send_one`` raises."""
        pending: _Pending[T] = _Pending(ctx, entry, threading.Event())
        with self._lock:
            single = time.monotonic() < self._single_until
            if not single:
                self._pending.append(pending)
                if self._senders < MAX_SENDERS:
                    threading.Thread(target=self._work, daemon=True).start()
                    self._senders += 1  # before the thread can take the lock
        if not single:
            try:
                return self._await(pending)
            except SendSingly:
                pass
        self._send_one(ctx, entry)

    def wait(self) -> None:
        """Wait until no request is under way, after the last caller of send."""
        with self._lock:
            self._lock.wait_for(lambda: self._senders == 0)

    def _await(self, pending: _Pending[T]) -> None:
        """Wait for the answer to an entry, or for the end of its context."""
        forget = pending.ctx.on_end(pending.wake.set)
        left = pending.ctx.deadline - time.monotonic()
        pending.wake.wait(min(left, 86400.0))
        forget()
        if not pending.answered:
            raise ended_error(pending.ctx, self._op, Error(self._op, uncertain=True))
        if pending.failure is not None:
            raise pending.failure

    def _work(self) -> None:
        """Make requests until no entry is pending."""
        while True:
            batch, single = self._next()
            if not batch:
                return
            if single:
                _answer(batch, SendSingly())
            elif len(batch) == 1:
                self._send_alone(batch[0])
            else:
                self._send_batch(batch)

    def _next(self) -> Tuple[List[_Pending[T]], bool]:
        """Take the entries of the next request. Those whose callers wait no longer are dropped.
        Entries that came before the server was found to take no batches go singly."""
        with self._lock:
            waiting = [p for p in self._pending if not p.ctx.ended]
            batch, self._pending = waiting[:MAX_BATCH_ENTRIES], waiting[MAX_BATCH_ENTRIES:]
            if not batch:
                self._senders -= 1
                self._lock.notify_all()
            return batch, time.monotonic() < self._single_until

    def _send_alone(self, pending: _Pending[T]) -> None:
        try:
            self._send_one(pending.ctx, pending.entry)
        except Exception as error:
            pending.answer(error)
        else:
            pending.answer(None)

    def _send_batch(self, batch: List[_Pending[T]]) -> None:
        """Send entries in one request. It is tried until the contexts of all their callers have
        ended: a late answer does no harm to the callers that no longer wait."""
        ctx = Context(outage=batch[0].ctx.outage)
        left = _Countdown(len(batch), ctx)
        forget = [pending.ctx.on_end(left.step) for pending in batch]
        try:
            failures = self._send_all(ctx, [pending.entry for pending in batch])
        except NoBatches as error:
            with self._lock:
                self._single_until = time.monotonic() + NO_BATCHES_PAUSE
            _answer(batch, error)
        except Exception as error:
            _answer(batch, error)
        else:
            for pending, failure in zip(batch, failures):
                pending.answer(failure)
        finally:
            for call in forget:
                call()


class _Countdown:
    """Ends a context after so many steps."""

    def __init__(self, steps: int, ctx: Context) -> None:
        self._steps = steps
        self._ctx = ctx
        self._lock = threading.Lock()

    def step(self) -> None:
        with self._lock:
            self._steps -= 1
            over = self._steps == 0
        if over:
            self._ctx.cancel()


def _answer(batch: List[_Pending[T]], failure: Exception) -> None:
    """Give each caller of a batch the same failure."""
    for pending in batch:
        pending.answer(failure)
