"""The client of one server, on which the contracts stand."""

from __future__ import annotations

import copy
import ssl
import urllib.parse
from typing import Optional

from . import _wire
from ._context import Context
from ._http import Http, Retry
from ._pool import Pool
from .admin import Admin
from .errors import invalid
from .fetchbox import FetchBox
from .forgerun import ForgeRun
from .images import Images
from .relay import Relay
from .taskflow import TaskFlow
from .version import __version__
from .worker_api import WorkerAPI

__all__ = ["Client"]


class Client:
    """Sends requests to one Millrace server, for all contracts. It may be used by several threads
    and should be made once, as it keeps a pool of connections. Making it does not connect.

    :param base_url: The server's address, such as ``"https://jobs.example.org"`` or, behind a
        proxy, ``"https://example.org/millrace"``. A URL with a query or a fragment is refused.
    :param token: When set, it is sent as a bearer token with every request.
    :param user_agent: Sent with every request; without one ``millrace-python/`` and the version.
    :param request_timeout: Limits one try in seconds, from connecting to the last byte of the
        answer. A long poll gets the time that it asked the server to wait on top.
    :param call_timeout: Limits one whole call in seconds, with all of its tries; ``None`` is no
        bound besides that of ``retry``. See :meth:`with_timeout`.
    :param max_response_bytes: Limits the body of an answer. It must be large enough for the
        payloads and states of all jobs that one claim asks for: jobs in an answer that is too
        large are claimed and return only after their timeout.
    :param retry: How often failed tries are repeated, and after which pauses.
    :param ssl_context: For ``https``; ``None`` is :func:`ssl.create_default_context`.
    :raises InvalidError: if an argument is wrong.
    """

    def __init__(
        self,
        base_url: str,
        *,
        token: str = "",
        user_agent: str = f"millrace-python/{__version__}",
        request_timeout: float = 30.0,
        call_timeout: Optional[float] = None,
        max_response_bytes: int = 256 << 20,
        retry: Optional[Retry] = None,
        ssl_context: Optional[ssl.SSLContext] = None,
    ) -> None:
        try:
            base = _parse_base(base_url)
            for what, value in (("token", token), ("user agent", user_agent)):
                if value:
                    _wire.check_header(what, value)
            if request_timeout <= 0 or max_response_bytes <= 0:
                raise ValueError("request_timeout or max_response_bytes is not above zero")
        except ValueError as error:
            raise invalid("new client", error)
        secure = None
        if base.scheme == "https":
            secure = ssl_context or ssl.create_default_context()
        self._call_timeout = call_timeout
        self._http: Http = Http(
            pool=Pool(secure, str(base.hostname), base.port),
            path=base.path,
            token=token,
            user_agent=user_agent,
            request_timeout=request_timeout,
            max_response=max_response_bytes,
            retry=retry or Retry(),
            address=f"{base.scheme}://{base.netloc}",
        )

    def with_timeout(self, seconds: Optional[float]) -> Client:
        """Return a client whose calls take at most so many seconds each, with all of their tries.
        A call that takes longer fails with a :class:`DeadlineError`. It shares the connections of
        this one."""
        other = copy.copy(self)
        other._call_timeout = seconds
        return other

    def relay(self) -> Relay:
        """Return the Relay contract: queues for workers of your own."""
        return Relay(self)

    def forge_run(self) -> ForgeRun:
        """Return the ForgeRun contract. Its API key is the token of the client, unless
        :meth:`ForgeRun.with_api_key` sets another."""
        return ForgeRun(self)

    def task_flow(self) -> TaskFlow:
        """Return the TaskFlow contract: jobs that depend on one another."""
        return TaskFlow(self)

    def fetch_box(self) -> FetchBox:
        """Return the FetchBox contract. The token of the client is that of both clients and
        operators, unless :meth:`FetchBox.with_operator_token` sets another for operators."""
        return FetchBox(self)

    def images(self) -> Images:
        """Return the Images contract: variants of uploaded pictures."""
        return Images(self)

    def worker_api(self) -> WorkerAPI:
        """Return the worker API: execution of the jobs of all contracts but Relay."""
        return WorkerAPI(self)

    def admin(self) -> Admin:
        """Return the admin API. The token of the client is the operator's."""
        return Admin(self)

    def close_idle_connections(self) -> None:
        """Close the connections that no call is using. The client stays usable."""
        self._http.close_idle()

    def _context(self) -> Context:
        """Return the context of a call."""
        return Context(timeout=self._call_timeout)


def _parse_base(url: str) -> urllib.parse.SplitResult:
    """Check a base URL and drop the slashes at the end of its path."""
    base = urllib.parse.urlsplit(url)
    if base.scheme not in ("http", "https"):
        raise ValueError(f"base URL {url!r} does not start with http:// or https://")
    if not base.hostname:
        raise ValueError(f"base URL {url!r} names no host")
    if base.query or base.fragment or base.username is not None:
        raise ValueError("base URL has a query, a fragment or a user")
    if base.port == 0:
        raise ValueError(f"base URL {url!r} has the port 0")
    path = urllib.parse.quote(base.path.rstrip("/"), safe="/%:@!$&'()*+,;=~-._")
    return base._replace(path=path)
