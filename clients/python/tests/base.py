"""What the tests share: a server, clients of it, and which methods were called."""

from __future__ import annotations

import atexit
import functools
import inspect
import itertools
import logging
import threading
import unittest
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

import millrace

from .server import BOUND, SETTINGS, TOKEN, Server, until

CONTRACTS = (
    millrace.Relay,
    millrace.WorkerAPI,
    millrace.TaskFlow,
    millrace.ForgeRun,
    millrace.FetchBox,
    millrace.Images,
    millrace.Admin,
    millrace.Run,
    millrace.JobRun,
    millrace.Worker,
    millrace.JobWorker,
    millrace.Client,
    millrace.TaskFlowGraphBuilder,
)

called: Set[str] = set()
"""The methods that were called on a client of a real server."""


def public_methods(cls: type) -> Iterator[Tuple[str, Callable[..., Any]]]:
    """Iterate over the public methods of a class."""
    for name, method in vars(cls).items():
        if not name.startswith("_") and inspect.isfunction(method):
            yield name, method


def _watch_calls() -> None:
    for cls in CONTRACTS:
        for name, method in list(public_methods(cls)):
            setattr(cls, name, _noted(f"{cls.__name__}.{name}", method))


def _noted(label: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        called.add(label)
        return method(*args, **kwargs)

    return call


_watch_calls()

# Most workers are stopped while they poll. That need not take half a second each time.
millrace._runner.POLL_GRACE = 0.05

_servers: Dict[str, Server] = {}
_names = itertools.count(1)


def shared_server() -> Server:
    """Return a server that is started once and used by all tests that do not kill it."""
    if "shared" not in _servers:
        _servers["shared"] = Server(*SETTINGS).start()
        atexit.register(_servers["shared"].close)
    return _servers["shared"]


class Lines(logging.Handler):
    """Keeps what was logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: List[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.getMessage()}")

    def having(self, text: str) -> List[str]:
        """Return the lines that have a text."""
        return [line for line in self.lines if text in line]


class Background:
    """A worker that runs in a thread."""

    def __init__(self, worker: Any) -> None:
        self.worker = worker
        self.failure: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.worker.run()
        except BaseException as error:
            self.failure = error

    def join(self) -> None:
        """Wait until the worker has ended, and raise what it has raised."""
        self._thread.join(BOUND)
        if self._thread.is_alive():
            raise AssertionError("the worker does not end")
        if self.failure is not None:
            raise self.failure

    def stop(self) -> None:
        """Stop the worker and wait until it has finished."""
        self.worker.stop()
        self.join()


class ServerTest(unittest.TestCase):
    """A test with the shared server."""

    server: Server
    client: millrace.Client

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = shared_server()
        cls.client = millrace.Client(cls.server.url, token=TOKEN)

    def name(self) -> str:
        """Return a name that no other test uses."""
        return f"q{next(_names)}"

    def logger(self) -> Tuple[logging.Logger, Lines]:
        """Return a logger and what it has logged."""
        lines = Lines()
        log = logging.getLogger(f"test.{next(_names)}")
        log.setLevel(logging.DEBUG)
        log.propagate = False
        log.addHandler(lines)
        return log, lines

    def background(self, worker: Any) -> Background:
        """Run a worker until the test ends."""
        running = Background(worker)
        self.addCleanup(lambda: worker.kill())
        return running


__all__ = ["BOUND", "TOKEN", "Background", "Server", "ServerTest", "shared_server", "until"]
