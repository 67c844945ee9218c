"""The files and jobs of Images."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import List, Optional

from ._wire import ZERO_TIME, Word, named, words

__all__ = [
    "ImageDeadLetter",
    "ImageFile",
    "ImageFileStatus",
    "ImageJob",
    "ImageJobFilter",
    "ImageJobStatus",
    "ImageJobType",
    "ImageReceipt",
    "ImageVariant",
]


class ImageJobType(Word):
    """The type of a job."""

    PROCESS_FILE: ImageJobType
    """Makes variants."""
    DELETE_FILE: ImageJobType
    """Removes the file and its variants."""


words(ImageJobType, "process_file", "delete_file")


class ImageJobStatus(Word):
    """The status of a job."""

    QUEUED: ImageJobStatus
    PROCESSING: ImageJobStatus
    COMPLETED: ImageJobStatus
    FAILED_RETRYABLE: ImageJobStatus
    """An attempt failed, another follows."""
    FAILED: ImageJobStatus
    """No attempt follows: it is a dead letter."""

    @property
    def final(self) -> bool:
        """Whether no attempt follows."""
        return self in ("completed", "failed")


words(ImageJobStatus, "queued", "processing", "completed", "failed_retryable", "failed")


class ImageFileStatus(Word):
    """The status of a file."""

    PROCESSING: ImageFileStatus
    """Its first variants are being made."""
    READY: ImageFileStatus
    """It has variants; more may follow."""
    FAILED: ImageFileStatus
    """It gets none, unless by a replay."""
    DELETED: ImageFileStatus
    """Also while its objects are removed."""


words(ImageFileStatus, "processing", "ready", "failed", "deleted")


@dataclass
class ImageReceipt:
    """The answer to an upload, which the server has stored."""

    file_id: str = ""
    job_id: str = ""
    """The id of the job that makes the variants."""
    status: ImageJobStatus = ImageJobStatus("")
    """The status of the job."""
    idempotency_key: str = named("", default="")
    """The key that was sent."""


@dataclass
class ImageVariant:
    """A variant of a picture. Its longer side has ``size`` pixels, or as many as that of the
    original if that is shorter."""

    size: int = 0
    width: int = 0
    height: int = 0
    bytes: int = 0
    key: str = ""
    """The key of its object in the object storage; it ends in .jpg or .png."""
    url: str = ""
    """Its path on the server."""


@dataclass
class ImageFile:
    """A picture and its variants."""

    id: str = named("file_id")
    status: ImageFileStatus = ImageFileStatus("")
    type: str = named("mime_type", default="")
    """The media type of the upload, and the detected one once the file is ready."""
    bytes: int = named("size_bytes", default=0)
    width: int = 0
    height: int = 0
    """Width and height are 0 until the file is ready."""
    variants: List[ImageVariant] = field(default_factory=list)
    """In the order of their sizes."""
    job_id: str = ""
    """The id of the file's latest job."""


@dataclass
class ImageJob:
    """A job of a file."""

    id: str = named("job_id")
    type: str = named("job_type", default="")
    """See :class:`ImageJobType`."""
    status: ImageJobStatus = ImageJobStatus("")
    file_id: str = ""
    user_id: str = ""
    """That of the upload; empty for none."""
    attempts: int = named("attempt_count", default=0)
    max_attempts: int = 0
    last_error: str = ""
    last_error_type: str = ""
    """The latest failed attempt; both are empty when none failed."""
    created_at: datetime = ZERO_TIME
    updated_at: datetime = ZERO_TIME
    locked_at: Optional[datetime] = None
    """``None`` unless the job is processing."""
    callback_url: str = ""
    """Receives a request when the job has finished; empty for none."""


@dataclass
class ImageJobFilter:
    """Selects the jobs of a list."""

    status: str = ""
    """Keep only the jobs in this status; empty keeps all."""
    type: str = ""
    """Keep only the jobs of this type; empty keeps all."""
    page_size: int = 0
    """How many jobs each request asks for, from 1 to 100; 0 leaves it to the server."""


@dataclass
class ImageDeadLetter:
    """A job that was given up."""

    job_id: str
    type: str = named("job_type", default="")
    file_id: str = ""
    error: str = ""
    error_type: str = ""
    attempts: int = 0
    failed_at: datetime = ZERO_TIME
    replayed_at: Optional[datetime] = None
    """When it was last replayed; ``None`` if it was not."""
    replayed_as: Optional[str] = None
    """The id of the job that was made then."""
