"""Every request of the client is one that the OpenAPI documents of the server have."""

from __future__ import annotations

import pathlib
import re
import unittest
from datetime import datetime, timezone
from typing import Any, Callable, Dict, Iterator, List, Set, Tuple

import millrace

from .base import public_methods
from .fake import FakeServer, Reply

ROOT = pathlib.Path(__file__).parents[3]

Routes = Dict[str, Set[str]]


def documented() -> Routes:
    """Return the methods of each path in the documents."""
    routes: Routes = {}
    for document in sorted((ROOT / "internal").rglob("openapi.yaml")):
        if "testdata" not in document.parts:
            read_paths(document.read_text(encoding="utf-8"), routes)
    return routes


def read_paths(text: str, routes: Routes) -> None:
    """Read the paths of a document, whose lines are indented by two spaces."""
    path, inside = "", False
    for line in text.splitlines():
        if re.match(r"\S", line):
            inside = line.startswith("paths:")
        found = re.match(r'  "?(/[^":]*)"?:\s*$', line) if inside else None
        if found:
            path = found[1]
            routes.setdefault(path, set())
        method = re.match(r"    (get|post|put|patch|delete|head):", line)
        if inside and method:
            routes[path].add(method[1].upper())


RUN = millrace.RelayRun("q", "a", "r")
JOB = millrace.RelaySpec("q", "a", timeout=1)
GRAPH = millrace.TaskFlowGraphBuilder()
GRAPH.add("a", millrace.TaskFlowSpec("a", "q"))
MANIFEST = millrace.FetchBoxManifest([millrace.FetchBoxResource("a", "http://x/")])
WHEN = datetime.now(timezone.utc)

# What is called of each contract: every public method, with arguments that are sent.
CALLS: Dict[str, Dict[str, Callable[[Any], Any]]] = {
    "relay": {
        "enqueue": lambda c: c.enqueue(JOB, "ignore"),
        "claim": lambda c: c.claim("q", 3, wait=1),
        "heartbeat": lambda c: c.heartbeat(RUN, 1),
        "requeue": lambda c: c.requeue(RUN, JOB),
        "complete": lambda c: c.complete(RUN),
        "delete": lambda c: c.delete("q", "a"),
        "exists": lambda c: c.exists("q", "a"),
        "get": lambda c: c.get("q", "a"),
        "complete_all": lambda c: c.complete_all([RUN]),
        "heartbeat_all": lambda c: c.heartbeat_all([millrace.RelayHeartbeat("q", "a", "r")]),
        "dead_letters": lambda c: next(c.dead_letters("q")),
        "replay": lambda c: c.replay("q", 1),
    },
    "worker_api": {
        "claim": lambda c: c.claim("taskflow"),
        "claim_job": lambda c: c.claim_job("taskflow", "j"),
        "heartbeat": lambda c: c.heartbeat("r"),
        "start": lambda c: c.start("r"),
        "complete": lambda c: c.complete("r"),
        "fail": lambda c: c.fail("r", millrace.JobFailure("no")),
        "release": lambda c: c.release("r"),
        "finish": lambda c: c.finish([millrace.RunOutcome("r")]),
    },
    "task_flow": {
        "submit": lambda c: c.submit(millrace.TaskFlowSpec("a", "q")),
        "submit_once": lambda c: c.submit_once("k", millrace.TaskFlowSpec("a", "q")),
        "get": lambda c: c.get("j"),
        "update": lambda c: c.update("j", millrace.TaskFlowPatch()),
        "delete": lambda c: c.delete("j"),
        "delete_with_dependents": lambda c: c.delete_with_dependents("j"),
        "cancel": lambda c: c.cancel("j"),
        "rerun": lambda c: c.rerun("j"),
        "rerun_graph": lambda c: c.rerun_graph("j"),
        "wait": lambda c: c.wait("j"),
        "page": lambda c: c.page(millrace.TaskFlowFilter()),
        "search": lambda c: next(c.search()),
        "submit_graph": lambda c: c.submit_graph(GRAPH),
        "submit_graph_once": lambda c: c.submit_graph_once("k", GRAPH),
        "graph": lambda c: c.graph("j"),
        "wait_graph": lambda c: c.wait_graph("j"),
    },
    "forge_run": {
        "with_api_key": lambda c: c.with_api_key("k").get("j"),
        "submit": lambda c: c.submit(millrace.ForgeRunSpec("EXECUTE", execution_at=WHEN)),
        "get": lambda c: c.get("j"),
        "report": lambda c: c.report("j"),
        "cancel": lambda c: c.cancel("j"),
        "retry": lambda c: c.retry("j"),
        "jobs": lambda c: next(c.jobs()),
        "wait": lambda c: c.wait("j"),
        "create_client": lambda c: c.create_client(),
        "create_first_api_key": lambda c: c.create_first_api_key("c"),
        "create_api_key": lambda c: c.create_api_key("c"),
        "renew_api_key": lambda c: c.renew_api_key("c"),
        "revoke_api_key": lambda c: c.revoke_api_key("c", "k"),
        "api_keys": lambda c: next(c.api_keys("c")),
        "create_webhook": lambda c: c.create_webhook("http://x/", []),
        "webhooks": lambda c: next(c.webhooks()),
        "delete_webhook": lambda c: c.delete_webhook("w"),
        "rotate_webhook_secret": lambda c: c.rotate_webhook_secret("w"),
        "enable_webhook": lambda c: c.enable_webhook("w"),
        "test_webhook": lambda c: c.test_webhook("w"),
        "deliveries": lambda c: next(c.deliveries("w")),
        "replay_delivery": lambda c: c.replay_delivery("w", "d"),
        "replay_deliveries": lambda c: c.replay_deliveries("w"),
    },
    "fetch_box": {
        "with_operator_token": lambda c: c.with_operator_token("t").health(),
        "submit": lambda c: c.submit(millrace.FetchBoxSpec("t", MANIFEST)),
        "job": lambda c: c.job("j"),
        "jobs": lambda c: next(c.jobs()),
        "wait": lambda c: c.wait("j"),
        "logs": lambda c: next(c.logs("j")),
        "cancel": lambda c: c.cancel("j"),
        "retry": lambda c: c.retry("j"),
        "dead_letters": lambda c: next(c.dead_letters()),
        "replay": lambda c: c.replay(1),
        "health": lambda c: c.health(),
    },
    "images": {
        "upload": lambda c: c.upload(b"x", type="image/png"),
        "file": lambda c: c.file("f"),
        "wait": lambda c: c.wait("f"),
        "content": lambda c: c.content("f"),
        "variant": lambda c: c.variant("f", 100),
        "delete": lambda c: c.delete("f"),
        "submit_job": lambda c: c.submit_job("process_file", "f"),
        "job": lambda c: c.job("j"),
        "wait_job": lambda c: c.wait_job("j"),
        "jobs": lambda c: next(c.jobs()),
        "republish_message": lambda c: c.republish_message("j"),
        "dead_letters": lambda c: next(c.dead_letters()),
        "replay": lambda c: c.replay("j"),
        "cancel_job": lambda c: c.cancel_job("j"),
    },
    "admin": {
        "with_actor": lambda c: c.with_actor("a").health(),
        "contracts": lambda c: next(c.contracts()),
        "health": lambda c: c.health(),
        "jobs": lambda c: next(c.jobs()),
        "job": lambda c: c.job(1),
        "job_body": lambda c: [c.job_body(1, part) for part in ("payload", "result")],
        "why": lambda c: c.why(1),
        "timeline": lambda c: c.timeline(1),
        "counts": lambda c: next(c.counts(millrace.AdminCountQuery("queue"))),
        "act_on_job": lambda c: c.act_on_job(1, millrace.AdminAction.RETRY),
        "submit_job": lambda c: c.submit_job(millrace.AdminSubmission("taskflow", {})),
        "queues": lambda c: next(c.queues()),
        "set_queue": lambda c: c.set_queue("c", "q", millrace.AdminQueueChange()),
        "reset_queue": lambda c: c.reset_queue("c", "q"),
        "dead_letters": lambda c: next(c.dead_letters()),
        "dead_letter_groups": lambda c: next(c.dead_letter_groups()),
        "dead_letter": lambda c: c.dead_letter(1),
        "replay_dead_letter": lambda c: c.replay_dead_letter(1),
        "discard_dead_letter": lambda c: c.discard_dead_letter(1),
        "workers": lambda c: next(c.workers()),
        "nodes": lambda c: next(c.nodes()),
        "drain_worker": lambda c: c.drain_worker("w"),
        "resume_worker": lambda c: c.resume_worker("w"),
        "schedules": lambda c: next(c.schedules()),
        "schedule": lambda c: c.schedule("s"),
        "create_schedule": lambda c: c.create_schedule("s", millrace.AdminScheduleSpec()),
        "set_schedule": lambda c: c.set_schedule("s", millrace.AdminScheduleSpec()),
        "delete_schedule": lambda c: c.delete_schedule("s"),
        "pause_schedule": lambda c: c.pause_schedule("s"),
        "resume_schedule": lambda c: c.resume_schedule("s"),
        "run_schedule": lambda c: c.run_schedule("s"),
        "schedule_ticks": lambda c: next(c.schedule_ticks("s")),
    },
}


def requests() -> Iterator[Tuple[str, str, str]]:
    """Make every call and yield its name, method and path."""
    fake = FakeServer(Reply(404, b"no"))
    client = millrace.Client(fake.url)
    try:
        for contract, calls in CALLS.items():
            for name, call in calls.items():
                fake.requests.clear()
                try:
                    call(getattr(client, contract)())
                except millrace.Error:
                    pass
                for request in fake.requests:
                    yield f"{contract}.{name}", request.method, request.path.split("?")[0]
    finally:
        client.close_idle_connections()
        fake.close()


def matches(path: str, template: str) -> bool:
    """Whether a path is one of a template such as /v1/jobs/{job_id}."""
    pattern = re.sub(r"\\\{[^}]*\\\}", "[^/]+", re.escape(template))
    return re.fullmatch(pattern, path) is not None


class OpenAPITest(unittest.TestCase):
    def test_the_documents_have_every_request(self) -> None:
        routes, made = documented(), list(requests())
        self.assertGreater(len(routes), 80)
        for name, method, path in made:
            # A fixed path comes before one with names.
            found = [path] if path in routes else [t for t in routes if matches(path, t)]
            self.assertTrue(found, f"{name}: no document has {path}")
            known: List[str] = [t for t in found if method in routes[t]]
            self.assertTrue(known, f"{name}: no document has {method} {path}")
        self.assertEqual(
            {name for name, _, _ in made},
            {f"{contract}.{name}" for contract, calls in CALLS.items() for name in calls},
        )

    def test_every_method_is_called(self) -> None:
        client = millrace.Client("http://127.0.0.1:1")
        for contract, calls in CALLS.items():
            cls = type(getattr(client, contract)())
            self.assertEqual({name for name, _ in public_methods(cls)}, set(calls))


if __name__ == "__main__":
    unittest.main()
