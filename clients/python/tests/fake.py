"""A server in this process that answers what a test tells it to. It proves nothing about the real
server."""

from __future__ import annotations

import http.server
import socket
import ssl
import threading
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional


@dataclass
class Reply:
    """What to answer. A status of 0 cuts the connection."""

    status: int = 200
    body: bytes = b"{}"
    headers: Dict[str, str] = field(default_factory=dict)
    after: Optional[Callable[[], None]] = None
    """Called before the answer is sent."""
    length: Optional[int] = None
    """The Content-Length, where it is not that of the body."""


@dataclass
class Request:
    """A request as the server saw it."""

    method: str
    path: str
    headers: Dict[str, str]
    body: bytes
    port: int
    """The port of the client, which is that of its connection."""


class FakeServer:
    """Answers with the replies in their order, and with the last one for ever."""

    def __init__(self, *replies: Reply, tls: Optional[ssl.SSLContext] = None) -> None:
        self.replies = list(replies) or [Reply()]
        self.requests: List[Request] = []
        self._lock = threading.Lock()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def handle_any(self) -> None:
                outer._answer(self)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = handle_any

            def log_message(self, *_: Any) -> None:
                pass

        class Quiet(http.server.ThreadingHTTPServer):
            def handle_error(self, *_: Any) -> None:
                """Clients go away; that is no fault of the server."""

        self._server = Quiet(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.port}"
        if tls is not None:
            # The handshake is that of the thread which serves the connection.
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, handler: Any) -> None:
        body = _read_body(handler)
        with self._lock:
            self.requests.append(
                Request(
                    handler.command,
                    handler.path,
                    {k.lower(): v for k, v in handler.headers.items()},
                    body,
                    handler.client_address[1],
                )
            )
            reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if reply.after is not None:
            reply.after()
        if reply.status == 0:
            handler.close_connection = True
            handler.connection.shutdown(socket.SHUT_RDWR)
            return
        handler.send_response_only(reply.status)
        for name, value in reply.headers.items():
            handler.send_header(name, value)
        length = len(reply.body) if reply.length is None else reply.length
        if reply.status != 204:
            handler.send_header("Content-Length", str(length))
        handler.end_headers()
        if handler.command != "HEAD" and reply.status != 204:
            handler.wfile.write(reply.body)
        if length != len(reply.body):
            handler.close_connection = True


def _read_body(handler: Any) -> bytes:
    if handler.headers.get("Transfer-Encoding") != "chunked":
        return bytes(handler.rfile.read(int(handler.headers.get("Content-Length", 0))))
    body = b""
    while True:
        size = int(handler.rfile.readline(), 16)
        body += handler.rfile.read(size)
        handler.rfile.readline()
        if size == 0:
            return body


def unused_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def silent_server() -> socket.socket:
    """Return a listener that takes connections and never answers."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen(8)
    return sock


def trickle(sock: socket.socket, ends: threading.Event) -> None:
    """Send one byte of an answer at a time to the first connection."""
    connection, _ = sock.accept()
    with connection:
        text = b"HTTP/1.1 200 OK\r\nX-Slow: "
        while not ends.wait(0.02):
            try:
                connection.send(text[:1] or b"x")
            except OSError:
                return
            text = text[1:]


__all__ = ["FakeServer", "Reply", "Request", "silent_server", "trickle", "unused_port"]
