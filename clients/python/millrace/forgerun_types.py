"""The jobs, keys and webhooks of ForgeRun."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import List, Optional

from ._wire import ZERO_TIME, Word, named, words

__all__ = [
    "ForgeRunAPIKey",
    "ForgeRunActionResult",
    "ForgeRunCreatedWebhook",
    "ForgeRunDefinition",
    "ForgeRunDelivery",
    "ForgeRunDeliveryStatus",
    "ForgeRunDeliveryAttempt",
    "ForgeRunEvent",
    "ForgeRunEventName",
    "ForgeRunFailure",
    "ForgeRunFilter",
    "ForgeRunIssuedAPIKey",
    "ForgeRunJob",
    "ForgeRunOutcome",
    "ForgeRunReceipt",
    "ForgeRunDeliveryReplayFilter",
    "ForgeRunDeliveryReplayResult",
    "ForgeRunReport",
    "ForgeRunSpec",
    "ForgeRunState",
    "ForgeRunType",
    "ForgeRunWebhook",
    "ForgeRunWebhookTest",
    "ForgeRunWorkKind",
]


class ForgeRunType(Word):
    """The type that a job is submitted as."""

    EXECUTE: ForgeRunType
    """A job that runs at once, or at its time if it has one."""
    DEFERRED: ForgeRunType
    """A job that must have a time."""
    EMIT_EVENT: ForgeRunType
    """A job whose purpose is its sequence of events."""


words(ForgeRunType, "EXECUTE", "DEFERRED", "EMIT_EVENT")


class ForgeRunState(Word):
    """The state of a job. Of the final ones, a job can leave only FAILED, by a retry."""

    CREATED: ForgeRunState
    QUEUED: ForgeRunState
    ASSIGNED: ForgeRunState
    RUNNING: ForgeRunState
    SUCCEEDED: ForgeRunState
    FAILED: ForgeRunState
    CANCELED: ForgeRunState

    @property
    def final(self) -> bool:
        """Whether the job has finished: it has an outcome and a report then."""
        return self in ("SUCCEEDED", "FAILED", "CANCELED")


words(ForgeRunState, "CREATED", "QUEUED", "ASSIGNED", "RUNNING", "SUCCEEDED", "FAILED", "CANCELED")


class ForgeRunOutcome(Word):
    """How a job ended; empty for a job that has not."""

    SUCCESS: ForgeRunOutcome
    FAILED: ForgeRunOutcome
    CANCELED: ForgeRunOutcome


words(ForgeRunOutcome, "SUCCESS", "FAILED", "CANCELED")


class ForgeRunEventName(Word):
    """The name of an event: of a change of a job's state."""

    JOB_CREATED: ForgeRunEventName
    JOB_QUEUED: ForgeRunEventName
    """Also after a retry."""
    JOB_ASSIGNED: ForgeRunEventName
    JOB_REQUEUED: ForgeRunEventName
    """Its lease ended before it ran."""
    JOB_STARTED: ForgeRunEventName
    JOB_SUCCEEDED: ForgeRunEventName
    JOB_FAILED: ForgeRunEventName
    JOB_CANCELED: ForgeRunEventName


FORGE_RUN_EVENTS = (
    "job_created",
    "job_queued",
    "job_assigned",
    "job_requeued",
    "job_started",
    "job_succeeded",
    "job_failed",
    "job_canceled",
)
words(ForgeRunEventName, *FORGE_RUN_EVENTS)


class ForgeRunWorkKind(Word):
    """A scenario of the work-kind catalogue: how long a simulated run takes, how much output it
    makes and how it ends."""

    SUCCESS_FAST: ForgeRunWorkKind
    SUCCESS_NORMAL: ForgeRunWorkKind
    SUCCESS_SLOW: ForgeRunWorkKind
    FAIL_IMMEDIATE: ForgeRunWorkKind
    FAIL_AFTER_PROGRESS: ForgeRunWorkKind
    FAIL_AFTER_RETRYABLE: ForgeRunWorkKind
    RUNS_LONG: ForgeRunWorkKind
    RUNS_OVER_TIMEOUT: ForgeRunWorkKind
    CPU_BURST: ForgeRunWorkKind
    MEMORY_SPIKE: ForgeRunWorkKind
    IO_HEAVY: ForgeRunWorkKind
    MANY_SMALL_OUTPUTS: ForgeRunWorkKind
    LARGE_OUTPUT: ForgeRunWorkKind
    CANCEL_BEFORE_START: ForgeRunWorkKind
    CANCEL_DURING_RUN: ForgeRunWorkKind
    RETRY_ON_FAIL: ForgeRunWorkKind
    RETRY_LIMIT_REACHED: ForgeRunWorkKind
    DUPLICATE_SUBMIT_SAME_KEY: ForgeRunWorkKind
    DUPLICATE_SUBMIT_DIFFERENT_KEY: ForgeRunWorkKind
    WEBHOOK_SUCCESS: ForgeRunWorkKind
    WEBHOOK_TIMEOUT: ForgeRunWorkKind
    WEBHOOK_5XX: ForgeRunWorkKind
    WEBHOOK_RETRIES_EXHAUSTED: ForgeRunWorkKind
    WEBHOOK_SLOW_RECEIVER: ForgeRunWorkKind
    SCHEDULED_ON_TIME: ForgeRunWorkKind
    SCHEDULED_LATE_RECOVERY: ForgeRunWorkKind
    SCHEDULED_FAR_FUTURE: ForgeRunWorkKind
    PAYLOAD_SMALL: ForgeRunWorkKind
    PAYLOAD_MEDIUM: ForgeRunWorkKind
    PAYLOAD_LARGE: ForgeRunWorkKind
    PAYLOAD_INVALID: ForgeRunWorkKind
    """Refused with 400."""


words(ForgeRunWorkKind, *ForgeRunWorkKind.__annotations__)


@dataclass
class ForgeRunSpec:
    """A job as it is submitted."""

    type: str
    """See :class:`ForgeRunType`."""
    kind: str = ""
    """The scenario to simulate, see :class:`ForgeRunWorkKind`; empty lets the server choose."""
    execution_at: Optional[datetime] = None
    """When the job may start; ``None`` means now. A time more than a second in the past is
    refused."""
    callback: str = ""
    """An http or https URL that gets every state change of this job; empty for none."""
    idempotency_key: str = ""
    """Makes a submit repeatable as long as its job exists: the same key with the same content
    returns the same job, with other content it is refused. Empty means a random one."""


@dataclass
class ForgeRunReceipt:
    """The answer to a submitted job, which the server has stored durably."""

    job_id: str
    """A UUID."""
    state: ForgeRunState = ForgeRunState("")
    """CREATED for a new job, and the present state of a job that was submitted before under the
    same key."""
    created_at: datetime = ZERO_TIME
    idempotency_key: str = named("", default="")
    """The key that was sent."""


@dataclass
class ForgeRunDefinition:
    """The run that the server simulates."""

    kind: ForgeRunWorkKind = named("work_kind", default=ForgeRunWorkKind(""))
    duration_ms: int = 0
    """How long a run takes, in milliseconds."""
    should_fail: bool = False
    """Whether the first run fails."""
    payload_size: int = 0
    """In bytes."""
    execution_at: Optional[datetime] = None
    seed: int = 0
    """The time of the request in milliseconds since 1970. Values that the request left open were
    drawn from it."""


@dataclass
class ForgeRunFailure:
    """Why a job failed."""

    code: str = ""
    """``RFA_EXEC_TIMEOUT`` for a run that took too long, or another code such as
    ``runner_lost``."""
    message: str = ""
    retryable: bool = False
    """Whether a retry may help."""


@dataclass
class ForgeRunJob:
    """A job as the server has it."""

    id: str = named("job_id")
    type: ForgeRunType = ForgeRunType("")
    kind: ForgeRunWorkKind = named("work_kind", default=ForgeRunWorkKind(""))
    state: ForgeRunState = ForgeRunState("")
    outcome: ForgeRunOutcome = ForgeRunOutcome("")
    """Empty until the state is final, and again while a retry runs."""
    created_at: datetime = ZERO_TIME
    updated_at: datetime = ZERO_TIME
    attempt: int = 0
    """0 for the first run."""
    definition: ForgeRunDefinition = field(default_factory=ForgeRunDefinition)
    execution_at: Optional[datetime] = None
    """``None`` for a job without a time."""
    callback: str = ""
    """Empty for a job without one."""
    failure: Optional[ForgeRunFailure] = None
    """``None`` unless the last run failed."""


@dataclass
class ForgeRunEvent:
    """One state change of a job, in its report."""

    id: str = named("event_id")
    """A UUID. It is the webhook-id of the deliveries of the event."""
    job_id: str = ""
    name: ForgeRunEventName = named("event_name", default=ForgeRunEventName(""))
    prev: ForgeRunState = named("prev_state", default=ForgeRunState(""))
    """Empty for the first event."""
    next: ForgeRunState = named("next_state", default=ForgeRunState(""))
    at: datetime = named("timestamp", default=ZERO_TIME)
    """It strictly increases within a job."""
    scenario: ForgeRunWorkKind = ForgeRunWorkKind("")
    reason: str = ""
    """Set where the name does not say why: ``lease_expired`` or ``released`` of a requeued job,
    ``runner_lost``, a timeout."""
    final: bool = False
    """Whether this failure used up the retries."""


@dataclass
class ForgeRunReport:
    """The history of a job that has finished."""

    job_id: str
    outcome: ForgeRunOutcome = ForgeRunOutcome("")
    events: List[ForgeRunEvent] = field(default_factory=list)
    """Those of all attempts, in order."""
    started_at: Optional[datetime] = None
    """When the last run started; ``None`` for a job canceled before it started."""
    finished_at: datetime = ZERO_TIME
    duration_ms: int = 0
    """From the start to the end, in milliseconds."""
    attempt: int = 0
    kind: ForgeRunWorkKind = named("work_kind", default=ForgeRunWorkKind(""))
    failure: Optional[ForgeRunFailure] = None


@dataclass
class ForgeRunActionResult:
    """The answer to a cancel or a retry."""

    job_id: str
    state: ForgeRunState = ForgeRunState("")
    updated_at: datetime = ZERO_TIME
    attempt: int = 0
    """Of a retry only."""


@dataclass
class ForgeRunFilter:
    """Selects the jobs of a list."""

    state: str = ""
    """Keep only the jobs in this state; empty keeps all."""
    page_size: int = 0
    """How many jobs each request asks for; 0 leaves it to the server."""


@dataclass
class ForgeRunAPIKey:
    """An API key as the server lists it, without its secret."""

    id: str = named("key_id")
    """Identifies the key, for :meth:`ForgeRun.revoke_api_key`; it is no secret."""
    created_at: datetime = ZERO_TIME
    expires_at: Optional[datetime] = None
    """``None`` for a key that does not expire."""
    revoked_at: Optional[datetime] = None
    """When the key was revoked, renewed or rotated; ``None`` if it was not. Only
    :meth:`ForgeRun.api_keys` sets it."""


@dataclass
class ForgeRunIssuedAPIKey(ForgeRunAPIKey):
    """The answer to creating or renewing a key."""

    api_key: str = ""
    """The secret, for :meth:`ForgeRun.with_api_key` or the token of the client. The server shows it
    once; it is empty when the key existed already."""
    callback_secret: str = ""
    """Signs the requests to the callbacks of the client's jobs, see :func:`verify_webhook`. Only
    the answer with the first key has it."""


@dataclass
class ForgeRunWebhook:
    """A subscription: a URL that gets the events of all jobs of a client."""

    id: str = named("webhook_id")
    """A UUID."""
    url: str = ""
    events: List[str] = field(default_factory=list)
    """The names of the events that the URL gets."""
    created_at: datetime = ZERO_TIME
    """Events before it are not delivered."""
    disabled: bool = False
    """Whether the server has stopped deliveries to the URL. :meth:`ForgeRun.enable_webhook`
    resumes them."""
    disabled_reason: str = ""


@dataclass
class ForgeRunCreatedWebhook:
    """The answer to a new webhook."""

    id: str = named("webhook_id")
    created_at: datetime = ZERO_TIME
    secret: str = ""
    """Signs the requests to the webhook (``whsec_…``), see :func:`verify_webhook`. The server shows
    it once; it is empty when the same idempotency key had registered the webhook before."""


class ForgeRunDeliveryStatus(Word):
    """The status of a delivery."""

    PENDING: ForgeRunDeliveryStatus
    DELIVERED: ForgeRunDeliveryStatus
    EXHAUSTED: ForgeRunDeliveryStatus
    """Given up."""


words(ForgeRunDeliveryStatus, "pending", "delivered", "exhausted")


@dataclass
class ForgeRunDeliveryAttempt:
    """One request of a delivery."""

    at: datetime = ZERO_TIME
    status_code: int = 0
    """The status of the answer; 0 when none came, see ``error``."""
    error: str = ""
    duration_ms: int = 0
    response: str = ""
    """The beginning of the answer's body, at most 4 KiB."""


@dataclass
class ForgeRunDelivery:
    """The delivery of one event to one webhook."""

    id: str = named("delivery_id")
    event_id: str = ""
    event_name: ForgeRunEventName = ForgeRunEventName("")
    url: str = ""
    status: ForgeRunDeliveryStatus = ForgeRunDeliveryStatus("")
    attempts: List[ForgeRunDeliveryAttempt] = named("tries", default_factory=list)
    next_attempt_at: Optional[datetime] = named("next_try_at", default=None)
    """When the next request is due; ``None`` when none is."""


@dataclass
class ForgeRunWebhookTest(ForgeRunDeliveryAttempt):
    """What came back from a test of a webhook. An empty error says that the receiver has accepted
    the event."""

    event_id: str = ""
    """The event, as the header webhook-id had it."""


@dataclass
class ForgeRunDeliveryReplayFilter:
    """Selects deliveries to make once more."""

    from_time: Optional[datetime] = None
    """When the first of them was made; inclusive."""
    to_time: Optional[datetime] = None
    """Exclusive."""
    status: str = ""
    """``exhausted``, which empty means too, or ``delivered``."""


@dataclass
class ForgeRunDeliveryReplayResult:
    """What a replay has done."""

    replayed: int = 0
    """Deliveries that were stored, and are made in the background."""
    skipped: int = 0
    """Deliveries that had been replayed before."""
