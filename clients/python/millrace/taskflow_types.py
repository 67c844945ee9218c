"""The jobs of TaskFlow."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, List, Optional, Sequence, Tuple, Union

from . import _wire
from ._wire import UNSET, ZERO_TIME, Word, check_name, encode, named, words

__all__ = [
    "TaskFlowBackoffStrategy",
    "TaskFlowCallback",
    "TaskFlowEdge",
    "TaskFlowFailure",
    "TaskFlowFilter",
    "TaskFlowGraph",
    "TaskFlowGraphJob",
    "TaskFlowJob",
    "TaskFlowPage",
    "TaskFlowPatch",
    "TaskFlowRetryPolicy",
    "TaskFlowSpec",
    "TaskFlowStatus",
]


class TaskFlowStatus(Word):
    """The status of a job."""

    PENDING: TaskFlowStatus
    """Waits for its dependencies."""
    READY: TaskFlowStatus
    """Can be claimed, or waits for its next attempt."""
    RUNNING: TaskFlowStatus
    COMPLETED: TaskFlowStatus
    FAILED: TaskFlowStatus
    """Its attempts are used up, or a failure was final."""
    BLOCKED: TaskFlowStatus
    """A dependency has failed or is blocked."""

    @property
    def final(self) -> bool:
        """Whether the job has finished."""
        return self in ("COMPLETED", "FAILED", "BLOCKED")


words(TaskFlowStatus, "PENDING", "READY", "RUNNING", "COMPLETED", "FAILED", "BLOCKED")


class TaskFlowBackoffStrategy(Word):
    """How the backoff grows from attempt to attempt: the delay after the n-th failed attempt is
    the base delay, n times the base delay, or doubled with each failure."""

    FIXED: TaskFlowBackoffStrategy
    LINEAR: TaskFlowBackoffStrategy
    EXPONENTIAL: TaskFlowBackoffStrategy


words(TaskFlowBackoffStrategy, "FIXED", "LINEAR", "EXPONENTIAL")


@dataclass
class TaskFlowRetryPolicy:
    """A retry policy. A member that is 0 or empty means TaskFlow's default."""

    max_attempts: int = 0
    """Limits the failed attempts, from 1 to 10; 3 by default."""
    strategy: TaskFlowBackoffStrategy = named(
        "backoff_strategy", default=TaskFlowBackoffStrategy("")
    )
    """How the delay grows; exponentially by default."""
    base_delay: float = named("base_delay_seconds", default=0.0)
    """The first delay in seconds, from 1 to 300; 10 by default. The wire has whole seconds;
    fractions are rounded up."""
    max_delay: float = named("max_delay_seconds", default=0.0)
    """Limits the delay, from the base delay to 3600 s, rounded like it; 300 s by default."""


@dataclass
class TaskFlowCallback:
    """A URL that gets events of one job. Requests are signed with the secret that ``millrace
    operator secret taskflow`` prints, see :func:`verify_webhook`."""

    url: str
    events: List[str] = field(default_factory=list)
    """Types, or patterns with ``*``, such as ``taskflow.job.started``. Without one those that end
    the job."""


@dataclass
class TaskFlowSpec:
    """A job as it is created."""

    name: str
    """1 to 255 characters."""
    queue: str
    """1 to 64 letters, digits and underscores."""
    payload: Any = UNSET
    """Any JSON of up to 65,536 bytes; without one it is ``{}``."""
    priority: int = 0
    """From 1 to 10; a job of higher priority is claimed first. 0 means 5."""
    dependencies: List[str] = field(default_factory=list)
    """The ids of at most 50 jobs that must be COMPLETED before this one runs."""
    retry: Optional[TaskFlowRetryPolicy] = named("retry_policy", default=None)
    """The retry policy; ``None`` is TaskFlow's default."""
    callback: Optional[TaskFlowCallback] = None
    """Receives requests about events of the job; ``None`` for none."""


@dataclass
class TaskFlowPatch:
    """A change of a job. What is not given stays as it is."""

    name: Optional[str] = None
    queue: Optional[str] = None
    priority: Optional[int] = None
    payload: Any = UNSET
    """Replaces the whole payload."""
    dependencies: Optional[Sequence[str]] = None
    """Replace all dependencies."""
    retry: Optional[TaskFlowRetryPolicy] = None
    """Replaces the whole policy: its members that are 0 or empty mean TaskFlow's defaults, not the
    present values."""


@dataclass
class TaskFlowFailure:
    """The failure report of a worker."""

    message: str = named("error", default="")
    error_type: str = ""
    retryable: bool = False
    """What the worker reported."""


@dataclass
class TaskFlowJob(TaskFlowSpec):
    """A job as the server has it, with the defaults of its definition filled in."""

    id: str = ""
    """A UUID."""
    status: TaskFlowStatus = TaskFlowStatus("")
    created_at: datetime = ZERO_TIME
    updated_at: datetime = ZERO_TIME
    failed_attempts: int = named("attempt_count", default=0)
    """The number of failed attempts."""
    next_run_at: Optional[datetime] = None
    """When a READY job that waits for its next attempt can be claimed; ``None`` for all others."""
    result: Any = None
    """The result of the attempt that completed the job; ``None`` for none. Only
    :meth:`TaskFlow.get` returns it and ``last_error``."""
    last_error: Optional[TaskFlowFailure] = None
    """The latest failure that a worker reported; ``None`` if there was none."""
    rerun_of: str = ""
    """The id of the job of which this one is a copy; empty for none."""
    rerun_as: str = ""
    """The id of the last copy that was made of this one; empty for none."""


@dataclass
class TaskFlowFilter:
    """Selects the jobs of a search. A job must match everything that is set."""

    queue: str = ""
    status: str = ""
    priority_min: int = 0
    priority_max: int = 0
    """Both limits of the priority are inclusive; 0 means no limit."""
    created_after: Optional[datetime] = None
    """Inclusive."""
    created_before: Optional[datetime] = None
    """Exclusive."""
    page_size: int = 0
    """How many jobs each request asks for, from 1 to 100; 0 leaves it to the server, which sends
    20."""


@dataclass
class TaskFlowPage:
    """One page of a search."""

    jobs: List[TaskFlowJob]
    """The newest first, and those of the same time by id."""
    next: str
    """The cursor of the next page; empty on the last page."""


@dataclass
class TaskFlowGraphJob:
    """A job in a graph."""

    id: str = named("job_id")
    name: str = ""
    queue: str = ""
    status: TaskFlowStatus = TaskFlowStatus("")
    priority: int = 0
    failed_attempts: int = named("attempt_count", default=0)


@dataclass
class TaskFlowEdge:
    """Says that job ``to_id`` depends on job ``from_id``."""

    from_id: str = named("from")
    to_id: str = named("to")


@dataclass
class TaskFlowGraph:
    """A set of jobs that are connected by dependencies."""

    jobs: List[TaskFlowGraphJob] = named("nodes", default_factory=list)
    edges: List[TaskFlowEdge] = field(default_factory=list)
    truncated: bool = False
    """Whether the graph has more than the 2,000 jobs in ``jobs``."""

    @property
    def final(self) -> bool:
        """Whether every job of the graph has finished."""
        return all(job.status.final for job in self.jobs)


Members = List[Tuple[str, bytes]]


def encode_retry(retry: TaskFlowRetryPolicy) -> bytes:
    """Encode a policy, without the members that mean the default."""
    members: Members = []
    if retry.max_attempts:
        members.append(("max_attempts", encode(retry.max_attempts)))
    if retry.strategy:
        members.append(("backoff_strategy", encode(retry.strategy)))
    for name, delay in (
        ("base_delay_seconds", retry.base_delay),
        ("max_delay_seconds", retry.max_delay),
    ):
        if delay:
            members.append((name, encode(_wire.whole_seconds(delay))))
    return _wire.object_of(members)


def spec_members(spec: TaskFlowSpec) -> Members:
    """Encode all members but the dependencies."""
    check_name("name", spec.name)
    check_name("queue", spec.queue)
    members: Members = [("name", encode(spec.name)), ("queue", encode(spec.queue))]
    if spec.priority:
        members.append(("priority", encode(spec.priority)))
    if spec.retry is not None and spec.retry != TaskFlowRetryPolicy():
        members.append(("retry_policy", encode_retry(spec.retry)))
    if spec.payload is not UNSET:
        members.append(("payload", encode(spec.payload, "payload")))
    if spec.callback is not None:
        if not isinstance(spec.callback, TaskFlowCallback):
            kind = type(spec.callback).__name__
            raise TypeError(f"callback is a {kind}, not a TaskFlowCallback")
        members.append(("callback", _encode_callback(spec.callback)))
    return members


def _encode_callback(callback: TaskFlowCallback) -> bytes:
    members: Members = [("url", encode(callback.url, "callback"))]
    if callback.events:
        members.append(("events", encode(list(callback.events), "callback")))
    return _wire.object_of(members)


def encode_spec(spec: TaskFlowSpec) -> bytes:
    """Encode a job as it is created."""
    members = spec_members(spec)
    if spec.dependencies:
        members.append(("dependencies", encode(list(spec.dependencies))))
    return _wire.object_of(members)


def encode_patch(patch: TaskFlowPatch) -> bytes:
    """Encode a change of a job."""
    members: Members = []
    for name in ("name", "queue", "priority"):
        value: Union[str, int, None] = getattr(patch, name)
        if value is not None:
            members.append((name, encode(value)))
    if patch.payload is not UNSET:
        members.append(("payload", encode(patch.payload, "payload")))
    if patch.dependencies is not None:
        members.append(("dependencies", encode(list(patch.dependencies))))
    if patch.retry is not None:
        members.append(("retry_policy", encode_retry(patch.retry)))
    return _wire.object_of(members)
