"""What operators see of jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Dict, List, Optional

from ._wire import ZERO_TIME, Word, named, words

__all__ = [
    "AdminAction",
    "AdminActionResult",
    "AdminBody",
    "AdminContract",
    "AdminCount",
    "AdminCountQuery",
    "AdminJob",
    "AdminJobDetail",
    "AdminJobFilter",
    "AdminJobLinks",
    "AdminReason",
    "AdminReasonCode",
    "AdminSubmission",
    "AdminTimeline",
    "AdminTimelineEntry",
    "AdminWhy",
]


class AdminAction(Word):
    """What an operator may do with a job. Which of them a job allows depends on its contract and
    state, see :attr:`AdminActionResult.actions`."""

    RETRY: AdminAction
    """Makes a failed job ready once more; it stays the same job."""
    RERUN: AdminAction
    """Makes a new job of one that is finished."""
    RUN_NOW: AdminAction
    """Makes a job that waits for its time due now."""
    CANCEL: AdminAction
    RELEASE: AdminAction
    """Gives a leased job back. Its run is lost."""
    DELETE: AdminAction


words(AdminAction, "retry", "rerun", "cancel", "release", "delete")
AdminAction.RUN_NOW = AdminAction("run-now")


class AdminBody(Word):
    """Names a body of a job."""

    PAYLOAD: AdminBody
    """What was submitted."""
    DEFINITION: AdminBody
    """What the contract keeps of a job."""
    PROGRESS: AdminBody
    """The latest progress."""
    RESULT: AdminBody
    """What the work has left."""
    FAILURE: AdminBody
    """Why a job failed."""


words(AdminBody, "payload", "definition", "progress", "result", "failure")


class AdminReasonCode(Word):
    """Names a reason why a job does not run, or that it does. Later servers may have further
    ones."""

    RUNNING: AdminReasonCode
    NOT_DUE: AdminReasonCode
    BACKING_OFF: AdminReasonCode
    WAITS_FOR_DEPENDENCIES: AdminReasonCode
    WAITS_FOR_CHILDREN: AdminReasonCode
    DEPENDENCY_FAILED: AdminReasonCode
    QUEUE_PAUSED: AdminReasonCode
    QUEUE_LIMIT: AdminReasonCode
    CONTRACT_LIMIT: AdminReasonCode
    RATE_LIMITED: AdminReasonCode
    BEHIND_OTHER_JOBS: AdminReasonCode
    """Other jobs of its queue are claimed first."""
    NO_WORKERS: AdminReasonCode
    """No worker has claimed from its queue for half a minute or longer."""
    NODE_DRAINING: AdminReasonCode
    MESSAGE_PENDING: AdminReasonCode
    DONE: AdminReasonCode
    DEAD: AdminReasonCode


words(AdminReasonCode, *(name.lower() for name in AdminReasonCode.__annotations__))
AdminReasonCode.BEHIND_OTHER_JOBS = AdminReasonCode("behind")
AdminReasonCode.NO_WORKERS = AdminReasonCode("nobody_asks")


@dataclass
class AdminContract:
    """A contract that the node which answers serves."""

    contract: str
    states: List[str] = field(default_factory=list)
    """Those of its jobs in its own words, in alphabetical order."""


@dataclass
class AdminJob:
    """A job as operators see it, with the words of its contract. Members that have no meaning for
    the job are ``None``."""

    number: int
    """The place of the job in the store. It is unique over all contracts."""
    contract: str = ""
    queue: str = ""
    id: str = ""
    """The contract's id of the job."""
    kind: Optional[str] = None
    """The contract's word for what kind of job it is, such as ``manifest``."""
    state: str = ""
    """The contract's word for the state of the job."""
    phase: str = ""
    """``waiting``, ``ready``, ``leased``, ``done`` or ``dead``: with a dead letter that was not
    replayed."""
    priority: Optional[int] = None
    """Higher for jobs that are claimed first."""
    attempts: int = 0
    """How often the job was claimed."""
    failures: int = 0
    """How many of the attempts have failed."""
    max_attempts: Optional[int] = named("run_limit", default=None)
    """The failures after which it is given up."""
    created_at: datetime = ZERO_TIME
    updated_at: datetime = ZERO_TIME
    due_at: Optional[datetime] = None
    """It is not claimed before."""
    started_at: Optional[datetime] = None
    """When the present or the last attempt began."""
    finished_at: Optional[datetime] = named("settled_at", default=None)
    """When the job was finished."""
    lease_until: Optional[datetime] = None
    """When the attempt is lost without a heartbeat."""
    worker: Optional[str] = None
    """That of the present or the last attempt."""
    owner: Optional[str] = None
    """The client, tenant or file that the job belongs to."""
    parent_number: Optional[int] = named("parent", default=None)
    """The number of the job that this one is a child of."""
    children: Optional[int] = None
    """How many children this one has."""
    open_dependencies: Optional[int] = None
    """How many jobs it still waits for."""
    error: Optional[str] = None
    """The first line of the failure, of 200 characters at most."""
    size: Optional[int] = None
    """The bytes of the job, as its contract counts them."""


@dataclass
class AdminJobLinks:
    """Paths of what is known of a job elsewhere on the server."""

    contract: Optional[str] = None
    """The contract's own route of the job."""
    why: str = ""
    timeline: str = ""
    parent: Optional[str] = None
    """The job that it is a child of."""


@dataclass
class AdminJobDetail(AdminJob):
    """A job with its bodies. Each is JSON as it is, an object ``{"encoding": "base64", "data": …}``
    where it is not JSON, and ``None`` where there is none or the token may not see it. Of one that
    is longer than 64 KiB it is the start, as a string; :meth:`Admin.job_body` has all of it."""

    payload: Any = None
    """What was submitted."""
    definition: Any = None
    """What its contract keeps of it."""
    progress: Any = None
    """The latest progress."""
    result: Any = None
    """What the work has left."""
    failure: Any = None
    """Why it failed."""
    payload_truncated: bool = False
    definition_truncated: bool = False
    progress_truncated: bool = False
    result_truncated: bool = False
    failure_truncated: bool = False
    actions: List[AdminAction] = field(default_factory=list)
    """Those that the job allows now."""
    dead_letter_id: Optional[int] = named("dead_letter", default=None)
    """The id of its latest dead letter."""
    replayed_as: Optional[int] = None
    """The number of the job that this was replayed as."""
    links: AdminJobLinks = field(default_factory=AdminJobLinks)


@dataclass
class AdminActionResult(AdminJob):
    """A job right after an operator has changed or submitted it. Its state is ``gone`` for a job
    that was deleted."""

    source_number: Optional[int] = named("made_from", default=None)
    """The number of the job that the action was on, where it made this one."""
    actions: List[AdminAction] = field(default_factory=list)
    """Those that the job allows now."""


@dataclass
class AdminJobFilter:
    """Selects jobs. Empty members select all."""

    contract: str = ""
    queue: str = ""
    states: List[str] = field(default_factory=list)
    """The contract's own words."""
    phases: List[str] = field(default_factory=list)
    """``waiting``, ``ready``, ``leased``, ``done`` and ``dead``."""
    owner: str = ""
    kind: str = ""
    id: str = ""
    """The contract's id, exactly."""
    numbers: List[int] = field(default_factory=list)
    """Those of some jobs, at most 1,000."""
    parent_number: int = 0
    worker: str = ""
    created_from: Optional[datetime] = None
    created_before: Optional[datetime] = None
    finished_from: Optional[datetime] = None
    finished_before: Optional[datetime] = None
    """From is inclusive, before is exclusive."""
    min_age: str = ""
    max_age: str = ""
    """Durations since the creation, such as ``90m``."""
    min_attempts: int = 0
    error_contains: str = ""
    """A text in the failure, without case."""
    body_contains: str = ""
    """A text in definition, payload or result, without case."""


@dataclass
class AdminReason:
    """One reason."""

    code: AdminReasonCode = AdminReasonCode("")
    text: str = ""
    """The reason for people."""
    facts: Dict[str, Any] = field(default_factory=dict)
    """What the text was made of, by name. Each code has its own; the OpenAPI document of the admin
    API describes them."""


@dataclass
class AdminWhy:
    """Says why a job does not run, or that it does."""

    number: int = 0
    contract: str = ""
    """The contract of its queue, as the list of queues has it."""
    queue: str = ""
    summary: str = named("sentence", default="")
    """The answer for people: the text of the first reason."""
    reasons: List[AdminReason] = field(default_factory=list)
    """All that hold, the one that holds the job longest first. There are none where the
    next claim of its queue takes the job."""
    next: Optional[datetime] = None
    """The earliest time at which that may change by itself; ``None`` if no reason has one."""


@dataclass
class AdminTimelineEntry:
    """One thing that happened to a job. Members without meaning for its kind are ``None``."""

    at: datetime
    kind: str = ""
    """``submitted``, ``state``, ``attempt``, ``progress``, ``log``, ``message``, ``delivery``,
    ``dependency``, ``child`` or ``operator``; later servers may have further ones."""
    text: Optional[str] = None
    """For people; ``None`` where the token may not see what jobs carry."""
    duration: Optional[float] = named("lasted", default=None)
    """How long it lasted, in seconds; ``None`` while it lasts."""
    state: Optional[str] = None
    """The contract's word for the state that was entered; of a dependency, a child and a delivery
    the present one."""
    cause: Optional[str] = None
    worker: Optional[str] = None
    run_id: Optional[str] = None
    from_time: Optional[datetime] = named("from", default=None)
    to_time: Optional[datetime] = named("to", default=None)
    outcome: Optional[str] = None
    error: Optional[str] = None
    """From ``worker`` on these are members of an attempt."""
    number: Optional[int] = None
    """That of the dependency, child or delivery."""
    id: Optional[str] = None
    """Its contract's id."""
    actor: Optional[str] = None
    """Who has done the action, as the audit has it."""
    action: Optional[str] = None


@dataclass
class AdminTimeline:
    """What happened to a job."""

    entries: List[AdminTimelineEntry] = field(default_factory=list)
    """In the order of their times."""
    truncated: bool = False
    """Whether there is more than these entries, of which there are 2,000 at most."""


@dataclass
class AdminCount:
    """How many jobs have one value of what is counted by. The other members are ``None``."""

    contract: Optional[str] = None
    queue: Optional[str] = None
    phase: Optional[str] = None
    state: Optional[str] = None
    kind: Optional[str] = None
    worker: Optional[str] = None
    count: Optional[int] = None
    """How many there are. Where more were counted than the server counts one by one, it is
    ``None``, and ``at_least`` is set."""
    at_least: Optional[int] = None


@dataclass
class AdminCountQuery:
    """Asks for counts. Contract and queue are filters; empty ones select all."""

    by: str
    """``contract``, ``queue``, ``phase``, ``state``, ``kind`` or ``worker``."""
    contract: str = ""
    queue: str = ""
    page_size: int = 0


@dataclass
class AdminSubmission:
    """A job to be submitted in place of a client."""

    contract: str
    """The contract, such as ``taskflow``."""
    request: Any
    """What the contract's own route would take: a JSON object."""
    owner: str = ""
    """The client of ForgeRun, which needs one, or the tenant of FetchBox."""
    job_type: str = ""
    """The job type of FetchBox."""
    callback_url: str = ""
    """The URL that is notified of the end of the job. Requests of others hold their own."""
    idempotency_key: str = ""
    """Makes one job of several submissions with the same key."""
