"""A real server for the tests: the binary that MILLRACE_BIN names, on a free port."""

from __future__ import annotations

import http.client
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from typing import Any, Callable, List, Optional, Sequence

BINARY = os.environ.get("MILLRACE_BIN") or shutil.which("millrace") or ""
BOUND = 30.0
"""How many seconds a test waits for something at most."""

CALLBACK_SECRET = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"

SETTINGS = (
    "relay.body_limit=1MiB",
    "forgerun.anonymous_rate_limit_per_minute=100000",
    "forgerun.rate_limit_per_minute=100000",
    "fetchbox.backoff_base=10ms",
    "images.backoff_base=10ms",
    "webhook.backoff_base=10ms",
    f"taskflow.callback_secret={CALLBACK_SECRET}",
    "webhook.max_tries=1",
)

TOKEN = "operator-token-of-the-tests-0123456789"


def until(what: str, condition: Callable[[], Any], bound: float = BOUND) -> Any:
    """Poll until a condition is true, and return its value."""
    end = time.monotonic() + bound
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited {bound} s in vain: {what}")
        time.sleep(0.01)


def free_port() -> int:
    """Return a port that nobody listens on, below those that the system gives to clients: none of
    them can take it while a server is down."""
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as sock:
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def is_ready(port: int) -> bool:
    """Report whether a server is ready."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


class Server:
    """A server process with a data directory of its own, which may be killed and started again on
    the same address."""

    def __init__(self, *settings: str, flags: Sequence[str] = ()) -> None:
        if not BINARY:
            raise AssertionError("MILLRACE_BIN does not name the server's binary")
        self.dir = tempfile.mkdtemp(prefix="millrace-python-")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._settings = [
            f"listen=127.0.0.1:{self.port}",
            "log.level=warn",
            f"operator.token={TOKEN}",
            *settings,
        ]
        self._flags = flags
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._log = open(os.path.join(self.dir, "log"), "ab")

    def start(self) -> Server:
        """Start the process and wait until it is ready."""
        command: List[str] = [BINARY, "serve", *self._flags]
        for setting in self._settings:
            command += ["--set", setting]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MILLRACE")}
        self._process = subprocess.Popen(
            command, cwd=self.dir, env=environment, stdout=self._log, stderr=self._log
        )
        until("the server is ready: " + self.log(), self._ready)
        return self

    def _ready(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError("the server ended: " + self.log())
        return is_ready(self.port)

    def log(self) -> str:
        """Return what the server has logged."""
        with open(os.path.join(self.dir, "log"), encoding="utf-8", errors="replace") as text:
            return text.read()[-4000:]

    def kill(self) -> None:
        """End the process at once, as kill -9 does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Keep the process from running, so that it does not answer."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """End a pause."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End the process and remove its data."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
        self.kill()
        self._log.close()
        shutil.rmtree(self.dir, ignore_errors=True)
