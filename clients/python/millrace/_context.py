"""Contexts: how the end of a caller's work reaches the requests that are under way."""

from __future__ import annotations

import math
import threading
import time
from types import TracebackType
from typing import Any, Callable, Dict, Optional, Type


class DeadlinePassed(TimeoutError):
    """The cause of the end of a context whose timeout has passed."""

    def __str__(self) -> str:
        return "the timeout has passed"


class Context:
    """Ends when it is canceled, when its timeout has passed, or when its parent ends.

    The end wakes those who :meth:`wait`, and calls what :meth:`on_end` was given. A context that
    has a parent must be closed, as it is by a ``with`` statement.
    """

    def __init__(
        self,
        parent: Optional[Context] = None,
        *,
        timeout: Optional[float] = None,
        outage: Any = None,
    ) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._cause: Optional[BaseException] = None
        self._callbacks: Dict[int, Callable[[], None]] = {}
        self._next = 0
        self._detach: Callable[[], None] = lambda: None
        self.deadline = math.inf
        """When the context ends, on the monotonic clock."""
        self.outage = outage
        """Where the failures of requests that report the outcome of a run are counted. With it
        such requests are tried until the server gives a definite answer."""
        if timeout is not None:
            self.deadline = time.monotonic() + timeout
        if parent is not None:
            self.deadline = min(self.deadline, parent.deadline)
            above = parent
            self._detach = parent.on_end(lambda: self.cancel(above.cause))

    def __enter__(self) -> Context:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the parent forget this context."""
        self._detach()

    def cancel(self, cause: Optional[BaseException] = None) -> None:
        """End the context. Only the first cause counts."""
        with self._lock:
            if self._cause is not None:
                return
            self._cause = cause if cause is not None else Canceled()
            callbacks = list(self._callbacks.values())
            self._callbacks.clear()
        self._event.set()
        for call in callbacks:
            call()

    @property
    def cause(self) -> Optional[BaseException]:
        """Why the context has ended; ``None`` while it has not."""
        if self._cause is None and time.monotonic() >= self.deadline:
            return DeadlinePassed()
        return self._cause

    @property
    def ended(self) -> bool:
        """Whether the context has ended."""
        return self.cause is not None

    def wait(self, timeout: float) -> bool:
        """Pause for ``timeout`` seconds, or until the context has ended, which it returns."""
        left = self.deadline - time.monotonic()
        # A day is long enough, and threads cannot wait for as long as they please.
        self._event.wait(max(0.0, min(timeout, left, 86400.0)))
        return self.ended

    def on_end(self, call: Callable[[], None]) -> Callable[[], None]:
        """Have ``call`` called when the context is canceled, at once if it was. A timeout that
        passes does not call it. The returned function takes that back."""
        with self._lock:
            if self._cause is None:
                self._next += 1
                key = self._next
                self._callbacks[key] = call
                return lambda: self._forget(key)
        call()
        return lambda: None

    def _forget(self, key: int) -> None:
        with self._lock:
            self._callbacks.pop(key, None)


class Canceled(Exception):
    """The cause of the end of a context that was ended without one."""

    def __str__(self) -> str:
        return "canceled"


def ended_after(end: Context, grace: float, *, outage: Any = None) -> Context:
    """Return a context that ends ``grace`` seconds after another one was canceled. It must be
    closed."""
    bound = Context(outage=outage)

    def finish() -> None:
        timer = threading.Timer(grace, lambda: bound.cancel(end.cause))
        timer.daemon = True
        timer.start()

    bound._detach = end.on_end(finish)
    return bound
