"""The cases that the clients for Go, Python and TypeScript have in common: what they send, and what
they make of answers. They are in clients/cases.json."""

from __future__ import annotations

import json
import pathlib
import unittest
from datetime import datetime, timedelta, timezone
from typing import Any, Callable, Dict, List, Optional

import millrace

from .fake import FakeServer, Reply, Request

FILE = pathlib.Path(__file__).resolve().parents[2] / "cases.json"
NOON = datetime(2026, 5, 1, 14, 0, 0, 123456, timezone(timedelta(hours=2)))
RUN = millrace.RelayRun("q", "a", "r")
TASK = millrace.TaskFlowSpec(
    "n",
    "q",
    payload={"a": [1]},
    priority=7,
    dependencies=["d"],
    retry=millrace.TaskFlowRetryPolicy(max_attempts=2, base_delay=1.5),
)

KINDS = (
    ("not_millrace", millrace.NotMillraceError),
    ("run_lost", millrace.RunLostError),
    ("cycle", millrace.CycleError),
    ("not_found", millrace.NotFoundError),
    ("conflict", millrace.ConflictError),
    ("invalid", millrace.InvalidError),
    ("unauthorized", millrace.UnauthorizedError),
    ("retryable", millrace.RetryableError),
    ("other", millrace.Error),
)
"""The kinds of errors, in the order in which they are looked for."""


def time_of(at: Optional[datetime]) -> Optional[str]:
    """Return a time as the results of the cases have it."""
    return None if at is None else at.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def relay_get(client: millrace.Client) -> Any:
    job = client.relay().get("q/ü", "a b")
    return {
        "payload": job.payload,
        "retries_remaining": job.retries_remaining,
        "run_id": job.run_id,
        "run_at": time_of(job.run_at),
        "created_at": time_of(job.created_at),
    }


def relay_claim(client: millrace.Client) -> Any:
    return [
        {"id": job.id, "run_id": job.run_id, "payload": job.payload, "timeout": job.timeout}
        for job in client.relay().claim("q", 5, wait=1.5)
    ]


def task_of(job: millrace.TaskFlowJob) -> Any:
    return {
        "id": job.id,
        "status": job.status,
        "next_run_at": time_of(job.next_run_at),
        "result": job.result,
        "last_error": job.last_error and job.last_error.message,
    }


def forge_submit(client: millrace.Client) -> Any:
    spec = millrace.ForgeRunSpec(
        "DEFERRED", kind="SUCCESS_FAST", execution_at=NOON, idempotency_key="k"
    )
    receipt = client.forge_run().submit(spec)
    key = receipt.idempotency_key
    return {"id": receipt.job_id, "state": receipt.state, "idempotency_key": key}


def forge_get(client: millrace.Client) -> Any:
    job = client.forge_run().get("1")
    return {
        "id": job.id,
        "state": job.state,
        "attempt": job.attempt,
        "execution_at": time_of(job.execution_at),
        "failure": job.failure and job.failure.code,
    }


def fetch_submit(client: millrace.Client) -> Any:
    resource = millrace.FetchBoxResource("a", "http://h/a", headers={"X-A": "b"})
    manifest = millrace.FetchBoxManifest([resource], metadata={"m": 1})
    spec = millrace.FetchBoxSpec("default", manifest, tenant="t", idempotency_key="k")
    receipt = client.fetch_box().submit(spec)
    key = receipt.idempotency_key
    return {"id": receipt.job_id, "resources": receipt.resources, "idempotency_key": key}


def claim(client: millrace.Client) -> Any:
    return [
        {
            "id": job.id,
            "run_id": job.run_id,
            "attempt": job.attempt,
            "payload": job.payload,
            "lease": job.lease,
        }
        for job in client.worker_api().claim("taskflow", ["q"], 3, wait=1.5, worker="w")
    ]


CALLS: Dict[str, Callable[[millrace.Client], Any]] = {
    "relay.enqueue": lambda client: client.relay().enqueue(
        millrace.RelaySpec(
            "q/ü", "a b", timeout=1.5, max_retries=2, payload={"n": 1.5}, run_at=NOON
        ),
        "ignore",
    ),
    "relay.get": relay_get,
    "relay.heartbeat": lambda client: client.relay().heartbeat(RUN, {"page": 1}),
    "relay.complete": lambda client: client.relay().complete(RUN),
    "relay.claim": relay_claim,
    "relay.complete_all": lambda client: client.relay().complete_all(
        [RUN, millrace.RelayRun("q", "b", "s")]
    ),
    "relay.replay_again": lambda client: client.relay().replay("q", 7, again=True),
    "taskflow.submit": lambda client: task_of(client.task_flow().submit(TASK)),
    "taskflow.submit_once": lambda client: task_of(client.task_flow().submit_once("k", TASK)),
    "taskflow.get": lambda client: task_of(client.task_flow().get("1")),
    "taskflow.delete": lambda client: client.task_flow().delete("1"),
    "forgerun.submit": forge_submit,
    "forgerun.get": forge_get,
    "fetchbox.submit": fetch_submit,
    "worker.claim": claim,
    "worker.complete": lambda client: client.worker_api().complete("r", {"x": 1}),
}


def reply_of(answer: Dict[str, Any]) -> Reply:
    """Return what the server answers."""
    if answer.get("cut"):
        return Reply(0)
    body, headers = answer.get("text", "").encode(), dict(answer.get("headers", {}))
    for member, media_type in (("json", "application/json"), ("problem", "application/problem+json")):
        if member in answer:
            body, headers["Content-Type"] = json.dumps(answer[member]).encode(), media_type
    return Reply(answer["status"], body, headers)


class CasesTest(unittest.TestCase):
    """Runs each case as a subtest."""

    def test_cases(self) -> None:
        cases = json.loads(FILE.read_text(encoding="utf-8"))["cases"]
        for case in cases:
            with self.subTest(case["name"]):
                self.run_case(case)
        self.assertGreaterEqual(len(cases), 50)
        self.assertEqual({case["call"] for case in cases}, set(CALLS))

    def run_case(self, case: Dict[str, Any]) -> None:
        fake = FakeServer(*(reply_of(answer) for answer in case["answers"]))
        self.addCleanup(fake.close)
        client = millrace.Client(
            fake.url + "/base/", token="secret", retry=millrace.Retry(base_delay=0.001)
        )
        self.addCleanup(client.close_idle_connections)
        if "error" in case:
            with self.assertRaises(millrace.Error) as caught:
                CALLS[case["call"]](client)
            self.check_error(case["error"], caught.exception)
        else:
            self.assertEqual(CALLS[case["call"]](client), case.get("result"))
        self.assertEqual(len(fake.requests), case.get("tries", len(case["answers"])))
        if "request" in case:
            for request in fake.requests:
                self.check_request(case["request"], request)

    def check_error(self, want: Dict[str, Any], error: millrace.Error) -> None:
        members: Dict[str, Any] = dict(vars(error))
        members["kind"] = next(name for name, kind in KINDS if isinstance(error, kind))
        self.assertEqual({name: members[name] for name in want}, want, str(error))

    def check_request(self, want: Dict[str, Any], request: Request) -> None:
        target = "/base" + want["path"]
        if "query" in want:
            target += "?" + want["query"]
        self.assertEqual((request.method, request.path), (want["method"], target))
        headers = {"authorization": "Bearer secret", **want.get("headers", {})}
        sent: List[Optional[str]] = [request.headers.get(name) for name in headers]
        self.assertEqual(sent, list(headers.values()))
        body = json.loads(request.body) if request.body else None
        self.assertEqual(body, want.get("json"))


if __name__ == "__main__":
    unittest.main()
