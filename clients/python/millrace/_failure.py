"""What the report of a failed handler says."""

from __future__ import annotations

from typing import Optional

from .errors import JobError, RunCanceledError, describe

_MAX_TEXT = 8 << 10  # bytes of an explanation that are sent
_MAX_TYPE = 255


def text_of(failure: BaseException) -> str:
    """Return the explanation of a failure."""
    return truncate(describe(failure))


def type_of(failure: BaseException, cause: Optional[BaseException]) -> str:
    """Name the kind of a failure: what its JobError says, or the class of the exception. ``cause``
    is why the handler's context had ended, else None."""
    if isinstance(failure, JobError):
        return failure.error_type
    if isinstance(cause, RunCanceledError):
        return "canceled"
    return type(failure).__name__[:_MAX_TYPE]


def truncate(text: str) -> str:
    """Cut a text to what the server takes, and make it UTF-8."""
    raw = text.encode("utf-8", "replace")
    if len(raw) > _MAX_TEXT:
        return raw[:_MAX_TEXT].decode("utf-8", "replace") + "…"
    return raw.decode("utf-8")
