"""Connections to one server, kept alive between requests."""

from __future__ import annotations

import http.client
import io
import math
import os
import socket
import ssl
import threading
import time
from typing import Any, List, Optional, Tuple

_MAX_IDLE = 64
_IDLE_TIMEOUT = 90.0
_CONNECT_TIMEOUT = 10.0


class NeverSentError(OSError):
    """No connection could be made, so that the server cannot have seen the request."""


class WrongServerError(NeverSentError):
    """The server's certificate was rejected, or it does not speak TLS. Another try would be of no
    use."""


class AbortedError(OSError):
    """The caller of a request has ended it."""


class Connection:
    """One connection. Every read and write of it is bounded by its deadline.

    A connection is used by one thread at a time; :meth:`abort` may be called by any.
    """

    def __init__(self, secure: Optional[ssl.SSLContext], host: str, port: Optional[int]) -> None:
        self._http: http.client.HTTPConnection
        if secure is not None:
            self._http = http.client.HTTPSConnection(host, port, context=secure)
        else:
            self._http = http.client.HTTPConnection(host, port)
        self._http.response_class = self._make_response  # type: ignore[assignment]
        self._socket: Optional[socket.socket] = None
        self._aborted = False
        self.deadline = math.inf
        """Until when the present request may take, on the monotonic clock."""
        self.idle_since = 0.0

    def connect(self) -> None:
        """Connect, unless the connection is there already.

        :raises NeverSentError: if there is no connection.
        """
        if self._socket is None:
            try:
                self._http.timeout = min(self._left(), _CONNECT_TIMEOUT)
                self._http.connect()
            except ssl.SSLCertVerificationError as error:
                raise WrongServerError(self._refusal(error)) from None
            except ssl.SSLError as error:
                kind = WrongServerError if error.reason == "WRONG_VERSION_NUMBER" else None
                raise (kind or NeverSentError)(self._refusal(error)) from None
            except (OSError, UnicodeError) as error:
                raise NeverSentError(self._absence(error)) from None
            self._socket = self._http.sock
            if self._socket.getsockname() == self._socket.getpeername():
                # Where nobody listens on a port of this machine, the system may have chosen the
                # same one for this end, and connected it with itself.
                self.close()
                raise NeverSentError(self._absence("connection refused"))
            _keep_alive(self._socket)
        if self._aborted:
            self.close()
            raise NeverSentError("aborted")

    def begin(self, method: str, target: str, headers: List[Tuple[str, str]]) -> None:
        """Begin a request. Its body, if there is one, follows by :meth:`send`."""
        self._arm()
        self._http.putrequest(method, target, skip_accept_encoding=True)
        for name, value in headers:
            self._http.putheader(name, value)

    def end_headers(self, body: Optional[bytes]) -> None:
        """Send the headers, together with a short body."""
        self._arm()
        self._http.endheaders(body)

    def send(self, data: bytes) -> None:
        """Send a part of a body."""
        self._arm()
        self._http.send(data)

    def response(self) -> http.client.HTTPResponse:
        """Wait for the answer and return it when its headers are there."""
        return self._http.getresponse()

    def abort(self) -> None:
        """End what is under way on the connection, from another thread."""
        self._aborted = True
        sock = self._socket
        if sock is None:
            return
        try:
            # That of the base class, which leaves the state of TLS to the thread that reads.
            socket.socket.shutdown(sock, socket.SHUT_RDWR)
        except OSError:
            pass

    @property
    def aborted(self) -> bool:
        """Whether the connection was aborted."""
        return self._aborted

    def close(self) -> None:
        """Close the connection."""
        self._http.close()
        if self._socket is not None:
            self._socket.close()

    def is_usable(self) -> bool:
        """Whether an idle connection can be used again: the server has neither closed it nor sent
        anything."""
        if self._socket is None or self._http.sock is None or self._aborted:
            return False
        if time.monotonic() - self.idle_since > _IDLE_TIMEOUT:
            return False
        try:
            self._socket.settimeout(0)
            socket.socket.recv(self._socket, 1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except (OSError, ValueError):
            return False
        return False

    def _refusal(self, error: object) -> str:
        """Say why there is no connection, and to what."""
        why = str(error) or type(error).__name__
        return f"no connection to {self._http.host}:{self._http.port}: {why}"

    def _absence(self, error: object) -> str:
        """Say that nothing answers at the address, and what starts a server."""
        return f"{self._refusal(error)}; is the server running? `millrace serve` starts one"

    def _left(self) -> float:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise socket.timeout("no answer in time")
        return left

    def _arm(self) -> None:
        """Bound the next read or write."""
        if self._aborted or self._socket is None:
            raise AbortedError("aborted")
        left = self._left()
        self._socket.settimeout(None if math.isinf(left) else left)

    def _make_response(self, sock: socket.socket, **options: Any) -> http.client.HTTPResponse:
        return http.client.HTTPResponse(_Readable(self, sock), **options)  # type: ignore[arg-type]


class _Readable:
    """What a response reads from: it bounds every read by the deadline of the connection."""

    def __init__(self, connection: Connection, sock: socket.socket) -> None:
        self._connection = connection
        self._sock = sock

    def makefile(self, mode: str) -> io.BufferedReader:
        raw = self._sock.makefile("rb", buffering=0)
        return io.BufferedReader(_Reader(self._connection, raw))


class _Reader(io.RawIOBase):
    def __init__(self, connection: Connection, raw: io.RawIOBase) -> None:
        self._connection = connection
        self._raw = raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> Optional[int]:
        self._connection._arm()
        return self._raw.readinto(buffer)

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


class Pool:
    """The idle connections to one server. It may be used by several threads."""

    def __init__(self, secure: Optional[ssl.SSLContext], host: str, port: Optional[int]) -> None:
        self._secure = secure
        self._host = host
        self._port = port
        self._lock = threading.Lock()
        self._idle: List[Connection] = []
        self._process = os.getpid()

    def __del__(self) -> None:
        self.close_idle()

    def take(self) -> Connection:
        """Return a connection that no request is using, a new one if need be."""
        while True:
            with self._lock:
                if self._process != os.getpid():  # a fork: the connections are the parent's
                    self._process = os.getpid()
                    while self._idle:
                        self._idle.pop().close()
                if not self._idle:
                    return Connection(self._secure, self._host, self._port)
                connection = self._idle.pop()
            if connection.is_usable():
                return connection
            connection.close()

    def give(self, connection: Connection) -> None:
        """Keep a connection whose answer was read to its end, for later requests."""
        connection.idle_since = time.monotonic()
        connection.deadline = math.inf
        with self._lock:
            if len(self._idle) < _MAX_IDLE and self._process == os.getpid():
                self._idle.append(connection)
                return
        connection.close()

    def close_idle(self) -> None:
        """Close the connections that no request is using."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


def _keep_alive(sock: socket.socket) -> None:
    """Have the system find out that a server is gone which sends nothing."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 9)):
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
