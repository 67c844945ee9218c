"""The manifests, jobs and logs of FetchBox."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from . import _wire
from ._wire import UNSET, ZERO_TIME, RawJSON, Word, check_name, encode, named, words

__all__ = [
    "FetchBoxComponent",
    "FetchBoxDeadLetter",
    "FetchBoxFailure",
    "FetchBoxFilter",
    "FetchBoxHealth",
    "FetchBoxJob",
    "FetchBoxLogEntry",
    "FetchBoxLogPosition",
    "FetchBoxManifest",
    "FetchBoxProxy",
    "FetchBoxReceipt",
    "FetchBoxReplay",
    "FetchBoxResource",
    "FetchBoxSpec",
    "FetchBoxStatus",
    "FetchBoxStorage",
    "FetchBoxTask",
]


class FetchBoxStatus(Word):
    """The status of a job."""

    QUEUED: FetchBoxStatus
    """No download has started."""
    IN_PROGRESS: FetchBoxStatus
    """Not all downloads have finished."""
    COMPLETED: FetchBoxStatus
    """All downloads succeeded."""
    FAILED: FetchBoxStatus
    """All have finished, not all succeeded."""

    @property
    def final(self) -> bool:
        """Whether all downloads of the job have finished."""
        return self in ("completed", "failed")


words(FetchBoxStatus, "queued", "in_progress", "completed", "failed")


@dataclass
class FetchBoxResource:
    """One download."""

    id: str
    """At most 128 characters, unique within the manifest."""
    url: str
    """Begins with http:// or https://."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent with the request; they override those of the job type: at most 10, with values of at
    most 1024 bytes."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Passed to the handler and the storage, within the same limits."""


@dataclass
class FetchBoxManifest:
    """A manifest of version v1."""

    resources: Sequence[FetchBoxResource]
    """The downloads, 1 to 1000 unless the server's settings say otherwise."""
    metadata: Any = field(default_factory=dict)
    """A JSON object that is kept as it is."""
    attributes: Any = UNSET
    """A JSON object for handlers."""

    def encode(self) -> RawJSON:
        """Encode the manifest.

        :raises ValueError: which says which resource has no id or URL, or which value is not JSON.
        """
        parts = []
        for i, resource in enumerate(self.resources):
            try:
                parts.append(_encode_resource(resource))
            except ValueError as error:
                raise ValueError(f"resource {i}: {error}") from None
        members: List[Tuple[str, bytes]] = [
            ("manifest_version", b'"v1"'),
            ("metadata", encode(self.metadata, "metadata")),
            ("resources", _wire.array_of(parts)),
        ]
        if self.attributes is not UNSET:
            members.append(("attributes", encode(self.attributes, "attributes")))
        return RawJSON(_wire.object_of(members))


def _encode_resource(resource: FetchBoxResource) -> bytes:
    check_name("id", resource.id)
    check_name("url", resource.url)
    members = {"id": encode(resource.id), "url": encode(resource.url)}
    for name, texts in (("headers", resource.headers), ("tags", resource.tags)):
        if texts:
            members[name] = encode(dict(texts), name)
    return _wire.object_of(members.items())


@dataclass
class FetchBoxSpec:
    """A manifest as it is submitted."""

    type: str
    """A job type of the server's settings."""
    manifest: Any
    """A :class:`FetchBoxManifest`, or a manifest as JSON: a value, or :class:`RawJSON`."""
    tenant: str = ""
    """Recorded with the job and its downloads; empty for none."""
    idempotency_key: str = ""
    """Makes a submit repeatable: within the server's window, the same tenant, type and key return
    the same job. Empty means a random one."""
    callback_url: str = ""
    """Receives a request when the job is completed or failed; empty for none. Requests are signed
    with the secret that ``millrace operator secret fetchbox`` prints, see
    :func:`verify_webhook`."""


@dataclass
class FetchBoxReceipt:
    """The answer to a submitted manifest, which is stored and queued."""

    job_id: str
    """A UUID."""
    manifest_key: str = ""
    """The URI of the stored manifest."""
    resources: int = named("resource_count", default=0)
    """The number of resources in the manifest."""
    idempotency_key: str = named("", default="")
    """The key that was sent."""


@dataclass
class FetchBoxFailure:
    """Why a download failed. The code is ``HTTP_`` and a status, begins with ``DOWNLOAD_``,
    ``UPLOAD_``, ``HANDLER_`` or ``SYSTEM_``, or is ``CANCELED``."""

    code: str = ""
    message: str = ""


@dataclass
class FetchBoxLogPosition:
    """A position in a stream."""

    stream: str = ""
    offset: int = 0


@dataclass
class FetchBoxJob:
    """A job as the ledger has it."""

    id: str = named("job_id")
    type: str = named("job_type", default="")
    status: FetchBoxStatus = FetchBoxStatus("")
    created_at: datetime = ZERO_TIME
    updated_at: datetime = ZERO_TIME
    """It changes with every progress."""
    finished_at: Optional[datetime] = None
    """``None`` until all downloads have finished and the job's handler has returned."""
    total: int = named("resource_total", default=0)
    completed: int = named("resource_completed", default=0)
    failed: int = named("resource_failed", default=0)
    """These three count downloads."""
    manifest_key: str = ""
    """Empty when a direct producer published the tasks without one."""
    tenant: str = ""
    log_start: FetchBoxLogPosition = named("log_cursor", default_factory=FetchBoxLogPosition)
    """Where the job's log begins."""
    last_error: Optional[FetchBoxFailure] = None
    """The latest failure; ``None`` when there was none."""
    callback_url: str = ""
    """Receives a request when the job has finished; empty for none."""

    @property
    def finished(self) -> bool:
        """Whether the job has finished: all of its downloads have finished and its handler has
        returned. Between the two its status may be final already."""
        return self.status.final and self.finished_at is not None

    @property
    def remaining(self) -> int:
        """The number of downloads that have not finished."""
        return self.total - self.completed - self.failed


@dataclass
class FetchBoxFilter:
    """Selects the jobs of a list."""

    status: str = ""
    """Keep only the jobs in this status; empty keeps all."""
    page_size: int = 0
    """How many jobs each request asks for, from 1 to 100; 0 leaves it to the server."""


@dataclass
class FetchBoxProxy:
    """Names pools of proxies: the first is used until it fails, then the fallbacks in their
    order."""

    primary: str = ""
    fallbacks: List[str] = field(default_factory=list)


@dataclass
class FetchBoxStorage:
    """Where a download is stored."""

    bucket: str = ""
    key: str = ""
    metadata: Dict[str, str] = field(default_factory=dict)


@dataclass
class FetchBoxTask:
    """A download as the server has it. It is what the payload of a :class:`JobWorker` for FetchBox
    means, see :meth:`of`."""

    job_id: str = ""
    job_type: str = ""
    resource_id: str = ""
    url: str = ""
    headers: Dict[str, str] = field(default_factory=dict)
    tags: Dict[str, str] = field(default_factory=dict)
    proxy: Optional[FetchBoxProxy] = None
    storage: Optional[FetchBoxStorage] = None
    manifest_key: str = ""
    tenant: str = ""
    trace_id: str = ""
    attempt: int = 0

    @classmethod
    def of(cls, payload: Any) -> FetchBoxTask:
        """Make a task of a payload.

        :raises ValueError: if it is none.
        """
        return _wire.read(cls, payload)


@dataclass
class FetchBoxDeadLetter:
    """A download that was given up."""

    offset: int
    """Identifies the dead letter, for :meth:`FetchBox.replay`."""
    task: Any = None
    """A :class:`FetchBoxTask` as JSON, or whatever a direct producer published instead of one."""
    code: str = named("failure_code", default="")
    message: str = named("failure_message", default="")
    attempts: int = 0
    failed_at: datetime = ZERO_TIME
    replayed_at: Optional[datetime] = None
    """When it was replayed; ``None`` if it was not."""
    replayed_as: Optional[str] = None
    """The resource that was ready again then."""


@dataclass
class FetchBoxReplay:
    """The answer to a replay."""

    job_id: str = ""
    resource_id: str = ""
    status: str = ""
    """Of the download: queued."""


@dataclass
class FetchBoxLogEntry:
    """One entry in the log of a job."""

    offset: int
    """It increases along the log."""
    job_id: str = ""
    resource_id: str = ""
    """Empty in an entry about the job as a whole."""
    level: str = ""
    """``info``, ``warn`` or ``error``."""
    message: str = ""
    fields: Dict[str, Any] = field(default_factory=dict)
    timestamp_ms: int = 0
    """Milliseconds since 1970."""
    trace_id: str = ""


@dataclass
class FetchBoxComponent:
    """The health of one part of the server: ``ok``, ``degraded`` or ``down``."""

    status: str = ""
    detail: str = ""


@dataclass
class FetchBoxHealth:
    """The health of the server and of its parts: api, ledger, stream, storage and proxy_pools."""

    status: str = ""
    components: Dict[str, FetchBoxComponent] = field(default_factory=dict)
