"""TaskFlow: jobs with priorities, dependencies and retry policies.

:meth:`TaskFlow.submit` stores a job, :meth:`TaskFlow.submit_graph` a whole graph made with a
:class:`TaskFlowGraphBuilder`, :meth:`TaskFlow.search` finds jobs, and :meth:`TaskFlow.wait_graph`
waits until all jobs of a graph have finished. A :class:`JobWorker` executes the jobs.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Callable, Dict, Iterator, List, Optional, Tuple, TypeVar

from . import _wire
from ._context import Context
from ._follow import read_page, watch
from ._http import Call, segment
from ._wire import check_name, encode, query_of
from .errors import CycleError, invalid, refusing
from .taskflow_types import (
    TaskFlowFilter,
    TaskFlowGraph,
    TaskFlowJob,
    TaskFlowPage,
    TaskFlowPatch,
    TaskFlowSpec,
    encode_patch,
    encode_spec,
    spec_members,
)

if TYPE_CHECKING:
    from .client import Client

__all__ = ["TaskFlow", "TaskFlowGraphBuilder"]

T = TypeVar("T")

_JOBS_PATH = "/api/v1/jobs"


@dataclass
class _Copies:
    jobs: Dict[str, str] = field(default_factory=dict)


class TaskFlow:
    """The TaskFlow contract. Every error is an :class:`Error`, with the contract's code when the
    server answered. It may be used by several threads. Made by :meth:`Client.task_flow`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def submit(self, spec: TaskFlowSpec) -> TaskFlowJob:
        """Store a job and return it as the server has it: READY, PENDING while it has unfinished
        dependencies, or BLOCKED if one of them has failed.

        :raises InvalidError: also for an unknown dependency.

        Repeating would store another job, so a try whose answer was lost is not repeated. The
        error is uncertain then, and the job may exist. See :meth:`submit_once`.
        """
        return self._submit(spec, {})

    def submit_once(self, key: str, spec: TaskFlowSpec) -> TaskFlowJob:
        """Do :meth:`submit` with an idempotency key of 1 to 255 characters: of equal specs with the
        same key one makes a job, within the day for which the server remembers the key, and all
        others return that job as it is then. An empty key is one that no other call has. Repeating
        is safe.

        :raises ConflictError: with the code ``IDEMPOTENCY_CONFLICT`` where another spec came with
            the key.
        :raises NotFoundError: where the job was deleted since.
        """
        return self._submit(spec, _idempotency("taskflow submit", key))

    def _submit(self, spec: TaskFlowSpec, key: Dict[str, str]) -> TaskFlowJob:
        op = "taskflow submit"
        call = Call(
            op,
            "POST",
            _JOBS_PATH,
            body=_encoded(op, encode_spec, spec),
            headers=key,
            not_idempotent=not key,
            accept=(201, 200),
        )
        return self._job(call)

    def get(self, id: str) -> TaskFlowJob:
        """Read a job. Repeating is safe.

        :raises NotFoundError: if there is no such job.
        """
        return self._get(self._client._context(), id)

    def _get(self, ctx: Context, id: str) -> TaskFlowJob:
        op = "taskflow get"
        call = Call(op, "GET", _path(op, id), read_only=True)
        return self._client._http.call_json(ctx, call, TaskFlowJob)

    def update(self, id: str, patch: TaskFlowPatch) -> TaskFlowJob:
        """Change what is set in the patch and return the job. The new dependencies of a PENDING job
        decide its status at once. Repeating is safe.

        :raises NotFoundError: if there is no such job.
        :raises ConflictError: for a job that has finished, and for unfinished dependencies of a job
            that is READY or RUNNING.
        :raises CycleError: for dependencies that form a cycle.
        """
        op = "taskflow update"
        body = _encoded(op, encode_patch, patch)
        return self._job(Call(op, "PUT", _path(op, id), body=body))

    def delete(self, id: str) -> None:
        """Delete a job. The run of a RUNNING job is lost.

        :raises NotFoundError: if there is no such job.
        :raises ConflictError: when another job depends on it.

        Repeating is safe: when a job is not found after a try whose answer was lost, that try has
        deleted it.
        """
        op = "taskflow delete"
        self._client._http.delete_once(self._client._context(), Call(op, "DELETE", _path(op, id)))

    def delete_with_dependents(self, id: str) -> None:
        """Delete a job and all that depend on it, directly or through others, or none of them.

        :raises NotFoundError: if there is no such job.
        :raises ConflictError: while one of them is RUNNING.

        Repeating is as safe as that of :meth:`delete`.
        """
        op = "taskflow delete"
        call = Call(op, "DELETE", _path(op, id), query="cascade=true")
        self._client._http.delete_once(self._client._context(), call)

    def cancel(self, id: str) -> TaskFlowJob:
        """End the attempt of a job that is RUNNING: the job is FAILED for good, and its worker
        learns that its run is lost. It returns the job.

        :raises NotFoundError: if there is no such job.
        :raises ConflictError: for a job that is not RUNNING, also when a try whose answer was lost
            has ended it: the error is uncertain then.
        """
        op = "taskflow cancel"
        return self._job(Call(op, "POST", _path(op, id) + "/cancel"))

    def rerun(self, id: str, again: bool = False) -> Dict[str, str]:
        """Make new jobs of one that is FAILED or BLOCKED, and of those of its ancestors and
        dependents that are as well. It returns the ids of the copies by those of their originals.
        A job is rerun once, unless ``again`` is true.

        :raises NotFoundError: if there is no such job.
        :raises ConflictError: for any other job, and with :attr:`Error.copies` for one that was
            rerun before, by another call or by a try of this one whose answer was lost. With
            ``again`` a try whose answer was lost is not repeated.
        """
        return self._rerun("taskflow rerun", id, "/rerun", again)

    def rerun_graph(self, id: str, again: bool = False) -> Dict[str, str]:
        """Do :meth:`rerun` for all jobs that are connected with a job and are FAILED or BLOCKED.
        Without ``again`` those that were rerun before are left out."""
        return self._rerun("taskflow rerun graph", id, "/graph/rerun", again)

    def _rerun(self, op: str, id: str, route: str, again: bool) -> Dict[str, str]:
        call = Call(
            op,
            "POST",
            _path(op, id) + route,
            body=encode({"again": bool(again)}),
            not_idempotent=again,
            accept=(201,),
        )
        return self._client._http.call_json(self._client._context(), call, _Copies).jobs

    def wait(self, id: str, timeout: Optional[float] = None) -> TaskFlowJob:
        """Poll a job until it has finished, and return it. It polls after growing pauses of up to
        two seconds, and continues while the server is unavailable or limits requests. A job that
        has failed, or is blocked for good, raises nothing: its ``status`` says how it ended.

        :raises NotFoundError: if there is no such job.
        :raises DeadlineError: when the timeout in seconds has passed.
        """

        def poll(ctx: Context) -> Tuple[TaskFlowJob, bool]:
            job = self._get(ctx, id)
            return job, job.status.final

        return watch(self._client._http, "taskflow wait", timeout, poll)

    def page(self, filter: TaskFlowFilter, cursor: str = "") -> TaskFlowPage:
        """Read one page of a search: the first page for an empty cursor, else the page whose cursor
        was ``next`` of another page. Repeating is safe.

        :raises InvalidError: for an invalid filter or cursor.
        """
        op = "taskflow search"
        query = {
            "queue": filter.queue,
            "status": filter.status,
            "priority_min": filter.priority_min,
            "priority_max": filter.priority_max,
            "created_after": filter.created_after,
            "created_before": filter.created_before,
            "limit": filter.page_size,
            "cursor": cursor,
        }
        with refusing(op):
            call = Call(op, "GET", _JOBS_PATH, query=query_of(query), read_only=True)
        http = self._client._http
        answer = http.call(self._client._context(), call)
        jobs, after = http.decoded(call, answer, lambda value: read_page(TaskFlowJob, value))
        return TaskFlowPage(jobs, after)

    def search(self, filter: Optional[TaskFlowFilter] = None) -> Iterator[TaskFlowJob]:
        """Iterate over all jobs that match the filter, page by page. A job that exists throughout
        comes exactly once. It raises what :meth:`page` raises."""
        cursor = ""
        while True:
            page = self.page(filter or TaskFlowFilter(), cursor)
            yield from page.jobs
            cursor = page.next
            if not cursor:
                return

    def submit_graph(self, graph: TaskFlowGraphBuilder) -> Dict[str, str]:
        """Store a graph, all of it or nothing, and return the id of each job by its ref.

        :raises InvalidError: also for refs that are unknown or used twice and for more than 10,000
            jobs.
        :raises CycleError: with the refs along the cycle.

        Repeating would store another graph, so a try whose answer was lost is not repeated. The
        error is uncertain then, and the graph may exist. See :meth:`submit_graph_once`.
        """
        return self._submit_graph(graph, {})

    def submit_graph_once(self, key: str, graph: TaskFlowGraphBuilder) -> Dict[str, str]:
        """Do :meth:`submit_graph` with an idempotency key, as that of :meth:`submit_once`: of equal
        graphs with the same key one is stored, and all others return its ids. Repeating is
        safe."""
        return self._submit_graph(graph, _idempotency("taskflow submit graph", key))

    def _submit_graph(self, graph: TaskFlowGraphBuilder, key: Dict[str, str]) -> Dict[str, str]:
        op = "taskflow submit graph"
        graph._check(op)
        call = Call(
            op,
            "POST",
            "/api/v1/graphs",
            body=_encoded(op, TaskFlowGraphBuilder._encode, graph),
            headers=key,
            not_idempotent=not key,
            accept=(201, 200),
        )
        return self._client._http.call_json(self._client._context(), call, _Copies).jobs

    def graph(self, id: str) -> TaskFlowGraph:
        """Read the graph of a job: all jobs that it depends on or that depend on it, directly or
        not. Repeating is safe.

        :raises NotFoundError: if there is no such job.
        """
        return self._graph(self._client._context(), id)

    def _graph(self, ctx: Context, id: str) -> TaskFlowGraph:
        op = "taskflow graph"
        call = Call(op, "GET", _path(op, id) + "/graph", read_only=True)
        return self._client._http.call_json(ctx, call, TaskFlowGraph)

    def wait_graph(self, id: str, timeout: Optional[float] = None) -> TaskFlowGraph:
        """Poll the graph of a job until every job in it has finished, and return it. Of a truncated
        graph it sees only the jobs that :meth:`graph` returns. Jobs that have failed raise nothing:
        the ``status`` of each says how it ended.

        :raises Error: as :meth:`wait`.
        """

        def poll(ctx: Context) -> Tuple[TaskFlowGraph, bool]:
            graph = self._graph(ctx, id)
            return graph, graph.final

        return watch(self._client._http, "taskflow wait graph", timeout, poll)

    def _job(self, call: Call) -> TaskFlowJob:
        return self._client._http.call_json(self._client._context(), call, TaskFlowJob)


@dataclass
class _GraphJob:
    """A job of a graph; ``after`` are refs."""

    ref: str
    spec: TaskFlowSpec
    after: Tuple[str, ...]


class TaskFlowGraphBuilder:
    """Builds a graph: jobs that depend on one another, which :meth:`TaskFlow.submit_graph` stores
    all or none. Within the graph each job has a ref, any text that the caller chooses::

        graph = millrace.TaskFlowGraphBuilder()
        extract = graph.add("extract", millrace.TaskFlowSpec("extract", "etl"))
        graph.add("load", millrace.TaskFlowSpec("load", "etl"), extract)
        ids = task_flow.submit_graph(graph)
    """

    def __init__(self) -> None:
        self._jobs: Dict[str, _GraphJob] = {}
        self._duplicates: List[str] = []

    def add(self, ref: str, spec: TaskFlowSpec, *after: str) -> str:
        """Add a job to the graph and return its ref. The job runs after the jobs with the refs in
        ``after``, which may be added later. Dependencies in the spec are ids of jobs outside the
        graph. :meth:`TaskFlow.submit_graph` reports what is wrong with a graph."""
        if ref in self._jobs:
            self._duplicates.append(ref)
        else:
            self._jobs[ref] = _GraphJob(ref, spec, after)
        return ref

    def refs(self) -> List[str]:
        """Return the refs of all jobs, in the order in which they were added."""
        return list(self._jobs)

    def _check(self, op: str) -> None:
        """Find mistakes before the graph is sent, to report them by refs."""
        if self._duplicates:
            raise invalid(op, f"ref {self._duplicates[0]!r} is there twice")
        if not self._jobs:
            raise invalid(op, "the graph is empty")
        for job in self._jobs.values():
            with refusing(op):
                check_name("ref", job.ref)
            for ref in job.after:
                if ref not in self._jobs:
                    problem = f"job {job.ref!r} comes after {ref!r}, which is not in the graph"
                    raise invalid(op, problem)
        cycle = self._cycle()
        if cycle:
            cause = ValueError(f"dependency cycle of {len(cycle)} jobs")
            raise CycleError(op, cycle=cycle, cause=cause)

    def _cycle(self) -> List[str]:
        """Return the refs of a dependency cycle; none if there is no cycle. It is a depth-first
        search that keeps a stack of its own, because chains of dependencies may be long."""
        done: Dict[str, bool] = {}  # False while a job is on the path
        for start in self._jobs:
            if start in done:
                continue
            done[start] = False
            path = [(start, iter(self._jobs[start].after))]
            while path:
                ref, rest = path[-1]
                before = next(rest, None)
                if before is None:
                    done[ref] = True
                    path.pop()
                elif before not in done:
                    done[before] = False
                    path.append((before, iter(self._jobs[before].after)))
                elif not done[before]:
                    refs = [ref for ref, _ in path]
                    return refs[refs.index(before) :]
        return []

    def _encode(self) -> bytes:
        jobs = []
        for job in self._jobs.values():
            try:
                members = spec_members(job.spec)
                depends_on = encode([*job.after, *job.spec.dependencies])
            except ValueError as error:
                raise ValueError(f"job {job.ref!r}: {error}") from None
            jobs.append(
                _wire.object_of(
                    [("ref", encode(job.ref)), *members, ("depends_on", depends_on)]
                )
            )
        return _wire.object_of([("jobs", _wire.array_of(jobs))])


def _idempotency(op: str, key: str) -> Dict[str, str]:
    """Return a header with an idempotency key, a random one if it is empty."""
    if key:
        with refusing(op):
            _wire.check_header("idempotency key", key)
    return {"Idempotency-Key": key or secrets.token_urlsafe(20)}


def _path(op: str, id: str) -> str:
    return f"{_JOBS_PATH}/{segment(op, 'job id', id)}"


def _encoded(op: str, encode: Callable[[T], bytes], value: T) -> bytes:
    with refusing(op):
        return encode(value)
