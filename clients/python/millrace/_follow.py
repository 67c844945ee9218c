"""Calls of several requests: polling until something is so, lists page by page, and answers that
are continued."""

from __future__ import annotations

from http.client import HTTPException, HTTPResponse, IncompleteRead
from typing import Any, Callable, Dict, Iterator, Optional, Tuple, Type, TypeVar

from . import _wire
from ._context import Context
from ._http import MAX_RETRY_AFTER, Call, Http, ended_error
from .errors import Error, RetryableError

T = TypeVar("T")

_MIN_PAUSE = 0.05
_MAX_PAUSE = 2.0


def watch(
    http: Http, op: str, timeout: Optional[float], poll: Callable[[Context], Tuple[T, bool]]
) -> T:
    """Poll until a value is the last one, as ``poll`` says, and return that. Retryable errors do
    not end it, so that it continues while the server is unavailable or limits requests; other
    errors do, and so does the timeout."""
    pause = _MIN_PAUSE
    with Context(timeout=timeout) as ctx:
        while True:
            last = Error(op)
            try:
                value, last_one = poll(ctx)
                if last_one:
                    return value
            except Error as error:
                if not error.retryable:
                    raise
                last = error
            # The pause is random between its half and its whole, so that many callers spread out.
            if ctx.wait(last.retry_after + pause / 2 + http.backoff.random() * pause / 2):
                raise ended_error(ctx, op, last)
            pause = min(pause * 1.5, _MAX_PAUSE)


def pages(
    read: Callable[[Dict[str, Any]], Tuple[Any, ...]], query: Dict[str, Any], size: int
) -> Iterator[Any]:
    """Iterate over a list and read it page by page, of ``size`` items each or of as many as the
    server chooses. ``read`` returns the items of a page and the cursor of the next one."""
    query = dict(query)
    if size:
        query["limit"] = size
    while True:
        items, cursor = read(query)
        yield from items
        if not cursor:
            return
        query["cursor"] = cursor


def read_page(cls: Type[T], value: Any) -> Tuple[Any, str]:
    """Read a page of an answer: its items, and the cursor of the next page; empty for none."""
    members = _wire._object(value)
    more = members.get("has_more", True)
    cursor = members.get("next_cursor") or ""
    return _wire.read_list(cls, members.get("items") or []), cursor if more else ""


def list_pages(
    http: Http,
    context: Callable[[], Context],
    make_call: Callable[[str], Call],
    cls: Type[T],
    query: Dict[str, Any],
    size: int,
) -> Iterator[T]:
    """Iterate over a list whose pages ``make_call`` asks for, given their query."""

    def read(members: Dict[str, Any]) -> Tuple[Any, ...]:
        call = make_call(_wire.query_of(members))
        return http.decoded(
            call, http.call(context(), call), lambda value: read_page(cls, value)
        )

    return pages(read, query, size)


def follow(
    http: Http,
    ctx: Context,
    request: Callable[[], Call],
    item: Callable[[bytes], Optional[T]],
    over: Callable[[int], bool],
    *,
    at_once: bool,
    max_line: int,
) -> Iterator[T]:
    """Iterate over the lines of answers, where each request continues the one before.

    ``request`` makes the next call, ``item`` makes something of a line (None is passed over,
    ValueError means that it was damaged), and ``over`` says whether nothing is missing after a
    whole answer with so many items. ``at_once`` asks again without a pause then. Failures are
    retried as the client's policy says; they are counted from zero after a request that has
    brought something.
    """
    failures = 0
    while True:
        call, count = request(), 0
        last: Optional[Error] = None
        try:
            for found in _items(http, ctx, call, item, max_line):
                count += 1
                yield found
        except Error as error:
            last = error
        if last is None and over(count):
            return
        if ctx.ended:
            raise ended_error(ctx, call.op, last or Error(call.op))
        if last is None and at_once:
            continue
        failures = 1 if count > 0 else failures + 1
        pause = http.backoff.delay(failures, 0.0)
        if last is not None:
            used_up = 0 < http.max_tries <= failures
            if used_up or not last.retryable or last.retry_after > MAX_RETRY_AFTER:
                raise last
            pause += last.retry_after
        if ctx.wait(pause):
            raise ended_error(ctx, call.op, last or Error(call.op))


def _items(
    http: Http, ctx: Context, call: Call, item: Callable[[bytes], Optional[T]], max_line: int
) -> Iterator[T]:
    exchange, response = http.open_stream(ctx, call)
    try:
        for line in _lines(response, max_line):
            found = item(line)
            if found is not None:
                yield found
    except _TooLong as error:
        raise Error(call.op, cause=error)
    except (OSError, HTTPException, ValueError) as error:
        if ctx.ended:
            raise ended_error(ctx, call.op, Error(call.op))
        raise RetryableError(call.op, transient=True, cause=error)
    finally:
        exchange.close()


class _TooLong(Exception):
    pass


def _lines(response: HTTPResponse, max_line: int) -> Iterator[bytes]:
    """Iterate over the lines of a body, without the ends of the lines."""
    rest = b""
    while True:
        part = read_some(response)
        if not part:
            break
        *lines, rest = (rest + part).split(b"\n")
        yield from lines
        if len(rest) > max_line:
            raise _TooLong(f"a line has more than {max_line} bytes")
    if rest:
        yield rest


def read_some(response: HTTPResponse, max_bytes: int = 64 << 10) -> bytes:
    """Read what has arrived of a body; nothing at its end.

    :raises http.client.IncompleteRead: if it breaks off.
    """
    part = response.read1(max_bytes) if response.chunked else response.read(max_bytes)
    if not part and not response.chunked and response.length:
        raise IncompleteRead(b"", response.length)
    return part
