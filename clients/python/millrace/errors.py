"""Errors of calls, and what handlers raise.

Every call of a contract fails with an :class:`Error`. Its subclasses are the kinds to catch::

    Error
     ├── NotFoundError        no such job, or its file was deleted (404, 410)
     ├── ConflictError        the present state forbids the call (409)
     │    └── CycleError      dependencies that form a cycle; an InvalidError too
     ├── InvalidError         the request was refused, or not sent (400, 413, 415, 422)
     ├── UnauthorizedError    the token is missing, wrong or without permission (401, 403)
     ├── RetryableError       the same call may succeed later (429, 502, 503, 504, no answer)
     ├── NotMillraceError     the answer is not one of Millrace
     ├── RunLostError         the run is not the job's current one any more
     ├── RunFinishedError     the run was requeued or released, or its handler has returned
     ├── DeadlineError        the timeout of the caller has passed; a TimeoutError too
     └── CanceledError        the worker has ended the call

An answer of any other kind, such as a 500, is an :class:`Error` itself.
"""

from __future__ import annotations

import http
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Optional, Type

__all__ = [
    "CanceledError",
    "ConflictError",
    "CycleError",
    "DeadlineError",
    "DrainTimeoutError",
    "Error",
    "InvalidError",
    "InvalidWebhookError",
    "JobError",
    "NotFoundError",
    "NotMillraceError",
    "Release",
    "RetryableError",
    "RunCanceledError",
    "RunFinishedError",
    "RunLostError",
    "UnauthorizedError",
    "final",
]

_RETRYABLE = (429, 502, 503, 504)
_INVALID = (400, 413, 415, 422)

FETCH_UNSUPPORTED_JOB_TYPE = "UNSUPPORTED_JOB_TYPE"
"""The code with which FetchBox answers 403 to a job type that is not registered."""


class Error(Exception):
    """The error of every call of a contract. ``__cause__`` is what it was caused by."""

    def __init__(
        self,
        op: str,
        *,
        status: int = 0,
        code: str = "",
        message: str = "",
        cycle: Optional[List[str]] = None,
        copies: Optional[Dict[str, str]] = None,
        instance: str = "",
        server: str = "",
        retry_after: float = 0.0,
        uncertain: bool = False,
        transient: bool = False,
        cause: Optional[BaseException] = None,
    ) -> None:
        super().__init__(op)
        self.op = op
        """The name of the call, such as ``"relay enqueue"``."""
        self.status = status
        """The HTTP status of the last answer; 0 when none came."""
        self.code = code
        """The contract's code of the failure; empty where it has none."""
        self.message = message
        """The server's explanation, if it gave one."""
        self.cycle = cycle if cycle is not None else []
        """With a :class:`CycleError`, the jobs of the cycle, each once: by their ids, or by their
        refs when a graph was refused before it was sent."""
        self.copies = copies if copies is not None else {}
        """With the :class:`ConflictError` of a rerun, the ids of the jobs that an earlier rerun
        has made, by the ids of their originals."""
        self.instance = instance
        """The id of the request in the server's log; empty when no answer came."""
        self.server = server
        """The address that answered, where it refuses the token (401): the token may be that of
        another server. Else it is empty."""
        self.retry_after = retry_after
        """How many seconds the server asked the caller to wait; 0 when it did not."""
        self.uncertain = uncertain
        """Whether a try of this call may have taken effect although no success was seen: its
        answer was lost, or it was a 5xx. With a :class:`ConflictError` it means that the
        conflicting job may be the one that this call has stored."""
        self.idempotency_key = ""
        """The idempotency key of a submission that has failed. Submit again under the same key to
        learn whether the job exists."""
        self.transient = transient
        """Whether no answer came and another try may get one."""
        self.all_refused = False
        """Whether every try of the call was refused, with 429, 503 or no connection."""
        self.__cause__ = cause

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later: the server said so (429, 503), a gateway could
        not reach it (502, 504), or the connection failed."""
        if self.status == 0:
            return self.transient
        return self.status in _RETRYABLE

    @property
    def is_refusal(self) -> bool:
        """Whether a try found no server, or one that does not serve the call now."""
        not_connected = self.transient and not self.uncertain
        return not_connected or self.status in (429, 503)

    def __str__(self) -> str:
        text = "millrace: " + self.op
        if self.status:
            text += f": {self.status} {_phrase(self.status)}".rstrip()
        for part in (self.code, self.message):
            if part:
                text += ": " + part
        if self.server:
            text += f" (the answer of {self.server})"
        if self.instance:
            text += f" (request {self.instance})"
        if self.__cause__ is not None:
            text += f": {str(self.__cause__) or type(self.__cause__).__name__}"
        if self.uncertain and not self.all_refused:
            text += " (a try may have taken effect)"
        return text


class NotFoundError(Error):
    """There is no such job (404), or the file was deleted (410)."""


class ConflictError(Error):
    """The present state forbids the call (409), such as a job of the batch that exists already in
    mode unique. :attr:`Error.uncertain` marks a conflict that may be with the call's own earlier
    try."""


class InvalidError(Error):
    """The content of the request was refused (400, 413, 415, 422, and the 403 of FetchBox), by
    the server or, before anything was sent, by this package. The same request will be refused
    again."""


class CycleError(ConflictError, InvalidError):
    """The dependencies of a TaskFlow job would form a cycle. :attr:`Error.cycle` lists the
    jobs."""


class UnauthorizedError(Error):
    """The token is missing, wrong or without permission (401, 403)."""


class RetryableError(Error):
    """The same call may succeed later, see :attr:`Error.retryable`."""


class NotMillraceError(Error):
    """The answer is not one of Millrace, such as the page of another web server, or of a proxy
    that has another address for the server."""


class RunLostError(Error):
    """The run id is not the job's current one any more, because the job timed out, was replaced,
    requeued, completed or deleted."""


class RunFinishedError(Error):
    """The handler has already requeued or released this run, or has returned, so that nothing
    more can be sent for it."""


class DeadlineError(Error, TimeoutError):
    """The timeout that the caller has set for a call, with all of its tries, has passed."""


class CanceledError(Error):
    """The worker has ended the call before an answer came. ``__cause__`` says why."""


class RunCanceledError(Exception):
    """The answer to a heartbeat asked the run to end. The run still has its lease: what the
    handler returns counts. See :attr:`millrace.Run.cause`."""


class DrainTimeoutError(Exception):
    """Handlers of a worker did not finish within its drain timeout, or the worker was killed."""


class InvalidWebhookError(Exception):
    """A request to a webhook has no valid signature, or an old one. The receiver should answer it
    with a 4xx and ignore it."""


class Release(Exception):
    """For the handler of a :class:`millrace.JobWorker` to raise: the job is released, because the
    run could not do its work for a reason outside the job. No failure is counted where the
    contract allows that."""


class JobError(Exception):
    """For the handler of a :class:`millrace.JobWorker` to raise: a failure with what its report
    says about it. ``error_type`` names the kind of failure in up to 255 characters. ``final`` says
    that no other run can succeed: the job fails without another attempt."""

    def __init__(self, message: str, *, error_type: str = "", final: bool = False) -> None:
        super().__init__(message)
        self.error_type = error_type
        self.final = final


def final(failure: BaseException) -> JobError:
    """Return a :class:`JobError` that is final, for a handler to raise from another exception::

        raise millrace.final(error) from error
    """
    error_type = type(failure).__name__
    if isinstance(failure, JobError):
        error_type = failure.error_type
    return JobError(describe(failure), error_type=error_type, final=True)


def describe(failure: BaseException) -> str:
    """Return the text of an exception, or the name of its class where it has none."""
    return str(failure) or type(failure).__name__


def kind_of(status: int, code: str, transient: bool) -> Type[Error]:
    """Return the class of the error of an answer, or of a try that got none."""
    if status in (404, 410):
        return NotFoundError
    if status == 409:
        return RunLostError if code == "RUN_LOST" else ConflictError
    if status == 403 and code == FETCH_UNSUPPORTED_JOB_TYPE:
        return InvalidError
    if status in (401, 403):
        return UnauthorizedError
    if status in _INVALID:
        return InvalidError
    if status in _RETRYABLE or (status == 0 and transient):
        return RetryableError
    return Error


def error_of(
    op: str, *, status: int = 0, code: str = "", transient: bool = False, **members: Any
) -> Error:
    """Make an error of the class that its status and code say."""
    kind = kind_of(status, code, transient)
    if kind is ConflictError and members.get("cycle"):
        kind = CycleError
    return kind(op, status=status, code=code, transient=transient, **members)


def invalid(op: str, problem: object) -> InvalidError:
    """Make the error of a request that was refused before it was sent."""
    cause = problem if isinstance(problem, BaseException) else ValueError(str(problem))
    return InvalidError(op, cause=cause)


@contextmanager
def refusing(op: str) -> Iterator[None]:
    """Make what cannot be sent, a ValueError, an error of the call."""
    try:
        yield
    except ValueError as error:
        raise invalid(op, error)


@contextmanager
def errors_with_key(key: str) -> Iterator[None]:
    """Give the errors of a submission its idempotency key."""
    try:
        yield
    except Error as error:
        error.idempotency_key = key
        raise


def answer_error(op: str, problem: object, *, status: int = 0, uncertain: bool = False) -> Error:
    """Make the error of an answer that cannot be read."""
    cause = ValueError(f"answer: {problem}")
    return Error(op, status=status, uncertain=uncertain, cause=cause)


def _phrase(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return ""


def as_kind(kind: Type[Error], error: Error) -> Error:
    """Return the same error as one of another class."""
    other = kind(error.op)
    other.__dict__.update(error.__dict__)
    other.__cause__ = error.__cause__
    return other
