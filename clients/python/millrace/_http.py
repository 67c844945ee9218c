"""How a call travels.

Each layer does one thing::

    method of a contract      builds the call, explains its errors
      call_json               decodes the answer
        call                  repeats tries: ``retry`` decides whether and when
          try_once            one try: one HTTP request, bounded in time
            response_error    an answer with a status that is not accepted, as an Error
            transport_error   no answer, as an Error

Only ``retry`` has the earlier tries, so it alone decides whether an error is uncertain: whether
the call may have taken effect although it failed.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from dataclasses import dataclass, field
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import Any, BinaryIO, Callable, Dict, List, Optional, Tuple, Type, TypeVar

from . import _wire
from ._context import Context, DeadlinePassed
from ._pool import Connection, NeverSentError, Pool, WrongServerError
from .errors import (
    CanceledError,
    DeadlineError,
    Error,
    NotMillraceError,
    RetryableError,
    answer_error,
    error_of,
    invalid,
    refusing,
)

T = TypeVar("T")

MAX_RETRY_AFTER = 60.0
"""The longest Retry-After that a call waits for. A call whose server asks for more fails with
``retry_after`` set, and its caller decides."""

MAX_OUTCOME_PAUSE = 2.0
"""The longest pause between two tries to report an outcome, besides Retry-After: it has to reach a
server that is back before the lease ends."""

_MAX_MESSAGE = 16 << 10  # how much of the body of an error is kept
_MAX_DRAIN = 64 << 10  # how much unread body is read so that the connection can be used again
_CHUNK = 64 << 10
_GO_NOT_FOUND = b"404 page not found\n"  # the 404 of other servers in Go


@dataclass
class Retry:
    """The policy by which the tries of a call are repeated.

    A try is repeated when the server asks for it (429, 503), when a gateway has no server behind
    it (502, 504) and when the connection fails. Pauses are random between zero and a bound that
    doubles with every try (full jitter), on top of Retry-After if the server sent it.
    """

    max_tries: int = 6
    """The most tries of one call, the first included. One means no retries, and a negative number
    means until the timeout of the call. The requests by which a worker finishes a run are tried
    as long as :meth:`millrace.Worker.run` says."""
    base_delay: float = 0.1
    """The longest pause in seconds before the second try."""
    max_delay: float = 10.0
    """Where the doubling ends."""


@dataclass
class Call:
    """One request of a contract: what to send and which statuses mean success. All other statuses
    are errors, other 2xx too: the welcome page of a proxy must not count as a stored job."""

    op: str
    method: str
    path: str
    query: str = ""
    body: Optional[bytes] = None
    stream: Optional[Upload] = None
    headers: Dict[str, str] = field(default_factory=dict)
    token: Optional[str] = None  # instead of that of the client; an empty one sends none
    wait: float = 0.0  # how much longer than the request timeout a long poll may take
    accept: Tuple[int, ...] = (200,)
    read_only: bool = False  # changes nothing in the server, so its errors are never uncertain
    single_try: bool = False  # is tried once
    # A call with a second effect when it is repeated: it is tried again only while no try can
    # have taken effect.
    not_idempotent: bool = False


@dataclass
class Upload:
    """A request body that is read from its source while it is sent. Each try reads it from the
    start, if its source can seek."""

    source: BinaryIO
    start: Optional[int]  # the position before the first try; None for one that cannot seek
    size: Optional[int]  # None if unknown


@dataclass
class Answer:
    """The answer of a success."""

    status: int
    headers: Message
    body: bytes
    uncertain: bool = False
    """Whether an earlier try of the call may have taken effect."""
    repeated: bool = False
    """Whether an earlier try of the call got an answer."""


class Backoff:
    """Pauses that grow with the number of failures in a row."""

    def __init__(self, base: float, max_delay: float) -> None:
        self.base = max(base, 0.0)
        self.max_delay = max(max_delay, self.base)
        self.random: Callable[[], float] = random.random

    def delay(self, failures: int, retry_after: float) -> float:
        """Return the pause after that many failures, never shorter than ``retry_after``."""
        ceiling = min(self.base * 2.0 ** min(failures - 1, 60), self.max_delay)
        return retry_after + self.random() * ceiling


class Http:
    """Sends the requests of a client. It may be used by several threads."""

    def __init__(
        self,
        *,
        pool: Pool,
        path: str,
        token: str,
        user_agent: str,
        request_timeout: float,
        max_response: int,
        retry: Retry,
        address: str,
    ) -> None:
        self._pool = pool
        self.address = address
        self._path = path
        self._token = token
        self._user_agent = user_agent
        self._request_timeout = request_timeout
        self._max_response = max_response
        self.max_tries = retry.max_tries or Retry.max_tries
        self.backoff = Backoff(retry.base_delay, retry.max_delay)

    def call(self, ctx: Context, call: Call) -> Answer:
        """Make a call and repeat tries that failed."""
        uncertain = repeated = False

        def attempt() -> Answer:
            nonlocal uncertain, repeated
            try:
                return self.try_once(ctx, call)
            except Error as error:
                uncertain = uncertain or error.uncertain
                repeated = repeated or error.status != 0
                raise

        answer = self.retry(ctx, call, attempt)
        answer.uncertain, answer.repeated = uncertain, repeated
        return answer

    def call_json(self, ctx: Context, call: Call, cls: Type[T]) -> T:
        """Make a call whose answer is an object."""
        return self.decoded(call, self.call(ctx, call), lambda value: _wire.read(cls, value))

    def decoded(self, call: Call, answer: Answer, read: Callable[[object], T]) -> T:
        """Decode an answer by ``read``, which raises ValueError where it is wrong."""
        try:
            return read(_wire.decode(answer.body))
        except ValueError as error:
            if _is_page(answer.body):
                raise NotMillraceError(call.op, status=answer.status) from None
            raise answer_error(call.op, error, uncertain=not call.read_only)

    def delete_once(self, ctx: Context, call: Call) -> None:
        """Make a DELETE that a server answers with 204. What is not found after a try whose answer
        was lost was deleted by that try."""
        call.method, call.accept = "DELETE", (204,)
        try:
            self.call(ctx, call)
        except Error as error:
            if error.status != 404 or not error.uncertain:
                raise

    def retry(self, ctx: Context, call: Call, attempt: Callable[[], T]) -> T:
        """Make tries until one succeeds, or until another try is not allowed or of no use."""
        uncertain, all_refused, tries = False, True, 0
        while True:
            tries += 1
            try:
                return attempt()
            except Error as error:
                all_refused = all_refused and error.is_refusal
                uncertain = uncertain or error.uncertain
                error.uncertain = uncertain and not call.read_only
                error.all_refused = all_refused
                pause = self._pause(ctx, call, error, tries, uncertain)
                if pause is None:
                    raise
                if ctx.wait(pause):
                    raise ended_error(ctx, call.op, error)

    def _pause(
        self, ctx: Context, call: Call, error: Error, tries: int, uncertain: bool
    ) -> Optional[float]:
        """Return the pause before another try; None if there is none."""
        pause = self.backoff.delay(tries, error.retry_after)
        last = 0 < self.max_tries <= tries or error.retry_after > MAX_RETRY_AFTER
        if ctx.outage is not None and error.retryable:
            ctx.outage.outcome_failed(error)
            pause = min(pause, min(error.retry_after, MAX_RETRY_AFTER) + MAX_OUTCOME_PAUSE)
            last = False
        if call.single_try or last or not error.retryable:
            return None
        return None if call.not_idempotent and uncertain else pause

    def try_once(self, ctx: Context, call: Call) -> Answer:
        """Make one try of a call. The body of its answer has been read when it returns."""
        exchange = Exchange(self._pool, ctx, call)
        limit = self._request_timeout + call.wait
        try:
            response = exchange.send(limit, self._target(call), self._headers(call))
            accepted = response.status in call.accept
            body = exchange.read(response, self._max_response + 1 if accepted else _MAX_MESSAGE)
            if not accepted:
                exchange.give_back(response)
                raise response_error(call, response, body, self.address)
            if len(body) > self._max_response:
                problem = f"it is larger than {self._max_response} bytes (max_response_bytes)"
                raise answer_error(call.op, problem, uncertain=True)
            exchange.give_back(response)
            return Answer(response.status, response.headers, body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise transport_error(ctx, call, error)
        finally:
            exchange.close()

    def open_stream(self, ctx: Context, call: Call) -> Tuple[Exchange, http.client.HTTPResponse]:
        """Make one try of a call and return its answer, to be read. The request timeout bounds the
        time until the answer begins. Closing the exchange ends the call."""
        exchange = Exchange(self._pool, ctx, call)
        try:
            response = exchange.send(
                self._request_timeout, self._target(call), self._headers(call)
            )
            if response.status not in call.accept:
                body = exchange.read(response, _MAX_MESSAGE)
                raise response_error(call, response, body, self.address)
            exchange.connection.deadline = ctx.deadline
            return exchange, response
        except (OSError, http.client.HTTPException, ValueError) as error:
            exchange.close()
            raise transport_error(ctx, call, error)
        except BaseException:
            exchange.close()
            raise

    def close_idle(self) -> None:
        """Close the connections that no call is using."""
        self._pool.close_idle()

    def _target(self, call: Call) -> str:
        return self._path + call.path + ("?" + call.query if call.query else "")

    def _headers(self, call: Call) -> List[Tuple[str, str]]:
        token = self._token if call.token is None else call.token
        headers = {"User-Agent": self._user_agent, **call.headers}
        if token:
            headers["Authorization"] = "Bearer " + token
        if call.body is not None:
            headers["Content-Type"] = "application/json"
        # The library encodes headers as Latin-1, so that this sends UTF-8.
        return [(name, value.encode("utf-8").decode("latin-1")) for name, value in headers.items()]


class Exchange:
    """One request and its answer on a connection. The end of the context aborts it."""

    def __init__(self, pool: Pool, ctx: Context, call: Call) -> None:
        self._pool = pool
        self._ctx = ctx
        self._call = call
        self._lock = threading.Lock()
        self._active = True
        self._given_back = False
        self._response: Optional[http.client.HTTPResponse] = None
        self.connection: Connection = pool.take()
        self._forget = ctx.on_end(self._abort)

    def _abort(self) -> None:
        with self._lock:
            if self._active:
                self.connection.abort()

    def send(
        self, limit: float, target: str, headers: List[Tuple[str, str]]
    ) -> http.client.HTTPResponse:
        """Send the request within ``limit`` seconds and return its answer."""
        self._bound(limit)
        connection, call = self.connection, self._call
        connection.connect()
        connection.begin(call.method, target, headers + self._body_headers())
        try:
            connection.end_headers(call.body)
            if call.stream is not None:
                self._send_stream(call.stream, limit)
        except (BrokenPipeError, ConnectionResetError):
            # The server may have answered before it had read all, and closed the connection.
            if connection.aborted:
                raise
        self._response = connection.response()
        return self._response

    def _bound(self, limit: float) -> None:
        self.connection.deadline = min(time.monotonic() + limit, self._ctx.deadline)

    def _body_headers(self) -> List[Tuple[str, str]]:
        stream, body = self._call.stream, self._call.body
        if stream is not None:
            if stream.size is None:
                return [("Transfer-Encoding", "chunked")]
            return [("Content-Length", str(stream.size))]
        if body is None and self._call.method not in ("POST", "PUT", "PATCH"):
            return []
        return [("Content-Length", str(len(body or b"")))]

    def _send_stream(self, stream: Upload, limit: float) -> None:
        """Send a body part by part. Each part has the whole time limit."""
        if stream.start is not None:
            stream.source.seek(stream.start)
        left = stream.size
        while left is None or left > 0:
            part = stream.source.read(_CHUNK if left is None else min(_CHUNK, left))
            if not part:
                break
            self._bound(limit)
            if left is None:
                self.connection.send(b"%x\r\n%b\r\n" % (len(part), part))
                continue
            left -= len(part)
            self.connection.send(part)
        if left is None:
            self.connection.send(b"0\r\n\r\n")
        elif left > 0:
            raise ValueError("the picture has become shorter while it was sent")

    def read(self, response: http.client.HTTPResponse, max_bytes: int) -> bytes:
        """Read a body, up to ``max_bytes``."""
        parts, size = [], 0
        while size < max_bytes:
            part = response.read(min(max_bytes - size, _CHUNK))
            if not part:
                if response.length:
                    raise http.client.IncompleteRead(b"", response.length)
                break
            parts.append(part)
            size += len(part)
        return b"".join(parts)

    def give_back(self, response: http.client.HTTPResponse) -> None:
        """Let the connection be used again, when little of the answer is left."""
        if not response.isclosed() and len(response.read(_MAX_DRAIN)) == _MAX_DRAIN:
            return
        with self._lock:
            self._active = False
        if response.isclosed() and not response.will_close and not self.connection.aborted:
            self._given_back = True

    def close(self) -> None:
        """End the exchange, and the connection unless it was given back."""
        self._forget()
        with self._lock:
            self._active = False
        if self._given_back:
            self._pool.give(self.connection)
            return
        self.connection.close()
        if self._response is not None:
            self._response.close()


def segment(op: str, what: str, name: str) -> str:
    """Return a name as a segment of a path."""
    with refusing(op):
        _wire.check_name(what, name)
    return _wire.escape(name)


def response_error(
    call: Call, response: http.client.HTTPResponse, body: bytes, address: str
) -> Error:
    """Return the error of an answer whose status is not accepted."""
    status = response.status
    members = _explanation(response.headers, body)
    retry_after = _retry_after(response.headers)
    error = error_of(
        call.op,
        status=status,
        retry_after=retry_after,
        uncertain=status >= 500,
        server=address if status == 401 else "",
        instance=members.pop("instance", "") or response.headers.get("X-Request-Id", ""),
        **members,
    )
    if _is_page(body):
        error.message = ""
    if (_is_page(body) or body == _GO_NOT_FOUND) and not error.retryable:
        return NotMillraceError(call.op, status=status)
    return error


def _explanation(headers: Message, body: bytes) -> Dict[str, Any]:
    """Take code and message from a problem document, or from an error of TaskFlow or FetchBox.
    With any other body the message is its text."""
    text = body.decode("utf-8", "replace").strip()
    media_type = headers.get_content_type()
    members: Dict[str, Any] = {"message": text}
    try:
        found = json.loads(text) if media_type.endswith("json") else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return members
    if media_type == "application/problem+json":
        for name in ("code", "instance"):
            members[name] = _text(found, name)
        members["message"] = _text(found, "detail") or _text(found, "title")
        return members
    inner = found.get("error")
    if isinstance(inner, dict) and inner.get("code"):  # FetchBox
        return {"code": _text(inner, "code"), "message": _text(inner, "message")}
    if found.get("code"):  # TaskFlow
        members = {"code": _text(found, "code"), "message": _text(found, "message")}
        details = found.get("details")
        if isinstance(details, dict):
            cycle, jobs = details.get("cycle_path"), details.get("jobs")
            members["cycle"] = cycle if isinstance(cycle, list) else None
            members["copies"] = jobs if isinstance(jobs, dict) else None
    return members


def _text(members: Dict[str, Any], name: str) -> str:
    found = members.get(name)
    return found if isinstance(found, str) else ""


def _is_page(body: bytes) -> bool:
    """Whether a body is HTML, which no route of the contracts answers."""
    return body.lstrip().startswith(b"<")


def transport_error(ctx: Context, call: Call, error: Exception) -> Error:
    """Return the error of a try without an answer: the connection failed, or the end of the
    context or the request timeout ended it."""
    if isinstance(error, ValueError) and not isinstance(error, OSError):
        return invalid(call.op, error)
    never_sent = isinstance(error, NeverSentError)
    if ctx.ended:
        return ended_error(ctx, call.op, Error(call.op, uncertain=not never_sent))
    transient = not isinstance(error, WrongServerError)
    kind = RetryableError if transient else Error
    return kind(call.op, uncertain=not never_sent, transient=transient, cause=error)


def ended_error(ctx: Context, op: str, last: Error) -> Error:
    """Return the error of a call that its context has ended, with what the last try said."""
    kind = DeadlineError if isinstance(ctx.cause, DeadlinePassed) else CanceledError
    error = kind(
        op,
        status=last.status,
        code=last.code,
        message=last.message,
        instance=last.instance,
        retry_after=last.retry_after,
        uncertain=last.uncertain,
        cause=ctx.cause,
    )
    error.all_refused = last.all_refused
    return error


def _retry_after(headers: Message) -> float:
    """Read Retry-After, in seconds or as a date; 0 when there is none. A date is compared with the
    server's own Date header, so that the clocks need not agree."""
    value = headers.get("Retry-After", "")
    if value.isascii() and value.isdigit():
        return float(min(int(value[:10]), 1 << 31))
    try:
        then = parsedate_to_datetime(value)
        now = parsedate_to_datetime(headers.get("Date", ""))
        return max((then - now).total_seconds(), 0.0)
    except (TypeError, ValueError, IndexError):
        return 0.0
