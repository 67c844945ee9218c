"""Relay: queues for workers of your own.

A job is identified by its queue and id together. :meth:`Relay.claim` claims it and gives the run a
run id; from then on the job is in flight and no other worker gets it. The lease lasts for the
job's timeout and is extended to a whole timeout by every :meth:`Relay.heartbeat`, which may also
store the job's state. :meth:`Relay.complete` removes the job; :meth:`Relay.requeue` replaces it by
other jobs in one transaction. When no heartbeat arrives in time, the job returns to its queue and
its next run gets a fresh run id. The old run id is then fenced out: a heartbeat under it fails
with :class:`RunLostError`, and a late completion changes nothing.

A :class:`Worker` does all of this for a handler.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from . import _wire
from ._context import Context
from ._follow import list_pages
from ._http import Answer, Call, segment
from ._wire import UNSET, ZERO_TIME, Word, check_name, encode, escape, named, query_of, words
from .errors import NotFoundError, RunLostError, as_kind, invalid, refusing

if TYPE_CHECKING:
    from .client import Client

__all__ = [
    "Relay",
    "RelayDeadLetter",
    "RelayHeartbeat",
    "RelayJob",
    "RelayMode",
    "RelayRun",
    "RelaySpec",
]


class RelayMode(Word):
    """What happens to a submitted job whose queue and id exist already. An empty mode is the
    server's default, unique."""

    UNIQUE: RelayMode
    """Store all jobs of the batch or, when one of them exists, none: :class:`ConflictError`."""
    IGNORE: RelayMode
    """Leave existing jobs as they are, also in flight, and store the others."""
    REPLACE: RelayMode
    """Give an existing job the new definition and make it due again; a run that was in flight is
    lost."""


words(RelayMode, "unique", "ignore", "replace")


@dataclass
class RelaySpec:
    """A job as it is submitted."""

    queue: str
    id: str
    """Queue and id identify the job together. Each has 1 to 1024 characters, which may be any."""
    timeout: float
    """How many seconds a run lasts without a heartbeat: 0 to 2147483647. It has no default. A run
    that has failed ends with it too: the job comes back then, and not before. The wire has whole
    seconds; fractions are rounded up."""
    max_retries: Optional[int] = None
    """How often a run may fail or time out before the job is given up, 0 to 32767: the job runs at
    most ``max_retries + 1`` times. ``None``, the default, means without limit."""
    payload: Any = None
    """Any JSON value. It never changes."""
    state: Any = None
    """Any JSON value from which the first run starts; ``None`` for none."""
    run_at: Optional[datetime] = None
    """When the job may first be claimed; ``None`` means now."""
    callback_url: str = ""
    """Receives a request when the job is completed, given up or deleted; empty for none. Requests
    are signed with the secret that ``millrace operator secret relay`` prints, see
    :func:`verify_webhook`."""


@dataclass
class RelayJob(RelaySpec):
    """A job as the server has it. Its state is the latest stored one. Enqueueing it again makes an
    equal job."""

    retries_remaining: Optional[int] = None
    """It is reduced by each timeout; ``None`` means without limit."""
    run_id: str = ""
    """The run id of a job in flight, else empty."""
    updated_at: datetime = ZERO_TIME
    """When the job was last changed or sent a heartbeat."""
    created_at: datetime = ZERO_TIME
    """When the job was enqueued or requeued."""

    def run(self) -> RelayRun:
        """Identify the run that the job is in flight with."""
        return RelayRun(self.queue, self.id, self.run_id)


@dataclass(frozen=True)
class RelayRun:
    """Identifies one run of a job. Every claim makes a fresh ``run_id``."""

    queue: str
    id: str
    run_id: str


@dataclass(frozen=True)
class RelayHeartbeat(RelayRun):
    """One heartbeat of :meth:`Relay.heartbeat_all`."""

    state: Any = UNSET
    """Any JSON value, stored as the job's state; ``UNSET`` keeps the stored one, and ``None``
    removes it."""
    error: str = ""
    """Reports that the run has failed, and why, for operators and dead letters. Its lease is not
    extended: the job returns when it ends. Empty is for a run that goes on."""
    error_type: str = ""
    """The type of the error in up to 255 bytes, for those who count them."""


@dataclass
class RelayDeadLetter:
    """A job that was out of retries."""

    id: int = 0
    """The number of the dead letter. One job id may have several, as it can be used again."""
    queue: str = ""
    job_id: str = ""
    attempts: int = 0
    """How often the job was claimed."""
    error: str = ""
    """What is known of the last attempt."""
    payload: Any = None
    state: Any = None
    """Payload and state are as the job had them."""
    failed_at: datetime = ZERO_TIME
    replayed_at: Optional[datetime] = None
    """When it was last replayed; ``None`` if it was not."""


@dataclass
class _Known:
    """The answer to an entry of a batch."""

    id: str
    run_id: str
    known: bool = named("known", default=False)


class Drained(Exception):
    """An operator has drained the worker: it gets no further jobs."""


Jobs = Union[RelaySpec, Iterable[RelaySpec]]


class Relay:
    """Version 2 of the Relay contract. Every error is an :class:`Error`. It may be used by several
    threads. Made by :meth:`Client.relay`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def enqueue(self, jobs: Jobs, mode: str = "") -> None:
        """Store a job, or jobs of one or several queues, all or none. When it returns they survive
        a crash of the server. No jobs are no error.

        :raises ConflictError: in mode unique.
        :raises InvalidError: if a job is wrong.

        Repeating: in mode unique a repeat can conflict with the jobs of an earlier try whose
        answer was lost; the error is uncertain then, and :meth:`get` shows the stored job. In mode
        ignore a repeat changes nothing. In mode replace it replaces the jobs once more, and a run
        that began in between is lost.
        """
        op = "relay enqueue"
        self._call(
            Call(
                op,
                "POST",
                "/v2/queues/jobs",
                query=query_of({"mode": mode}),
                body=_encode_specs(op, jobs),
                accept=(202,),
            )
        )

    def claim(self, queue: str, num_jobs: int = 1, wait: float = 0.0) -> List[RelayJob]:
        """Claim up to ``num_jobs`` due jobs of a queue, those with the earliest ``run_at`` first,
        and give each a fresh run id. There may be fewer; when there are none the list is empty.

        With a wait above zero the server waits for a job before it answers that there is none, in
        whole seconds, rounded up, and at most 30.

        :raises InvalidError: also for ``num_jobs`` below 1.

        Repeating: jobs in a lost answer are in flight without a worker. They return after their
        timeout with one retry less. A repeat claims others.
        """
        try:
            return self._claim(self._client._context(), queue, num_jobs, wait)
        except Drained:  # the caller decides when to stop
            return []

    def _claim(
        self,
        ctx: Context,
        queue: str,
        num_jobs: int,
        wait: float,
        worker: str = "",
        single_try: bool = False,
    ) -> List[RelayJob]:
        op = "relay claim"
        headers = {}
        with refusing(op):
            check_name("queue", queue)
            seconds = _wire.whole_seconds(wait)
        if seconds > 0:
            headers["Prefer"] = f"wait={seconds}"
        if worker:
            headers["Millrace-Worker"] = worker
        call = Call(
            op,
            "GET",
            f"/v2/queues/{escape(queue)}/jobs",
            query=f"num_jobs={int(num_jobs)}",
            headers=headers,
            wait=max(wait, 0.0),
            single_try=single_try,
            accept=(200, 204),
        )
        answer = self._client._http.call(ctx, call)
        if answer.headers.get("Millrace-Drain") == "true":
            raise Drained
        if answer.status == 204:
            return []
        return self._client._http.decoded(call, answer, _read_claimed)

    def heartbeat(self, run: RelayRun, state: Any = UNSET) -> None:
        """Extend the lease of a run to a whole timeout. A state, any JSON value, is stored as the
        job's state. Without one the stored state is kept; ``None`` removes it.

        :raises RunLostError: when the run is not the job's current one.
        :raises InvalidError: if the state is refused.

        Repeating is safe: it stores the same state again.
        """
        self._heartbeat(self._client._context(), run, state)

    def _heartbeat(self, ctx: Context, run: RelayRun, state: Any = UNSET) -> None:
        op = "relay heartbeat"
        path = _run_path(op, run)
        body = None
        if state is not UNSET:
            with refusing(op):
                body = encode(state, "state")
        try:
            self._client._http.call(ctx, Call(op, "PATCH", path, body=body, accept=(202,)))
        except NotFoundError as error:
            raise as_kind(RunLostError, error)

    def requeue(self, run: RelayRun, jobs: Jobs, mode: str = "") -> None:
        """Remove the job of a run and store the given jobs, in one transaction. They may have the
        same queue and id, also in mode unique, and are new in every respect. Without jobs it is
        :meth:`complete`.

        When the run is lost the server answers with success and does nothing. :meth:`Run.requeue`,
        of a :class:`Worker`, raises :class:`RunLostError` then.

        :raises ConflictError: in mode unique, after which the run continues.
        :raises InvalidError: if a job is wrong.

        Repeating is safe: a success ends the run, and a request for a run that has ended removes
        and stores nothing.
        """
        try:
            self._requeue(self._client._context(), run, jobs, mode)
        except RunLostError:
            pass

    def _requeue(self, ctx: Context, run: RelayRun, jobs: Jobs, mode: str) -> None:
        """Do :meth:`requeue`. It raises RunLostError when the run is lost."""
        op = "relay requeue"
        call = Call(
            op,
            "PUT",
            _run_path(op, run),
            query=query_of({"mode": mode}),
            body=_encode_specs(op, jobs),
            accept=(202,),
        )
        _check_current(op, self._client._http.call(ctx, call))

    def complete(self, run: RelayRun) -> None:
        """Remove the job if this run is its current one. If it is not, nothing is removed, and
        that is no error.

        :raises InvalidError: if a name of the run is wrong.

        Repeating is safe, because the run id must match.
        """
        try:
            self._complete(self._client._context(), run)
        except RunLostError:
            pass

    def _complete(self, ctx: Context, run: RelayRun) -> None:
        """Do :meth:`complete`. It raises RunLostError when the run is lost."""
        op = "relay complete"
        _check_current(op, self._client._http.call(ctx, Call(op, "DELETE", _run_path(op, run))))

    def delete(self, queue: str, id: str) -> None:
        """Remove a job, in flight or not. Deleting a job that does not exist is no error.

        :raises InvalidError: if a name is wrong.

        Repeating: a repeat also removes a job that was enqueued with the same queue and id in
        between.
        """
        op = "relay delete"
        self._call(Call(op, "DELETE", _job_path(op, queue, id)))

    def exists(self, queue: str, id: str) -> bool:
        """Report whether a job exists, due or not, in flight or not. Repeating is safe.

        :raises InvalidError: if a name is wrong.
        """
        op = "relay exists"
        path = _job_path(op, queue, id)
        answer = self._client._http.call(
            self._client._context(), Call(op, "HEAD", path, read_only=True, accept=(200, 404))
        )
        return answer.status == 200

    def get(self, queue: str, id: str) -> RelayJob:
        """Read a job without claiming it. Repeating is safe.

        :raises NotFoundError: if there is no such job.
        """
        op = "relay get"
        call = Call(op, "GET", _job_path(op, queue, id), read_only=True)
        return self._client._http.call_json(self._client._context(), call, RelayJob)

    def complete_all(self, runs: Sequence[RelayRun]) -> List[bool]:
        """Do :meth:`complete` for up to 50,000 runs, also of several queues, in one request and one
        transaction, for programs that claim many jobs at a time. Entry i of the result is whether
        ``runs[i]`` was the current run of its job, which is removed then. A run that is not does
        not affect the others, and is no error; when two entries have the same run id, the second
        is not known. Without runs it sends nothing.

        :raises InvalidError: when an entry is wrong, which the message names by its index, and for
            a request that is too large.
        :raises Error: with a server that does not have this request, which is an extension of the
            protocol. No run has ended after an error, unless it is uncertain.

        Repeating is safe. After a try whose answer was lost, the runs that it has ended are not
        known.
        """
        return self._complete_all(self._client._context(), runs)

    def _complete_all(
        self, ctx: Context, runs: Sequence[RelayRun], single_try: bool = False
    ) -> List[bool]:
        entries = [RelayHeartbeat(run.queue, run.id, run.run_id) for run in runs]
        call = Call("relay complete all", "POST", "/v2/queues/completions", single_try=single_try)
        return self._post_runs(ctx, call, entries)

    def heartbeat_all(self, heartbeats: Sequence[RelayHeartbeat]) -> List[bool]:
        """Do :meth:`heartbeat` for up to 50,000 runs, also of several queues, in one request and
        one transaction. Entry i of the result is whether ``heartbeats[i]`` named the current run
        of its job; where it is false the run is lost, and its worker should stop. That does not
        affect the others. When two entries have the same run id, the last state counts. Without
        heartbeats it sends nothing.

        :raises Error: as :meth:`complete_all`.

        Repeating is safe: it stores the same states again.
        """
        return self._heartbeat_all(self._client._context(), heartbeats)

    def _heartbeat_all(
        self, ctx: Context, heartbeats: Sequence[RelayHeartbeat], single_try: bool = False
    ) -> List[bool]:
        call = Call("relay heartbeat all", "POST", "/v2/queues/heartbeats", single_try=single_try)
        return self._post_runs(ctx, call, heartbeats)

    def _post_runs(
        self, ctx: Context, call: Call, entries: Sequence[RelayHeartbeat]
    ) -> List[bool]:
        """Send entries and return which of their runs were known."""
        if not entries:
            return []
        parts = []
        for i, entry in enumerate(entries):
            try:
                parts.append(_encode_entry(entry))
            except ValueError as error:
                raise invalid(call.op, f"run {i}: {error}")
        call.body = _wire.array_of(parts)
        answer = self._client._http.call(ctx, call)
        return self._client._http.decoded(call, answer, lambda value: _read_known(value, entries))

    def dead_letters(self, queue: str, page_size: int = 0) -> Iterator[RelayDeadLetter]:
        """Iterate over the dead letters of a queue, the oldest first, and ask for ``page_size`` of
        them at a time; 0 leaves the size to the server. A dead letter that was replayed stays in
        the list. Repeating is safe.

        :raises Error: by the iterator, which ends with the first error.
        """
        op = "relay dead letters"
        path = f"/v2/queues/{segment(op, 'queue', queue)}/dead-letters"
        return list_pages(
            self._client._http,
            self._client._context,
            lambda query: Call(op, "GET", path, query=query, read_only=True),
            RelayDeadLetter,
            {},
            page_size,
        )

    def replay(self, queue: str, id: int, again: bool = False) -> RelayJob:
        """Enqueue the job of a dead letter again, under its id and with all of its retries, and
        return it. ``again`` replays also one that was replayed before.

        :raises NotFoundError: if there is no such dead letter.
        :raises ConflictError: when it was replayed before, and when a job has its queue and id.

        Repeating: after a try whose answer was lost, the conflict of a repeat may be with that
        try; the error is uncertain then. With ``again`` a try whose answer was lost is not
        repeated.
        """
        op = "relay replay"
        path = f"/v2/queues/{segment(op, 'queue', queue)}/dead-letters/{int(id)}/replay"
        body = b'{"again":true}' if again else None
        call = Call(op, "POST", path, body=body, accept=(202,), not_idempotent=again)
        return self._client._http.call_json(self._client._context(), call, RelayJob)

    def _call(self, call: Call) -> None:
        self._client._http.call(self._client._context(), call)


def _encode_specs(op: str, jobs: Jobs) -> bytes:
    """Encode the body of enqueue and requeue."""
    parts = []
    for i, job in enumerate([jobs] if isinstance(jobs, RelaySpec) else jobs):
        try:
            parts.append(_encode_spec(job))
        except ValueError as error:
            raise invalid(op, f"job {i}: {error}")
    return _wire.array_of(parts)


def _encode_spec(job: RelaySpec) -> bytes:
    check_name("queue", job.queue)
    check_name("id", job.id)
    members: List[Tuple[str, bytes]] = [
        ("queue", encode(job.queue)),
        ("id", encode(job.id)),
        ("timeout", encode(_wire.whole_seconds(job.timeout))),
    ]
    if job.max_retries is not None:
        members.append(("max_retries", encode(job.max_retries, "max_retries")))
    if job.run_at is not None:
        members.append(("run_at", encode(_wire.format_time(job.run_at))))
    if job.state is not None:
        members.append(("state", encode(job.state, "state")))
    if job.callback_url:
        members.append(("callback_url", encode(job.callback_url, "callback_url")))
    members.append(("payload", encode(job.payload, "payload")))
    return _wire.object_of(members)


def _encode_entry(entry: RelayHeartbeat) -> bytes:
    members = []
    for what, name in (("queue", entry.queue), ("id", entry.id), ("run_id", entry.run_id)):
        check_name(what, name)
        members.append((what, encode(name)))
    if entry.state is not UNSET:
        members.append(("state", encode(entry.state, "state")))
    if entry.error:
        members.append(("error", encode(entry.error, "error")))
    if entry.error and entry.error_type:
        members.append(("error_type", encode(entry.error_type, "error_type")))
    return _wire.object_of(members)


def _read_claimed(value: object) -> List[RelayJob]:
    """Read claimed jobs, each of which must have a run id."""
    jobs = _wire.read_list(RelayJob, value)
    for job in jobs:
        if not job.run_id:
            raise ValueError(f"claimed job {job.id!r} has no run id")
    return jobs


def _read_known(value: object, entries: Sequence[RelayHeartbeat]) -> List[bool]:
    """Read the answer to entries, which must be about these in their order."""
    results = _wire.read_list(_Known, value)
    if len(results) != len(entries):
        raise ValueError(f"it has {len(results)} entries, not {len(entries)}")
    for i, (result, entry) in enumerate(zip(results, entries)):
        if (result.id, result.run_id) != (entry.id, entry.run_id):
            raise ValueError(f"entry {i} is about another run")
    return [result.known for result in results]


def _check_current(op: str, answer: Answer) -> None:
    """Raise RunLostError for an answer whose header says that the run of the request is lost. It is
    uncertain when an earlier try of the call may have ended the run: its answer was lost, or it was
    one to try again, which Relay also sends where it cannot tell what its store has done."""
    if answer.headers.get("Millrace-Lost-Runs"):
        raise run_lost(op, answer.status, answer.uncertain or answer.repeated)


def run_lost(op: str, status: int, uncertain: bool = False) -> RunLostError:
    """Return the error of a call whose answer says that the run is lost."""
    error = RunLostError(op, status=status, message="the run is no longer the job's current one")
    error.uncertain = uncertain
    return error


def _job_path(op: str, queue: str, id: str) -> str:
    return f"/v2/queues/{segment(op, 'queue', queue)}/jobs/{segment(op, 'id', id)}"


def _run_path(op: str, run: RelayRun) -> str:
    return f"{_job_path(op, run.queue, run.id)}/run-id/{segment(op, 'run id', run.run_id)}"
