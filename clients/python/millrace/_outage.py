"""The log of an outage of the server."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from .errors import Error

Log = Any
"""A logger, or an adapter of one."""


class ServerOutage:
    """Logs one line when the server begins to fail the requests of a worker, and one when it
    answers again, whatever the number of runs whose heartbeats fail meanwhile::

        polls       ok FAIL FAIL ·    ·    ok ·     until one succeeds
        heartbeats  ok ·    ·    FAIL FAIL ·  ok    of each run, until one is answered or it ends
        outcomes    ok ·    FAIL ·    ·    ok ·     a definite answer ends what they have begun
        log            WARN                   INFO  while one of them fails it is one outage
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._active = False
        self._since = 0.0
        self._polls_fail = False
        self._poll_status = 0  # of the answers to polls in this outage; 0 is no answer
        self._missing = 0  # runs whose last heartbeat failed

    def poll_failed(self, error: Error) -> None:
        """Record a failed poll. A change of the status is logged too: it may mean another
        cause."""
        with self._lock:
            changed = self._polls_fail and self._poll_status != error.status
            is_new = not self._active or changed
            self._polls_fail, self._poll_status = True, error.status
            if is_new:
                self._begin("polls", error)

    def poll_succeeded(self) -> None:
        """Record a poll that was answered."""
        with self._lock:
            self._polls_fail = False
            self._end_if_over()

    def heartbeat_failed(self, missed: int, error: Error) -> None:
        """Record that a run has missed so many heartbeats in a row."""
        with self._lock:
            if missed == 1:
                self._missing += 1
            if not self._active:
                self._begin("heartbeats", error)

    def heartbeat_answered(self, missed: int) -> None:
        """Record that a heartbeat was accepted, or that its answer was that the run is lost, after
        so many misses."""
        with self._lock:
            if missed:
                self._missing -= 1
            self._end_if_over()

    def outcome_failed(self, error: Error) -> None:
        """Record that a request with the outcome of a run will be repeated."""
        with self._lock:
            if not self._active:
                self._begin("outcomes", error)

    def outcome_answered(self) -> None:
        """Record a definite answer to a request with the outcome of a run."""
        with self._lock:
            self._end_if_over()

    def run_ended(self, missed: int) -> None:
        """Record that a run sends no more heartbeats. That says nothing about the server, so the
        next answer ends the outage."""
        with self._lock:
            if missed:
                self._missing -= 1

    def _begin(self, requests: str, error: Error) -> None:
        if not self._active:
            self._active, self._since = True, time.monotonic()
        message = f"the server refuses {requests}; they are repeated until it accepts one"
        if error.status == 0:
            message = "the server does not answer; requests are repeated until it does"
        self._log.warning("%s: %s", message, error)

    def _end_if_over(self) -> None:
        if not self._active or self._polls_fail or self._missing > 0:
            return
        self._active = False
        self._log.info("the server answers again after %.1f s", time.monotonic() - self._since)


class RunLog(logging.LoggerAdapter):  # type: ignore[type-arg]
    """Names the run in each line."""

    def __init__(self, log: Log, name: str) -> None:
        super().__init__(log, {})
        self._name = name

    def process(self, msg: Any, kwargs: Any) -> Any:
        """Put the name of the run before the line."""
        return f"{self._name}: {msg}", kwargs
