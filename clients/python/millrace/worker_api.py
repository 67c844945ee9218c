"""The worker API, by which programs outside the server execute the jobs of any contract but Relay.

A run goes through these calls::

    claim, claim_job ──▶ start (ForgeRun only) ──▶ heartbeat … ──▶ complete, fail or release

A :class:`JobWorker` makes all of them for a handler.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Type, TypeVar

from . import _wire
from ._context import Context
from ._http import Answer, Call, segment
from ._wire import UNSET, ZERO_TIME, Word, encode, named
from .errors import Error, RunLostError, answer_error, error_of, invalid, refusing
from .relay import Drained

if TYPE_CHECKING:
    from .client import Client

__all__ = [
    "ClaimedJob",
    "Contract",
    "FinishResult",
    "HeartbeatReply",
    "JobFailure",
    "RunOutcome",
    "WorkerAPI",
]

T = TypeVar("T")


class Contract(Word):
    """A contract whose jobs workers outside the server can execute."""

    TASK_FLOW: Contract
    FORGE_RUN: Contract
    IMAGES: Contract
    FETCH_BOX: Contract
    """FetchBox, whose queues are its job types and whose payloads are task messages, see
    :class:`FetchBoxTask`."""


Contract.TASK_FLOW = Contract("taskflow")
Contract.FORGE_RUN = Contract("forgerun")
Contract.IMAGES = Contract("images")
Contract.FETCH_BOX = Contract("fetchbox")


@dataclass
class ClaimedJob:
    """A job as it was claimed: one run of it, under a lease."""

    id: str = named("job_id")
    """The job's id in its contract."""
    contract: str = ""
    queue: str = ""
    run_id: str = ""
    """Identifies this run in every later call about it."""
    attempt: int = 0
    """The number of this attempt of the job, from 1 on."""
    payload: Any = None
    """The job's input."""
    state: Any = None
    """What an earlier run stored with its heartbeats; ``None`` for none."""
    lease: float = named("lease_seconds", default=0.0)
    """How many seconds the lease lasts after the claim and after each heartbeat."""


@dataclass
class HeartbeatReply:
    """The answer to a heartbeat."""

    lease_until: datetime = ZERO_TIME
    """When the lease ends now, by the server's clock."""
    cancel: bool = False
    """Whether the server asks the run to end."""


@dataclass
class JobFailure:
    """The report of a run that failed."""

    error: str
    """The explanation."""
    error_type: str = ""
    """Names the kind of failure in up to 255 characters; empty for none."""
    retryable: bool = False
    """Whether another run may succeed. If it is false, the job fails without another attempt."""


@dataclass
class RunOutcome:
    """The outcome of a run for :meth:`WorkerAPI.finish`: with ``failure`` the run failed, with
    ``released`` its job is given back, and with neither it is completed."""

    run_id: str
    result: Any = None
    """The result of a completed run, any JSON; ``None`` for none."""
    failure: Optional[JobFailure] = None
    """The report of a failed run, as in :meth:`WorkerAPI.fail`."""
    released: bool = False
    """Give the job back, as :meth:`WorkerAPI.release` does."""


@dataclass
class FinishResult:
    """The server's answer to one :class:`RunOutcome`."""

    run_id: str
    job_id: str = ""
    status: str = ""
    """The job's id in its contract, and its state now, in the contract's word. Both are empty when
    there is an error."""
    error: Optional[Error] = None
    """Why the outcome was not accepted; ``None`` if it was. It is what a call for this run alone
    would have raised: a :class:`RunLostError`; a :class:`ConflictError` when the job's state
    forbids the outcome; an :class:`InvalidError` for a result that the contract refuses. After the
    last two the run continues."""


@dataclass
class _FinishWire:
    run_id: str = ""
    job_id: str = ""
    status: str = ""
    code: str = ""
    detail: str = ""

    def result(self, op: str, uncertain: bool) -> FinishResult:
        result = FinishResult(self.run_id, self.job_id, self.status)
        if self.code:
            status = 400 if self.code == "VALIDATION_ERROR" else 409
            result.error = error_of(op, status=status, code=self.code, message=self.detail)
            result.error.uncertain = uncertain and isinstance(result.error, RunLostError)
        return result


class WorkerAPI:
    """The worker API. Its token is that of the client: the setting ``worker.token`` of the server.
    Every error is an :class:`Error`. It may be used by several threads. Made by
    :meth:`Client.worker_api`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def claim(
        self,
        contract: str,
        queues: Sequence[str] = (),
        max: int = 1,
        *,
        wait: float = 0.0,
        worker: str = "",
    ) -> List[ClaimedJob]:
        """Claim jobs and wait up to ``wait`` seconds, at most 30, for the first one. The wire has
        whole seconds; fractions are rounded up. When there are none the list is empty.

        :param contract: The contract of the jobs, see :class:`Contract`.
        :param queues: The queues to claim from. Without any, all that no handler in the server
            serves.
        :param max: The most jobs to claim, up to 1000.
        :param worker: Identifies the caller in the server; empty means the caller's address.
        :raises InvalidError: for an unknown contract and for queues that handlers in the server
            serve.

        Repeating: jobs in a lost answer return when their leases expire; a repeat claims others.
        """
        ctx = self._client._context()
        try:
            return self._claim(ctx, contract, queues, max, wait, worker)
        except Drained:  # the caller decides when to stop
            return []

    def _claim(
        self,
        ctx: Context,
        contract: str,
        queues: Sequence[str],
        max_jobs: int,
        wait: float,
        worker: str,
        single_try: bool = False,
    ) -> List[ClaimedJob]:
        op = "worker claim"
        with refusing(op):
            seconds = max(_wire.whole_seconds(wait), 0)
        request: Dict[str, Any] = {"contract": contract, "max": max_jobs, "wait_seconds": seconds}
        if queues:
            request["queues"] = list(queues)
        if worker:
            request["worker"] = worker
        call = Call(op, "POST", "/worker/v1/claims", wait=float(seconds), single_try=single_try)
        call.body = _encoded(op, request, "request")
        answer = self._client._http.call(ctx, call)
        if answer.headers.get("Millrace-Drain") == "true":
            raise Drained
        return self._client._http.decoded(
            call, answer, lambda value: _wire.read_list(ClaimedJob, _member(value, "jobs"))
        )

    def claim_job(self, contract: str, job_id: str, worker: str = "") -> ClaimedJob:
        """Claim one job by its id. ``worker`` identifies the caller, as in :meth:`claim`.

        :raises NotFoundError: if there is no such job.
        :raises ConflictError: when the job cannot run now, because it is not ready or a limit
            leaves no slot.

        Repeating: a job in a lost answer returns when its lease expires. Until then a repeat is a
        :class:`ConflictError` that is uncertain.
        """
        op = "worker claim"
        request = {"contract": contract}
        if worker:
            request["worker"] = worker
        path = f"/worker/v1/jobs/{segment(op, 'job id', job_id)}/claim"
        call = Call(op, "POST", path, body=_encoded(op, request, "request"))
        return self._client._http.call_json(self._client._context(), call, ClaimedJob)

    def heartbeat(self, run_id: str, state: Any = UNSET) -> HeartbeatReply:
        """Extend the lease of a run to its whole length and store the run's state, any JSON.
        Without a state the stored one is kept. Repeating is safe.

        :raises RunLostError: when the run is not the job's current one.
        """
        return self._heartbeat(self._client._context(), run_id, state)

    def _heartbeat(self, ctx: Context, run_id: str, state: Any) -> HeartbeatReply:
        op = "worker heartbeat"
        body = b"{}" if state is UNSET else _object_of(op, "state", state)
        return self._run_call(ctx, op, run_id, "heartbeat", body, HeartbeatReply)

    def start(self, run_id: str) -> None:
        """Mark a claimed run as started. ForgeRun requires it before an outcome; elsewhere it
        changes nothing.

        :raises RunLostError: when the run is not the job's current one.
        """
        self._post(self._client._context(), "worker start", run_id, "start", b"{}")

    def complete(self, run_id: str, result: Any = None) -> None:
        """End a run with success. The job keeps the result, which is any JSON; ``None`` is none.

        :raises RunLostError: when the run is not the job's current one. It is uncertain after a try
            whose answer was lost, because that try may have completed the run.
        :raises InvalidError: if the contract refuses the result.
        """
        self._complete(self._client._context(), run_id, result)

    def _complete(self, ctx: Context, run_id: str, result: Any) -> None:
        op = "worker complete"
        body = b"{}" if result is None else _object_of(op, "result", result)
        self._post(ctx, op, run_id, "complete", body)

    def fail(self, run_id: str, failure: JobFailure) -> None:
        """End a run without success. The contract decides by its policy whether the job is retried.

        :raises Error: as :meth:`complete`.
        """
        self._fail(self._client._context(), run_id, failure)

    def _fail(self, ctx: Context, run_id: str, failure: JobFailure) -> None:
        op = "worker fail"
        self._post(ctx, op, run_id, "fail", _encoded(op, _report(failure), "failure"))

    def release(self, run_id: str) -> None:
        """End a run and give its job back to the queue, without counting an attempt where the
        contract allows that.

        :raises Error: as :meth:`complete`.
        """
        self._release(self._client._context(), run_id)

    def _release(self, ctx: Context, run_id: str) -> None:
        self._post(ctx, "worker release", run_id, "release", b"{}")

    def finish(self, outcomes: Sequence[RunOutcome]) -> List[FinishResult]:
        """End up to 1000 runs, of one contract or several, in one request and one transaction, for
        programs that claim many jobs at a time. The results are in the order of the outcomes. An
        outcome that is not accepted does not affect the others; when two outcomes have the same run
        id, the first counts. Without outcomes it sends nothing.

        :raises InvalidError: when an outcome breaks a rule, which the message names by its index,
            and for more than 1000 outcomes or 4 MiB. No run has ended after an error, unless it is
            uncertain.

        Repeating: after a try whose answer was lost, a :class:`RunLostError` of a result is
        uncertain, because that try may have ended the run.
        """
        return self._finish(self._client._context(), outcomes)

    def _finish(self, ctx: Context, outcomes: Sequence[RunOutcome]) -> List[FinishResult]:
        op = "worker finish"
        if not outcomes:
            return []
        parts = []
        for i, outcome in enumerate(outcomes):
            try:
                parts.append(_encode_outcome(outcome))
            except ValueError as error:
                raise invalid(op, f"outcomes[{i}]: {error}")
        body = _wire.object_of([("outcomes", _wire.array_of(parts))])
        call = Call(op, "POST", "/worker/v1/outcomes", body=body)
        http = self._client._http
        answer = http.call(ctx, call)
        results = http.decoded(
            call, answer, lambda value: _wire.read_list(_FinishWire, _member(value, "outcomes"))
        )
        if [r.run_id for r in results] != [o.run_id for o in outcomes]:
            raise answer_error(op, "it is about other runs", uncertain=True)
        return [result.result(op, answer.uncertain) for result in results]

    def _post(self, ctx: Context, op: str, run_id: str, verb: str, body: bytes) -> None:
        self._run_call(ctx, op, run_id, verb, body, _Nothing)

    def _run_call(
        self, ctx: Context, op: str, run_id: str, verb: str, body: bytes, cls: Type[T]
    ) -> T:
        """Make a call about a run."""
        path = f"/worker/v1/runs/{segment(op, 'run id', run_id)}/{verb}"
        return self._client._http.call_json(ctx, Call(op, "POST", path, body=body), cls)


@dataclass
class _Nothing:
    """An answer of which nothing is read."""


def _encode_outcome(outcome: RunOutcome) -> bytes:
    """Encode an outcome as it is on the wire."""
    _wire.check_name("run id", outcome.run_id)
    given = [outcome.result is not None, outcome.failure is not None, outcome.released]
    if sum(given) > 1:
        raise ValueError("there is more than one of result, failure and released")
    verb, body = "complete", b"{}"
    if outcome.failure is not None:
        verb, body = "fail", encode(_report(outcome.failure), "failure")
    elif outcome.released:
        verb = "release"
    elif outcome.result is not None:
        body = _wire.object_of([("result", encode(outcome.result, "result"))])
    return _wire.object_of([("run_id", encode(outcome.run_id)), (verb, body)])


def _report(failure: JobFailure) -> Dict[str, Any]:
    report: Dict[str, Any] = {"error": failure.error, "retryable": failure.retryable}
    if failure.error_type:
        report["error_type"] = failure.error_type
    return report


def _object_of(op: str, name: str, value: Any) -> bytes:
    """Encode an object with one member."""
    return _wire.object_of([(name, _encoded(op, value, name))])


def _encoded(op: str, value: Any, what: str) -> bytes:
    with refusing(op):
        return encode(value, what)


def _member(value: Any, name: str) -> Any:
    return _wire._object(value).get(name)
