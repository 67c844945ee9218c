"""FetchBox: the server downloads the URLs of a manifest to object storage.

:meth:`FetchBox.submit` submits a manifest, :meth:`FetchBox.wait` waits until all of its downloads
have finished, :meth:`FetchBox.logs` follows the job's log across broken connections,
:meth:`FetchBox.cancel` ends it, :meth:`FetchBox.dead_letters` lists the downloads that were given
up, :meth:`FetchBox.replay` starts one of them again, and :meth:`FetchBox.retry` all of a job::

    box = client.fetch_box()
    manifest = millrace.FetchBoxManifest([millrace.FetchBoxResource("cat", url)])
    receipt = box.submit(millrace.FetchBoxSpec("gallery", manifest))
    job = box.wait(receipt.job_id)
"""

from __future__ import annotations

import gzip
import secrets
from typing import TYPE_CHECKING, Any, Dict, Iterator, Optional, Tuple, Type, TypeVar

from . import _wire
from ._context import Context
from ._follow import follow, list_pages, watch
from ._http import Call, segment
from ._wire import encode, query_of
from .errors import errors_with_key, refusing
from .fetchbox_types import (
    FetchBoxDeadLetter,
    FetchBoxFilter,
    FetchBoxHealth,
    FetchBoxJob,
    FetchBoxLogEntry,
    FetchBoxManifest,
    FetchBoxReceipt,
    FetchBoxReplay,
    FetchBoxSpec,
)

if TYPE_CHECKING:
    from .client import Client

__all__ = ["FetchBox"]

T = TypeVar("T")

_COMPRESS_FROM = 16 << 10  # the size in bytes from which a manifest is sent compressed
_LOG_PAGE = 1000  # how many log entries one request asks for
_MAX_LOG_LINE = 1 << 20
_JOBS = "/operators/jobs"
_DEAD_LETTERS_PATH = "/operators/dlq"


class FetchBox:
    """The FetchBox contract. Every error is an :class:`Error`, with the contract's code when the
    server answered. It may be used by several threads. Made by :meth:`Client.fetch_box`.

    :meth:`submit` is a call for clients. All others are for operators, who may have a token of
    their own.
    """

    def __init__(self, client: Client, operator: Optional[str] = None) -> None:
        self._client = client
        self._operator = operator

    def with_operator_token(self, token: str) -> FetchBox:
        """Return the contract with another token for the calls of operators. It shares the
        connections of this one."""
        with refusing("fetchbox with operator token"):
            _wire.check_header("token", token)
        return FetchBox(self._client, token)

    def submit(self, spec: FetchBoxSpec) -> FetchBoxReceipt:
        """Submit a manifest. When it returns the manifest is stored and its downloads are queued;
        they survive a crash of the server.

        :raises InvalidError: with the code ``UNSUPPORTED_JOB_TYPE`` for a job type that is not
            registered. After an error of the server no part of the job is stored, and the same key
            may be used again.

        Repeating under the same idempotency key returns the first job, whatever the manifest is. It
        does that itself after lost answers. When it gives up, the error has the key.
        """
        op = "fetchbox submit"
        key = spec.idempotency_key or secrets.token_urlsafe(20)
        headers = {"X-Fetchbox-Job-Type": spec.type, "X-Fetchbox-Idempotency-Key": key}
        if spec.tenant:
            headers["X-Fetchbox-Tenant"] = spec.tenant
        if spec.callback_url:
            headers["X-Fetchbox-Callback-Url"] = spec.callback_url
        with refusing(op):
            for name, value in headers.items():
                _wire.check_header(name, value)
            manifest = spec.manifest
            if isinstance(manifest, FetchBoxManifest):
                manifest = manifest.encode()
            body = encode(manifest, "manifest")
        if len(body) >= _COMPRESS_FROM:
            body = gzip.compress(body)
            headers["Content-Encoding"] = "gzip"
        call = Call(op, "POST", "/jobs", headers=headers, body=body, accept=(202,))
        with errors_with_key(key):
            receipt = self._client._http.call_json(
                self._client._context(), call, FetchBoxReceipt
            )
        receipt.idempotency_key = key
        return receipt

    def job(self, job_id: str) -> FetchBoxJob:
        """Read a job from the ledger. Repeating is safe.

        :raises NotFoundError: also after the ledger has pruned the job.
        """
        return self._job(self._client._context(), job_id)

    def _job(self, ctx: Context, job_id: str) -> FetchBoxJob:
        op = "fetchbox job"
        path = f"{_JOBS}/{segment(op, 'job id', job_id)}"
        return self._call(Call(op, "GET", path, read_only=True), FetchBoxJob, ctx)

    def jobs(self, filter: Optional[FetchBoxFilter] = None) -> Iterator[FetchBoxJob]:
        """Iterate over the jobs of the ledger, the newest first. A job that exists throughout comes
        exactly once. With a status, a job that changes its status meanwhile may be missed."""
        filter = filter or FetchBoxFilter()
        query = {"status": filter.status}
        return self._pages("fetchbox jobs", _JOBS, FetchBoxJob, query, filter.page_size)

    def wait(self, job_id: str, timeout: Optional[float] = None) -> FetchBoxJob:
        """Poll a job until it has finished, and return it. It polls after growing pauses of up to
        two seconds, and continues while the server is unavailable or limits requests. A failed job
        has finished; a replay may put it in progress again.

        :raises NotFoundError: if there is no such job.
        :raises DeadlineError: when the timeout in seconds has passed.
        """

        def poll(ctx: Context) -> Tuple[FetchBoxJob, bool]:
            job = self._job(ctx, job_id)
            return job, job.finished

        return watch(self._client._http, "fetchbox wait", timeout, poll)

    def logs(
        self,
        job_id: str,
        *,
        since: int = 0,
        follow: bool = False,
        timeout: Optional[float] = None,
    ) -> Iterator[FetchBoxLogEntry]:
        """Iterate over the log of a job: each entry once, in order. When the connection breaks, it
        continues after the last entry, as the client's retry policy says, whose tries are counted
        from zero after each entry. It ends after the last entry.

        :param since: The offset of the first entry; 0 means the first of the job. To continue a
            log, pass the offset of the last entry plus one.
        :param follow: Wait for new entries after the last one. The iterator ends when it is closed,
            then.
        :param timeout: Bounds in seconds how long entries may come; :class:`DeadlineError` then.
        :raises NotFoundError: if there is no such job.
        :raises RetryableError: when the tries are used up.
        """
        op = "fetchbox logs"
        path = f"{_JOBS}/{segment(op, 'job id', job_id)}/logs"
        return self._logs(op, path, since, follow, timeout)

    def _logs(
        self, op: str, path: str, since: int, following: bool, timeout: Optional[float]
    ) -> Iterator[FetchBoxLogEntry]:
        def request() -> Call:
            query: Dict[str, Any] = {"since_offset": since, "limit": _LOG_PAGE}
            if following:
                query = {"since_offset": since, "follow": "true"}
            return self._as_operator(Call(op, "GET", path, query=query_of(query), read_only=True))

        def entry(line: bytes) -> Optional[FetchBoxLogEntry]:
            nonlocal since
            if not line.strip():
                return None
            found = _wire.read(FetchBoxLogEntry, _wire.decode(line))
            if found.offset < since:
                raise ValueError(f"entry {found.offset} comes after {since}")
            since = found.offset + 1
            return found

        with Context(timeout=timeout) as ctx:
            yield from follow(
                self._client._http,
                ctx,
                request,
                entry,
                lambda count: not following and count < _LOG_PAGE,
                at_once=not following,
                max_line=_MAX_LOG_LINE,
            )

    def cancel(self, job_id: str) -> FetchBoxJob:
        """End the open downloads of a job as failed, with the code ``CANCELED``, and return it. The
        job is failed soon after.

        :raises NotFoundError: if there is no such job.
        :raises ConflictError: when no download is open, also when a try whose answer was lost has
            ended them: the error is uncertain then. After another error some downloads of a large
            job may be canceled, and a repeat cancels the rest.
        """
        return self._operate("fetchbox cancel", job_id, "cancel")

    def retry(self, job_id: str) -> FetchBoxJob:
        """Start all failed downloads of a job again, with all their attempts, and return the job,
        which is in progress then.

        :raises Error: as :meth:`cancel`, for downloads that have failed.
        """
        return self._operate("fetchbox retry", job_id, "retry")

    def _operate(self, op: str, job_id: str, what: str) -> FetchBoxJob:
        """Change the downloads of a job."""
        path = f"{_JOBS}/{segment(op, 'job id', job_id)}/{what}"
        return self._call(Call(op, "POST", path, accept=(202,)), FetchBoxJob)

    def dead_letters(self, page_size: int = 0) -> Iterator[FetchBoxDeadLetter]:
        """Iterate over the downloads that were given up, the newest first, and ask for
        ``page_size`` of them at a time; 0 leaves the size to the server. A dead letter that was
        replayed stays in the list until its retention ends."""
        op = "fetchbox dead letters"
        return self._pages(op, _DEAD_LETTERS_PATH, FetchBoxDeadLetter, {}, page_size)

    def replay(self, offset: int) -> FetchBoxReplay:
        """Start the download of a dead letter again, with all its attempts. The job of the download
        is in progress again.

        :raises NotFoundError: when there is no such dead letter.
        :raises ConflictError: when its download was replayed already, or belongs to no job of the
            ledger.

        Repeating: a repeat before the download has finished is a :class:`ConflictError`, which is
        uncertain after a lost answer. A repeat after it has failed again is another replay.
        """
        path = f"{_DEAD_LETTERS_PATH}/{int(offset)}/replay"
        return self._call(Call("fetchbox replay", "POST", path, accept=(202,)), FetchBoxReplay)

    def health(self) -> FetchBoxHealth:
        """Read the health of the server and its parts. A part that is down is no error, unless the
        server cannot answer without it. Repeating is safe."""
        call = Call("fetchbox health", "GET", "/operators/health", accept=(200, 503))
        call.read_only = True
        return self._call(call, FetchBoxHealth)

    def _call(self, call: Call, cls: Type[T], ctx: Optional[Context] = None) -> T:
        """Make a call of an operator whose answer is an object."""
        return self._client._http.call_json(
            ctx or self._client._context(), self._as_operator(call), cls
        )

    def _as_operator(self, call: Call) -> Call:
        call.token = self._operator
        return call

    def _pages(
        self, op: str, path: str, cls: Type[T], query: Dict[str, Any], size: int
    ) -> Iterator[T]:
        return list_pages(
            self._client._http,
            self._client._context,
            lambda text: self._as_operator(Call(op, "GET", path, query=text, read_only=True)),
            cls,
            query,
            size,
        )
