"""What operators see of queues, dead letters, workers, nodes and schedules."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, List, Optional

from ._wire import ZERO_TIME, named

__all__ = [
    "AdminComponent",
    "AdminConnectionPool",
    "AdminDeadLetter",
    "AdminDeadLetterFilter",
    "AdminDeadLetterGroup",
    "AdminHealth",
    "AdminNode",
    "AdminNodeComponent",
    "AdminQueue",
    "AdminQueueChange",
    "AdminQueueFilter",
    "AdminSchedule",
    "AdminScheduleSpec",
    "AdminScheduleTick",
    "AdminWorker",
]


@dataclass
class AdminQueue:
    """A queue with its counts and what is in force for it."""

    contract: str
    queue: str
    waiting: int = 0
    """Jobs that wait for others or for their time."""
    delayed: int = 0
    """Jobs that wait for a retry."""
    ready: int = 0
    """Jobs that may be claimed."""
    leased: int = 0
    """Jobs that are claimed."""
    dead: int = 0
    """Dead letters that were not replayed."""
    workers: int = 0
    """Workers that claim from it, over all nodes, without those that are drained. A remote worker
    counts for a minute after its last request, unless it has left."""
    last_claim_at: Optional[datetime] = named("last_asked_at", default=None)
    """When a worker last tried to claim from it, on any node; ``None`` is never within a week."""
    oldest_ready_at: Optional[datetime] = None
    """Since when the first job is ready, of any priority; ``None`` where none is."""
    submitted_per_minute: Optional[float] = None
    started_per_minute: Optional[float] = None
    succeeded_per_minute: Optional[float] = None
    failed_per_minute: Optional[float] = None
    """New jobs, attempts that began, succeeded, and failed or were lost, over five minutes on all
    nodes; ``None`` where the server has too many active queues to count each."""
    wait_p50: Optional[float] = None
    wait_p95: Optional[float] = None
    run_p50: Optional[float] = None
    run_p95: Optional[float] = None
    """Percentiles of how long jobs were ready before an attempt, and of how long attempts took, in
    seconds, over five minutes; ``None`` where there was none. They are estimates."""
    paused: bool = False
    max_running: int = named("run_limit", default=0)
    """How many jobs run at a time, over all nodes; 0 is no limit."""
    rate_limit: int = named("rate", default=0)
    """How many jobs start in every rate period, over all nodes; 0 is no limit."""
    rate_period: str = ""
    """A duration such as ``1m``; empty without a rate limit."""


@dataclass
class AdminQueueFilter:
    """Selects queues. Empty members select all."""

    contract: str = ""
    name_contains: str = ""
    order: str = ""
    """``name``, ``depth``, ``age`` or ``failures``; empty is by contract and name."""
    include_internal: bool = False
    """Whether to list those of the server's own jobs too: bulk operations and schedules."""
    page_size: int = 0


@dataclass
class AdminQueueChange:
    """What to set for a queue. Members that are ``None`` stay as they are."""

    paused: Optional[bool] = None
    max_running: Optional[int] = named("run_limit", default=None)
    """0 is no limit."""
    rate_limit: Optional[int] = named("rate", default=None)
    """0 is no limit."""
    rate_period: Optional[str] = None
    """Such as ``1m``; needed with a first rate limit."""


@dataclass
class AdminDeadLetter:
    """A job that was given up, kept so that it can be replayed."""

    id: int
    """Unique over all contracts. It is not the number of the job."""
    fingerprint: str = ""
    """What dead letters of one reason share: it is made of contract, queue, type and text of the
    error, without numbers, paths and other text that varies."""
    contract: str = ""
    queue: str = ""
    number: int = 0
    """The place of the job in the store."""
    job_id: str = ""
    """The contract's id of the job."""
    attempts: int = 0
    worker: str = ""
    """The worker of the last attempt."""
    error_type: str = ""
    """The type or code of the failure; of a job without one, why it was given up."""
    error: str = ""
    """The text of the failure, at most 4 KiB; empty where there is none."""
    failed_at: datetime = named("at", default=ZERO_TIME)
    """When the job was given up."""
    replayed_at: Optional[datetime] = None
    replayed_as: Optional[int] = None
    """When it was last replayed, and the number of the job that ran then. Both are ``None`` for one
    that was not replayed."""


@dataclass
class AdminDeadLetterGroup:
    """What dead letters with one fingerprint have in common that were not replayed."""

    fingerprint: str
    contract: str = ""
    queue: str = ""
    error_type: str = ""
    error: str = ""
    """Type and text of the error are those of the newest dead letter."""
    count: int = 0
    first_at: datetime = ZERO_TIME
    last_at: datetime = ZERO_TIME


@dataclass
class AdminDeadLetterFilter:
    """Selects dead letters. Empty members select all."""

    contract: str = ""
    queue: str = ""
    fingerprint: str = ""
    job_id: str = ""
    """The contract's id of the job, exactly."""
    error_contains: str = ""
    """A text in the type or text of the error, without case."""
    failed_from: Optional[datetime] = None
    """Inclusive."""
    failed_before: Optional[datetime] = None
    """Exclusive."""
    page_size: int = 0


@dataclass
class AdminWorker:
    """A worker as one node knows it. One that talks to several nodes, or works for several
    contracts, is an entry for each."""

    name: str
    node: str = ""
    kind: str = ""
    """``process`` for one of the node's own, else ``outside``."""
    contract: str = ""
    queues: List[str] = field(default_factory=list)
    """Those that it claims from; none means all."""
    running: List[int] = field(default_factory=list)
    """The numbers of the jobs that it executes."""
    concurrency: Optional[int] = named("slots", default=None)
    """How many jobs it executes at once; ``None`` where the server does not know that."""
    first_seen: datetime = ZERO_TIME
    last_seen: datetime = ZERO_TIME
    succeeded: int = 0
    failed: int = 0
    """The attempts that it has ended on this node."""
    version: str = ""
    """That of its node, or how its program names itself; empty where it does not."""
    draining: bool = False
    """Whether it is given no further jobs."""
    gone: bool = False
    """Whether it has sent no request for a minute and runs nothing: most likely it has
    ended."""


@dataclass
class AdminConnectionPool:
    """How the connections of a node to its store are used."""

    in_use: int = 0
    open: int = 0
    max: int = 0


@dataclass
class AdminNodeComponent:
    """Something that a node depends on."""

    kind: str = ""
    """What it is, such as ``postgres``."""
    state: str = ""
    """``ok`` or ``failing``."""
    latency_p95: Optional[float] = None
    """That of the transactions of the last five seconds, in seconds; ``None`` for none."""
    connections: Optional[AdminConnectionPool] = named("pool", default=None)
    """``None`` where it has none, as SQLite."""


@dataclass
class AdminNode:
    """A node as it wrote last that it is."""

    name: str
    """Another one after each start."""
    version: str = ""
    address: str = ""
    started_at: datetime = ZERO_TIME
    last_seen: datetime = ZERO_TIME
    """A node writes every five seconds."""
    draining: bool = False
    gone: bool = False
    """Whether it has written nothing for 15 seconds; the rest is as it wrote it last."""
    contracts: List[str] = field(default_factory=list)
    leader_roles: List[str] = named("duties", default_factory=list)
    """The roles in which it is the leader."""
    goroutines: int = 0
    memory_bytes: int = named("memory", default=0)
    open_files: Optional[int] = None
    """``None`` where the system does not show it."""
    store: AdminNodeComponent = field(default_factory=AdminNodeComponent)
    stream: Optional[AdminNodeComponent] = None
    objects: Optional[AdminNodeComponent] = None


@dataclass
class AdminComponent:
    """Something that a node depends on, as its health shows it."""

    name: str
    state: str = ""
    """``ok`` or ``failing``."""
    state_since: datetime = named("since", default=ZERO_TIME)
    """When the state began, as far as the node knows."""
    optional: bool = False
    """Whether it may fail while the node is ready."""
    latency: float = 0.0
    """How long it took to find out, in seconds."""
    last_error: Optional[str] = None
    last_error_at: Optional[datetime] = None
    """Why the component failed last, and when; ``None`` if it has not since the node started."""


@dataclass
class AdminHealth:
    """The health of the components that a node depends on."""

    ok: bool = False
    """Whether every component works that is not optional."""
    components: List[AdminComponent] = named("parts", default_factory=list)


@dataclass
class AdminScheduleSpec:
    """What a schedule submits, and when. With :meth:`Admin.set_schedule` members that are ``None``
    stay as they are. Durations are texts such as ``90s``."""

    cron: Optional[str] = None
    """Five fields, or six with seconds first, or ``@hourly`` and the like. It or ``every`` is
    needed."""
    every: Optional[str] = None
    """The duration from each tick to the next one, from 1s."""
    time_zone: Optional[str] = None
    """That of cron, such as ``Europe/Berlin``; UTC without one."""
    contract: Optional[str] = None
    """Gets the jobs, such as ``taskflow``."""
    request: Any = None
    """What the contract's own route would take."""
    owner: Optional[str] = None
    """The client of ForgeRun, which needs one, or the tenant of FetchBox."""
    job_type: Optional[str] = None
    """The job type of FetchBox."""
    callback_url: Optional[str] = None
    """The URL that receives a request when a job of FetchBox is finished; requests of other
    contracts have their own."""
    overlap: Optional[str] = None
    """What happens while the job of an earlier tick is not finished: ``allow`` (the default),
    ``skip``, ``queue`` or ``replace``."""
    catch_up: Optional[str] = None
    """What happens about ticks that were missed in a downtime or a pause: ``last`` (the default),
    ``none`` or ``all``."""
    jitter: Optional[str] = None
    """The most by which a job is submitted after its tick."""
    paused: Optional[bool] = None
    """A paused schedule submits nothing."""
    starts_at: Optional[datetime] = None
    """The earliest time that may be a tick."""
    ends_at: Optional[datetime] = None
    """The time from which on there are no ticks."""


@dataclass
class AdminScheduleTick:
    """What was done about a tick of a schedule."""

    time: datetime
    """The tick."""
    at: datetime = ZERO_TIME
    """When it was done."""
    lateness: float = 0.0
    """How long that was after the tick and its jitter, in seconds."""
    outcome: str = ""
    """``submitted``, ``skipped`` or ``missed``."""
    job_number: int = named("job", default=0)
    """The number of the job that was submitted, 0 for none."""
    earlier_missed: int = named("passed", default=0)
    """How many earlier ticks, which were missed, this one stands for."""
    error: str = ""
    """Why nothing was submitted."""


@dataclass
class AdminSchedule:
    """A schedule; see :class:`AdminScheduleSpec` for its definition."""

    name: str
    cron: str = ""
    every: str = ""
    """One of these two is empty."""
    time_zone: str = ""
    contract: str = ""
    request: Any = None
    owner: str = ""
    job_type: str = ""
    callback_url: str = ""
    overlap: str = ""
    catch_up: str = ""
    jitter: str = ""
    paused: bool = False
    starts_at: Optional[datetime] = None
    ends_at: Optional[datetime] = None
    from_settings: bool = False
    """Whether the settings define it: it can be paused, and changed there alone."""
    created_at: datetime = ZERO_TIME
    next_times: List[datetime] = named("next", default_factory=list)
    """The times of its next ticks, without jitter."""
    last_tick: Optional[AdminScheduleTick] = named("latest", default=None)
    """What was done about its latest tick; ``None`` before the first."""
    failing_tick: Optional[datetime] = named("failing", default=None)
    """A tick whose job could not be submitted; it is tried again."""
    error: str = ""
    """Why it could not."""
    queued_tick: Optional[datetime] = named("queued", default=None)
    """A tick that waits until the job of an earlier one is finished."""
