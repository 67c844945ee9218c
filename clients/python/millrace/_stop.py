"""How a worker is stopped: by calls from other threads and by signals."""

from __future__ import annotations

import os
import queue
import signal
import socket
import threading
from typing import Any, Callable, Dict, Optional

from ._runner import Runner
from .errors import DrainTimeoutError, invalid


_SIGNAL_WAIT = 0.5


class Killed(DrainTimeoutError):
    """The cause of the end of handlers whose worker was killed."""


class Control:
    """Runs a runner in a thread of its own, and passes on its calls.

    The thread that called :meth:`run` does nothing but wait for commands. They come through a
    queue that signal handlers may use as well, whatever they have interrupted.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._commands: queue.SimpleQueue[Callable[[], bool]] = queue.SimpleQueue()
        self._failure: Optional[BaseException] = None
        self._began = False
        self._signals = 0

    def stop(self) -> None:
        """Begin to drain."""
        self._commands.put(self._on_stop)

    def kill(self, cause: Optional[BaseException] = None) -> None:
        """Stop, and end the contexts of the handlers now."""
        self._commands.put(lambda: self._on_kill(cause))

    def run(self, handle_signals: bool) -> None:
        """Run the runner until it has finished, and raise what it raises."""
        if self._began:
            raise invalid("worker", "a worker runs once")
        self._began = True
        restore = self._take_signals() if handle_signals else {}
        try:
            self._supervise()
        finally:
            for number, handler in restore.items():
                signal.signal(number, handler)
        if self._failure is not None:
            raise self._failure

    def _supervise(self) -> None:
        """Start the runner and obey commands until it has finished."""
        thread = threading.Thread(target=self._work, name="millrace worker", daemon=True)
        thread.start()
        interrupt: Optional[KeyboardInterrupt] = None
        over = False
        while not over:
            try:
                # A signal that comes just before the wait does not end it, so it is short.
                over = self._commands.get(timeout=_SIGNAL_WAIT)()
            except queue.Empty:
                continue
            except KeyboardInterrupt as error:
                interrupt = error
                self._on_signal()
        thread.join()
        if interrupt is not None:
            raise interrupt

    def _work(self) -> None:
        try:
            self._runner.run()
        except BaseException as error:
            self._failure = error
        self._commands.put(lambda: True)

    def _on_stop(self) -> bool:
        self._runner.polling.cancel()
        return False

    def _on_kill(self, cause: Optional[BaseException]) -> bool:
        self._runner.polling.cancel()
        killed = Killed("the worker was killed")
        killed.__cause__ = cause
        self._runner.kill(killed)
        return False

    def _take_signals(self) -> Dict[int, Any]:
        handlers = {}
        for number in (signal.SIGINT, signal.SIGTERM):
            handlers[int(number)] = signal.signal(number, lambda *_: self._on_signal())
        return handlers

    def _on_signal(self) -> None:
        """Drain on the first signal, kill on the second."""
        self._signals += 1
        if self._signals == 1:
            self.stop()
        else:
            self.kill()


def process_name() -> str:
    """Identify this process among those of all hosts."""
    try:
        host = socket.gethostname()
    except OSError:
        host = "unknown"
    return f"{host}:{os.getpid()}"
