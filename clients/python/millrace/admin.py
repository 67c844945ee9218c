"""The admin API, for operators: what there is, why it does not run, and what to do about it.

::

    admin = client.admin().with_actor("alice")
    for job in admin.jobs(millrace.AdminJobFilter(phases=["ready"])):
        print(job.number, admin.why(job.number).summary)
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Dict, Iterator, Optional, Type, TypeVar

from . import _wire
from ._follow import list_pages
from ._http import Call, segment
from ._wire import encode
from .admin_fleet_types import (
    AdminDeadLetter,
    AdminDeadLetterFilter,
    AdminDeadLetterGroup,
    AdminHealth,
    AdminNode,
    AdminQueue,
    AdminQueueChange,
    AdminQueueFilter,
    AdminSchedule,
    AdminScheduleSpec,
    AdminScheduleTick,
    AdminWorker,
)
from .admin_types import (
    AdminActionResult,
    AdminContract,
    AdminCount,
    AdminCountQuery,
    AdminJob,
    AdminJobDetail,
    AdminJobFilter,
    AdminSubmission,
    AdminTimeline,
    AdminWhy,
)
from .errors import refusing

if TYPE_CHECKING:
    from .client import Client

__all__ = ["Admin"]

T = TypeVar("T")

_WHOLE_LIST = 500  # the page size of lists that are short

# The query parameters of fields of AdminJobFilter that have other names.
_JOB_FILTER = {
    "states": "state",
    "phases": "phase",
    "numbers": "number",
    "parent_number": "parent",
    "finished_from": "settled_from",
    "finished_before": "settled_before",
    "error_contains": "error",
    "body_contains": "text",
}


@dataclass
class _Nothing:
    """An answer of which nothing is read."""


class Admin:
    """The admin API. All of its calls need the operator's token; the read token is enough for those
    that change nothing. Every change is an entry of the audit. Every error is an :class:`Error`. It
    may be used by several threads. Made by :meth:`Client.admin`."""

    def __init__(self, client: Client, actor: str = "") -> None:
        self._client = client
        self._actor = actor

    def with_actor(self, name: str) -> Admin:
        """Return the API with a name for the audit: who it is that uses the token. The name has at
        most 100 printable ASCII characters; empty means none."""
        if name:
            with refusing("admin with actor"):
                _wire.check_header("actor", name)
        return Admin(self._client, name)

    def contracts(self) -> Iterator[AdminContract]:
        """Iterate over the contracts that the node which answers serves, by name."""
        path = "/admin/v1/contracts"
        return self._pages("admin contracts", path, AdminContract, {}, _WHOLE_LIST)

    def health(self) -> AdminHealth:
        """Check the components on which the answering node depends. One that fails is no error."""
        return self._read("admin health", "/admin/v1/health", AdminHealth)

    def jobs(
        self,
        filter: Optional[AdminJobFilter] = None,
        *,
        oldest: bool = False,
        page_size: int = 0,
    ) -> Iterator[AdminJob]:
        """Iterate over the jobs of all contracts that match a filter, the newest first or, with
        ``oldest``, by number ascending. Where few jobs match, it asks the server more than once for
        the next of them.

        :raises InvalidError: by the iterator, for a filter that is wrong.
        """
        query: Dict[str, Any] = dataclasses.asdict(filter or AdminJobFilter())
        for name, wire in _JOB_FILTER.items():
            query[wire] = query.pop(name) or None
        if oldest:
            query["order"] = "oldest"
        return self._pages("admin jobs", "/admin/v1/jobs", AdminJob, query, page_size)

    def job(self, number: int) -> AdminJobDetail:
        """Return the job with a number. One that is gone is as its dead letter has it.

        :raises NotFoundError: where there is no such job and no dead letter of it.
        """
        return self._read("admin job", _job_path(number), AdminJobDetail)

    def job_body(self, number: int, body: str) -> bytes:
        """Return a body of the job with a number as it was sent, whole; ``body`` is one of
        :class:`AdminBody`.

        :raises NotFoundError: where the job has none, or there is no such job.
        :raises UnauthorizedError: also where the token may not see it.
        """
        op = f"admin job {body}"
        path = f"{_job_path(number)}/{segment(op, 'body', body)}"
        call = self._with_actor(Call(op, "GET", path, read_only=True))
        return self._client._http.call(self._client._context(), call).body

    def why(self, number: int) -> AdminWhy:
        """Say why the job with a number does not run, or that it does. The reasons are of one
        moment, over all nodes; when a worker last claimed from a queue on another node is up to
        five seconds old.

        :raises NotFoundError: where there is no such job and no dead letter of it.
        """
        return self._read("admin why", _job_path(number) + "/why", AdminWhy)

    def timeline(self, number: int) -> AdminTimeline:
        """Return what happened to the job with a number.

        :raises NotFoundError: where there is no such job and no dead letter of it.
        """
        return self._read("admin timeline", _job_path(number) + "/timeline", AdminTimeline)

    def counts(self, query: AdminCountQuery) -> Iterator[AdminCount]:
        """Iterate over the numbers of the jobs that are stored, by contract and value. By contract,
        queue and phase they are exact."""
        members = {"by": query.by, "contract": query.contract, "queue": query.queue}
        path = "/admin/v1/counts"
        return self._pages("admin counts", path, AdminCount, members, query.page_size)

    def act_on_job(self, number: int, action: str) -> AdminActionResult:
        """Apply an action to the job with a number, one of :class:`AdminAction`, and return the job
        as it is then, or the new job that was made. What follows, such as events, is that of the
        contract's route. It is repeated only while no try can have taken effect.

        :raises ConflictError: whose code is ``NOT_ALLOWED`` where the state of the job does not
            allow the action, and ``CONFLICT`` where the contract refuses it.
        :raises NotFoundError: if there is no such job.
        """
        op = f"admin {action} job"
        path = f"{_job_path(number)}/{segment(op, 'action', action)}"
        return self._change(op, "POST", path, AdminActionResult, not_idempotent=True)

    def submit_job(self, submission: AdminSubmission) -> AdminActionResult:
        """Submit a job as the contract's own route would. Without an idempotency key it is repeated
        only while no try can have taken effect.

        :raises InvalidError: with the contract's words.
        :raises ConflictError: where the job exists.
        """
        op = "admin submit job"
        return self._change(
            op,
            "POST",
            "/admin/v1/jobs",
            AdminActionResult,
            body=_body(op, submission),
            accept=(201,),
            not_idempotent=not submission.idempotency_key,
        )

    def queues(self, filter: Optional[AdminQueueFilter] = None) -> Iterator[AdminQueue]:
        """Iterate over the queues in the order of the filter. A queue is listed while it has jobs
        that are not finished or settings, and for a week after it had either."""
        filter = filter or AdminQueueFilter()
        query = dataclasses.asdict(filter)
        query["text"] = query.pop("name_contains")
        query["internal"] = query.pop("include_internal")
        size = query.pop("page_size")
        return self._pages("admin queues", "/admin/v1/queues", AdminQueue, query, size)

    def set_queue(self, contract: str, queue: str, change: AdminQueueChange) -> AdminQueue:
        """Pause, resume or limit a queue and return it as it is then. It is in force on all nodes
        within two seconds. From a paused queue nothing is claimed, and it takes new jobs; running
        jobs go on. What is set takes the place of the server's settings until :meth:`reset_queue`.
        A repeat changes nothing more.

        :raises NotFoundError: for a contract that there is not.
        :raises InvalidError: which names the member that is wrong.
        """
        op = "admin set queue"
        path = _queue_path(op, contract, queue)
        return self._change(op, "PATCH", path, AdminQueue, body=_body(op, change))

    def reset_queue(self, contract: str, queue: str) -> AdminQueue:
        """Take back what operators have set for a queue and return it as it is then: the limits of
        the server's settings are in force, and the queue is not paused.

        :raises NotFoundError: for a contract that there is not.
        """
        op = "admin reset queue"
        return self._change(op, "DELETE", _queue_path(op, contract, queue), AdminQueue)

    def dead_letters(
        self, filter: Optional[AdminDeadLetterFilter] = None
    ) -> Iterator[AdminDeadLetter]:
        """Iterate over the dead letters of all contracts, the oldest first."""
        query = dataclasses.asdict(filter or AdminDeadLetterFilter())
        query["error"] = query.pop("error_contains")
        query["from"], query["to"] = query.pop("failed_from"), query.pop("failed_before")
        size = query.pop("page_size")
        path = "/admin/v1/dead-letters"
        return self._pages("admin dead letters", path, AdminDeadLetter, query, size)

    def dead_letter_groups(
        self, contract: str = "", page_size: int = 0
    ) -> Iterator[AdminDeadLetterGroup]:
        """Iterate over the groups of dead letters of one reason that were not replayed, the largest
        first; an empty contract means all. The server groups the newest 100,000 dead letters of
        each job type."""
        return self._pages(
            "admin dead letter groups",
            "/admin/v1/dead-letters/groups",
            AdminDeadLetterGroup,
            {"contract": contract},
            page_size,
        )

    def dead_letter(self, id: int) -> AdminDeadLetter:
        """Return a dead letter.

        :raises NotFoundError: if there is no such dead letter.
        """
        return self._read("admin dead letter", _dead_letter_path(id), AdminDeadLetter)

    def replay_dead_letter(self, id: int, again: bool = False) -> AdminActionResult:
        """Replay a dead letter and return the job that runs then: the same job or a new one, as its
        contract has it. ``again`` replays also one that was replayed before. It is repeated only
        while no try can have taken effect.

        :raises ConflictError: where it was replayed before and ``again`` is false, and where the
            contract refuses it.
        :raises NotFoundError: if there is no such dead letter.
        """
        return self._change(
            "admin replay dead letter",
            "POST",
            _dead_letter_path(id) + "/replay",
            AdminActionResult,
            body=encode({"again": bool(again)}),
            not_idempotent=True,
        )

    def discard_dead_letter(self, id: int) -> None:
        """Delete a dead letter. Repeating is safe: when a dead letter is not found after a try
        whose answer was lost, that try has deleted it.

        :raises NotFoundError: if there is no such dead letter.
        """
        self._delete("admin discard dead letter", _dead_letter_path(id))

    def workers(self) -> Iterator[AdminWorker]:
        """Iterate over the workers of all nodes, by name: those of the nodes, and those that have
        claimed jobs or sent a heartbeat within the last five minutes. What other nodes know is up
        to five seconds old."""
        path = "/admin/v1/workers"
        return self._pages("admin workers", path, AdminWorker, {}, _WHOLE_LIST)

    def nodes(self) -> Iterator[AdminNode]:
        """Iterate over the nodes, by name."""
        return self._pages("admin nodes", "/admin/v1/nodes", AdminNode, {}, _WHOLE_LIST)

    def drain_worker(self, name: str) -> None:
        """Give a worker no further jobs, on all nodes within two seconds, until it is resumed or
        for 24 hours. A worker of this package finishes what it has and ends. Repeating is safe.

        :raises NotFoundError: where no node knows the name.
        """
        self._drain("admin drain worker", name, "drain")

    def resume_worker(self, name: str) -> None:
        """End a drain.

        :raises NotFoundError: where no node knows the name.
        """
        self._drain("admin resume worker", name, "resume")

    def _drain(self, op: str, name: str, verb: str) -> None:
        path = f"/admin/v1/workers/{segment(op, 'name', name)}/{verb}"
        self._change(op, "POST", path, _Nothing)

    def schedules(self, page_size: int = 0) -> Iterator[AdminSchedule]:
        """Iterate over the schedules, by name."""
        path = "/admin/v1/schedules"
        return self._pages("admin schedules", path, AdminSchedule, {}, page_size)

    def schedule(self, name: str, next: int = 1) -> AdminSchedule:
        """Return a schedule with the times of its next ticks, from 1 to 100 of them.

        :raises NotFoundError: if there is no such schedule.
        """
        op = "admin schedule"
        path = _schedule_path(op, name)
        return self._read(op, path, AdminSchedule, query=f"next={max(1, int(next))}")

    def create_schedule(self, name: str, spec: AdminScheduleSpec) -> AdminSchedule:
        """Make a schedule. Its name has 1 to 100 letters, digits, dots, hyphens and underscores.

        :raises InvalidError: which names the member that is wrong.
        :raises ConflictError: where the name is in use, also by an earlier try of the call.
        """
        op = "admin create schedule"
        return self._change(
            op,
            "POST",
            "/admin/v1/schedules",
            AdminSchedule,
            body=_body(op, spec, name=name),
            accept=(201,),
            not_idempotent=True,
        )

    def set_schedule(self, name: str, spec: AdminScheduleSpec) -> AdminSchedule:
        """Change the members of a schedule that are not ``None``. Cron takes the place of ``every``
        and the other way round. New ticks count from now on.

        :raises InvalidError: which names the member that is wrong.
        :raises NotFoundError: if there is no such schedule.
        :raises ConflictError: for one of the settings.
        """
        op = "admin set schedule"
        path = _schedule_path(op, name)
        return self._change(op, "PATCH", path, AdminSchedule, body=_body(op, spec))

    def delete_schedule(self, name: str) -> None:
        """Delete a schedule. Jobs that it has submitted stay. Repeating is safe: when a schedule is
        not found after a try whose answer was lost, that try has deleted it.

        :raises NotFoundError: if there is no such schedule.
        :raises ConflictError: for one of the settings.
        """
        op = "admin delete schedule"
        self._delete(op, _schedule_path(op, name))

    def pause_schedule(self, name: str) -> AdminSchedule:
        """Pause a schedule: it submits nothing. :meth:`resume_schedule` ends that; its ``catch_up``
        says what happens about the ticks between. A repeat changes nothing more.

        :raises NotFoundError: if there is no such schedule.
        """
        op = "admin pause schedule"
        return self._change(op, "POST", _schedule_path(op, name) + "/pause", AdminSchedule)

    def resume_schedule(self, name: str) -> AdminSchedule:
        """Resume a schedule that was paused. A repeat changes nothing more.

        :raises NotFoundError: if there is no such schedule.
        """
        op = "admin resume schedule"
        return self._change(op, "POST", _schedule_path(op, name) + "/resume", AdminSchedule)

    def run_schedule(self, name: str) -> AdminActionResult:
        """Submit the job of a schedule once, besides its ticks. It is repeated only while no try
        can have taken effect.

        :raises NotFoundError: if there is no such schedule.
        :raises InvalidError: with the words of the contract.
        """
        op = "admin run schedule"
        path = _schedule_path(op, name) + "/run"
        return self._change(op, "POST", path, AdminActionResult, accept=(201,), not_idempotent=True)

    def schedule_ticks(self, name: str) -> Iterator[AdminScheduleTick]:
        """Iterate over what was done about the last 100 ticks of a schedule, the latest first.

        :raises NotFoundError: by the iterator, if there is no such schedule.
        """
        op = "admin schedule ticks"
        return self._pages(op, _schedule_path(op, name) + "/ticks", AdminScheduleTick, {}, 0)

    def _read(self, op: str, path: str, cls: Type[T], query: str = "") -> T:
        call = self._with_actor(Call(op, "GET", path, query=query, read_only=True))
        return self._client._http.call_json(self._client._context(), call, cls)

    def _change(self, op: str, method: str, path: str, cls: Type[T], **options: Any) -> T:
        call = self._with_actor(Call(op, method, path, **options))
        return self._client._http.call_json(self._client._context(), call, cls)

    def _delete(self, op: str, path: str) -> None:
        call = self._with_actor(Call(op, "DELETE", path))
        self._client._http.delete_once(self._client._context(), call)

    def _with_actor(self, call: Call) -> Call:
        if self._actor:
            call.headers["Millrace-Actor"] = self._actor
        return call

    def _pages(
        self, op: str, path: str, cls: Type[T], query: Dict[str, Any], size: int
    ) -> Iterator[T]:
        """Iterate over a list, whose pages say with their cursor alone whether there are more."""
        return list_pages(
            self._client._http,
            self._client._context,
            lambda text: self._with_actor(Call(op, "GET", path, query=text, read_only=True)),
            cls,
            query,
            size,
        )


def _body(op: str, spec: Any, **more: Any) -> bytes:
    """Encode the members of a dataclass that are not None or empty texts, under their names on the
    wire."""
    members = [(name, encode(value)) for name, value in more.items()]
    with refusing(op):
        for field in dataclasses.fields(spec):
            value = getattr(spec, field.name)
            if value is None or value == "":
                continue
            if isinstance(value, datetime):
                value = _wire.format_time(value)
            members.append((field.metadata.get("wire", field.name), encode(value, field.name)))
    return _wire.object_of(members)


def _job_path(number: int) -> str:
    return f"/admin/v1/jobs/{int(number)}"


def _queue_path(op: str, contract: str, queue: str) -> str:
    return f"/admin/v1/queues/{segment(op, 'contract', contract)}/{segment(op, 'queue', queue)}"


def _dead_letter_path(id: int) -> str:
    return f"/admin/v1/dead-letters/{int(id)}"


def _schedule_path(op: str, name: str) -> str:
    return f"/admin/v1/schedules/{segment(op, 'name', name)}"
