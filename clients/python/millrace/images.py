"""Images: pictures are uploaded, and the server makes variants of them.

:meth:`Images.upload` streams a picture to the server, :meth:`Images.wait` waits until its variants
are made, and :meth:`Images.variant` downloads one::

    images = client.images()
    with open("cat.jpg", "rb") as picture:
        receipt = images.upload(picture, name="cat.jpg", sizes=[100, 400])
    file = images.wait(receipt.file_id)
    with images.variant(file.id, 100) as small:
        shutil.copyfileobj(small, out)
"""

from __future__ import annotations

import io
import os
import secrets
import urllib.parse
from http.client import HTTPException, HTTPResponse
from typing import (
    TYPE_CHECKING,
    Any,
    BinaryIO,
    Dict,
    Iterator,
    Optional,
    Sequence,
    Tuple,
    Type,
    TypeVar,
    Union,
)

from . import _wire
from ._context import Context
from ._follow import list_pages, read_some, watch
from ._http import Call, Exchange, Upload, segment
from ._wire import encode
from .errors import RetryableError, errors_with_key, refusing
from .images_types import (
    ImageDeadLetter,
    ImageFile,
    ImageFileStatus,
    ImageJobFilter,
    ImageJob,
    ImageReceipt,
    ImageJobStatus,
)

if TYPE_CHECKING:
    from .client import Client

__all__ = ["Images"]

T = TypeVar("T")

_FILES_PATH = "/images/v1/files"
_JOBS_PATH = "/images/v1/jobs"
_DEAD_LETTERS_PATH = "/images/v1/dead-letters"

_TYPES = {
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".png": "image/png",
    ".gif": "image/gif",
    ".webp": "image/webp",
}
"""The supported media types by the extension of a file name."""


class _Download(io.RawIOBase):
    """A picture that is being downloaded."""

    def __init__(self, op: str, exchange: Exchange, response: HTTPResponse) -> None:
        self._op = op
        self._exchange = exchange
        self._response = response
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            try:
                self._rest = read_some(self._response)
            except (OSError, HTTPException) as error:
                raise RetryableError(self._op, transient=True, cause=error)
        view = memoryview(buffer)
        count = min(len(view), len(self._rest))
        view[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def close(self) -> None:
        if not self.closed:
            self._exchange.close()
        super().close()


class Images:
    """The Images contract. Every error is an :class:`Error`, with the contract's code when the
    server answered. It may be used by several threads. Made by :meth:`Client.images`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def upload(
        self,
        body: Union[bytes, BinaryIO],
        *,
        type: str = "",
        name: str = "",
        sizes: Optional[Sequence[int]] = None,
        user_id: str = "",
        idempotency_key: str = "",
        callback_url: str = "",
    ) -> ImageReceipt:
        """Upload a picture, a JPEG, PNG, GIF or WebP according to its media type. When it returns
        the picture is stored and its job is queued; both survive a crash of the server. The request
        timeout bounds how long an upload may make no progress, not how long it takes.

        :param body: The picture, or a binary file that is streamed, so that memory does not grow
            with it. If the file can seek, a repeated try reads it again from its present position;
            otherwise there is only one try. It is not closed.
        :param type: The media type, such as ``image/png``. Empty means that of the extension of
            ``name``.
        :param name: A file name, used for its extension only: it is not sent.
        :param sizes: The longer sides of the variants in pixels: at most 20, each from 1 to 8192.
            ``None`` means those of the server's settings.
        :param user_id: Listed with the jobs of the file; empty for none.
        :param idempotency_key: Makes an upload repeatable: the same key returns the same file.
            Empty means a random one.
        :param callback_url: Receives a request when the job of the upload is completed or failed;
            empty for none. Requests are signed with the secret that ``millrace operator secret
            images`` prints, see :func:`verify_webhook`.
        :raises InvalidError: with the code ``UNSUPPORTED_IMAGE_TYPE`` or ``UPLOAD_TOO_LARGE``.
            After an error of the server no part of the file is stored.

        Repeating under the same idempotency key returns the first file, whatever the picture is. It
        does that itself after lost answers if the body can be read again. When it gives up, the
        error has the key.
        """
        op = "images upload"
        key = idempotency_key or secrets.token_urlsafe(20)
        # Any other type is sent as it is: the server refuses it with its own message.
        known = _TYPES.get(os.path.splitext(name)[1].lower(), "application/octet-stream")
        headers = {"Content-Type": type or known, "Idempotency-Key": key}
        if user_id:
            headers["X-User-Id"] = user_id
        with refusing(op):
            for what, value in headers.items():
                _wire.check_header(what, value)
            stream = _open(body)
        call = Call(op, "POST", _FILES_PATH, headers=headers, stream=stream, accept=(202,))
        query = {"callback_url": callback_url} if callback_url else {}
        if sizes is not None:
            query["sizes"] = ",".join(str(int(size)) for size in sizes)
        call.query = urllib.parse.urlencode(query, safe=",")
        call.single_try = stream.start is None
        with errors_with_key(key):
            receipt = self._call(call, ImageReceipt)
        receipt.idempotency_key = key
        return receipt

    def file(self, file_id: str) -> ImageFile:
        """Read a file: its status and its variants. Repeating is safe.

        :raises NotFoundError: if there is no such file.
        """
        return self._file(self._client._context(), file_id)

    def _file(self, ctx: Context, file_id: str) -> ImageFile:
        op = "images file"
        path = f"{_FILES_PATH}/{segment(op, 'file id', file_id)}"
        return self._call(Call(op, "GET", path, read_only=True), ImageFile, ctx)

    def wait(self, file_id: str, timeout: Optional[float] = None) -> ImageFile:
        """Poll a file until its first variants are made, it has failed or it is deleted, and return
        it. For variants that are added to a ready file use :meth:`wait_job`. It polls after growing
        pauses of up to two seconds, and continues while the server is unavailable or limits
        requests.

        :raises NotFoundError: if there is no such file.
        :raises DeadlineError: when the timeout in seconds has passed.
        """

        def poll(ctx: Context) -> Tuple[ImageFile, bool]:
            file = self._file(ctx, file_id)
            return file, file.status != ImageFileStatus.PROCESSING

        return watch(self._client._http, "images wait", timeout, poll)

    def content(self, file_id: str) -> io.BufferedReader:
        """Open the original as it was uploaded: a binary file that can be read once and must be
        closed, as by a ``with`` statement. The request timeout bounds the time until the picture
        begins, and the timeout of the client's calls the reading.

        :raises NotFoundError: with the code ``FILE_DELETED`` for a deleted file.
        :raises RetryableError: by the file, for a picture that breaks off.
        """
        return self._download("images content", file_id, "/content")

    def variant(self, file_id: str, size: int) -> io.BufferedReader:
        """Open a variant of a file, as :meth:`content` opens the original. The size is the one that
        was asked for.

        :raises NotFoundError: with the code ``VARIANT_NOT_FOUND`` when there is no variant of this
            size, or not yet.
        """
        return self._download("images variant", file_id, f"/variants/{int(size)}")

    def _download(self, op: str, file_id: str, part: str) -> io.BufferedReader:
        path = f"{_FILES_PATH}/{segment(op, 'file id', file_id)}{part}"
        call = Call(op, "GET", path, read_only=True)
        http, ctx = self._client._http, self._client._context()
        exchange, response = http.retry(ctx, call, lambda: http.open_stream(ctx, call))
        return io.BufferedReader(_Download(op, exchange, response))

    def delete(self, file_id: str) -> str:
        """Delete a file and return the id of the job that removes its objects. When it returns the
        file is deleted for all callers. Its objects are removed when the job has completed, see
        :meth:`wait_job`. Repeating returns the same job, unless that has failed.

        :raises NotFoundError: if there is no such file.
        """
        op = "images delete"
        path = f"{_FILES_PATH}/{segment(op, 'file id', file_id)}"
        return self._call(Call(op, "DELETE", path, accept=(202,)), ImageReceipt).job_id

    def submit_job(
        self,
        job_type: str,
        file_id: str,
        sizes: Optional[Sequence[int]] = None,
        *,
        callback_url: str = "",
    ) -> ImageJob:
        """Store another job for a file: ``process_file`` for more variants or ``delete_file`` for
        its deletion, see :class:`ImageJobType`. ``sizes`` are the longer sides of the variants in
        pixels; ``None`` means those of the server's settings. ``callback_url`` is as in
        :meth:`upload`; a job that deletes has none.

        :raises NotFoundError: with the code ``FILE_DELETED`` for a deleted file.

        Repeating would store a second job, so a try whose answer was lost is not repeated, see
        :attr:`Error.uncertain`. A second job costs time and changes nothing.
        """
        op = "images submit job"
        request: Dict[str, Any] = {"type": job_type, "file_id": file_id}
        if sizes:
            request["sizes"] = list(sizes)
        if callback_url:
            request["callback_url"] = callback_url
        with refusing(op):
            body = encode(request, "job")
        call = Call(op, "POST", _JOBS_PATH, body=body, accept=(202,), not_idempotent=True)
        return self._call(call, ImageJob)

    def job(self, job_id: str) -> ImageJob:
        """Read a job. Repeating is safe.

        :raises NotFoundError: if there is no such job.
        """
        return self._job(self._client._context(), job_id)

    def _job(self, ctx: Context, job_id: str) -> ImageJob:
        op = "images job"
        path = f"{_JOBS_PATH}/{segment(op, 'job id', job_id)}"
        return self._call(Call(op, "GET", path, read_only=True), ImageJob, ctx)

    def wait_job(self, job_id: str, timeout: Optional[float] = None) -> ImageJob:
        """Poll a job until no attempt of it follows, and return it. It polls as :meth:`wait` does.

        :raises NotFoundError: if there is no such job.
        :raises DeadlineError: when the timeout in seconds has passed.
        """

        def poll(ctx: Context) -> Tuple[ImageJob, bool]:
            job = self._job(ctx, job_id)
            return job, job.status.final

        return watch(self._client._http, "images wait job", timeout, poll)

    def jobs(self, filter: Optional[ImageJobFilter] = None) -> Iterator[ImageJob]:
        """Iterate over the jobs, the newest first. A job that exists throughout comes exactly once.
        With a status, a job that changes its status meanwhile may be missed."""
        filter = filter or ImageJobFilter()
        query = {"status": filter.status, "type": filter.type}
        return self._pages("images jobs", _JOBS_PATH, ImageJob, query, filter.page_size)

    def republish_message(self, job_id: str) -> ImageJobStatus:
        """Publish the message of a job once more, which notifies a worker when the first message
        was lost. It changes nothing else. It returns the status of the job. Repeating is safe.

        :raises NotFoundError: if there is no such job.
        """
        op = "images republish message"
        segment(op, "job id", job_id)
        call = Call(op, "POST", "/images/v1/messages", body=encode({"job_id": job_id}))
        call.accept = (202,)
        return self._call(call, ImageReceipt).status

    def dead_letters(self, page_size: int = 0) -> Iterator[ImageDeadLetter]:
        """Iterate over the jobs that were given up, the newest first, and ask for ``page_size`` of
        them at a time; 0 leaves the size to the server. A dead letter that was replayed stays in
        the list until its retention ends."""
        op = "images dead letters"
        return self._pages(op, _DEAD_LETTERS_PATH, ImageDeadLetter, {}, page_size)

    def replay(self, job_id: str) -> ImageJob:
        """Create a new job that does what the job of a dead letter was to do.

        :raises NotFoundError: if there is no such job.
        :raises ConflictError: with the code ``NOT_REPLAYABLE`` for a job that is not a dead letter.

        Repeating: as with :meth:`submit_job`, a try whose answer was lost is not repeated.
        """
        op = "images replay"
        path = f"{_DEAD_LETTERS_PATH}/{segment(op, 'job id', job_id)}/replay"
        return self._call(Call(op, "POST", path, accept=(202,), not_idempotent=True), ImageJob)

    def cancel_job(self, job_id: str) -> ImageJob:
        """Give up a job that waits for another attempt, and return it.

        :raises NotFoundError: if there is no such job.
        :raises ConflictError: for a job in any other status, also when a try whose answer was lost
            has given it up: the error is uncertain then.
        """
        op = "images cancel"
        path = f"{_JOBS_PATH}/{segment(op, 'job id', job_id)}/cancel"
        return self._call(Call(op, "POST", path), ImageJob)

    def _call(self, call: Call, cls: Type[T], ctx: Optional[Context] = None) -> T:
        return self._client._http.call_json(ctx or self._client._context(), call, cls)

    def _pages(
        self, op: str, path: str, cls: Type[T], query: Dict[str, Any], size: int
    ) -> Iterator[T]:
        return list_pages(
            self._client._http,
            self._client._context,
            lambda text: Call(op, "GET", path, query=text, read_only=True),
            cls,
            query,
            size,
        )


def _open(body: Union[bytes, BinaryIO]) -> Upload:
    """Measure a body by seeking, if it can seek."""
    if isinstance(body, (bytes, bytearray, memoryview)):
        body = io.BytesIO(body)
    if not hasattr(body, "read"):
        raise ValueError("the body is neither bytes nor a binary file")
    try:
        start = body.tell()
        size = body.seek(0, os.SEEK_END) - start
        body.seek(start)
    except (OSError, AttributeError):  # a pipe
        return Upload(body, None, None)
    return Upload(body, start, size)
