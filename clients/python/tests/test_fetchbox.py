"""FetchBox against a real server, which downloads from one in this process."""

from __future__ import annotations

import unittest
from typing import Any, Callable, List

import millrace
from millrace import FetchBoxFilter, FetchBoxManifest, FetchBoxResource, FetchBoxSpec

from .base import BOUND, TOKEN, ServerTest, until
from .fake import FakeServer, Reply


class FetchBoxTest(ServerTest):
    def setUp(self) -> None:
        self.box = self.client.fetch_box().with_operator_token(TOKEN)

    def origin(self, *replies: Reply) -> FakeServer:
        fake = FakeServer(*replies)
        self.addCleanup(fake.close)
        return fake

    def manifest(self, origin: FakeServer, count: int = 1, **members: Any) -> FetchBoxManifest:
        resources = [FetchBoxResource(f"r{i}", f"{origin.url}/{i}") for i in range(count)]
        return FetchBoxManifest(resources, **members)

    def test_downloads(self) -> None:
        origin = self.origin(Reply(200, b"content"))
        manifest = self.manifest(origin, 3, metadata={"for": "tests"}, attributes={"a": 1})
        manifest.resources[0].headers = {"X-Mine": "1"}
        manifest.resources[0].tags = {"t": "v"}
        receipt = self.box.submit(FetchBoxSpec("default", manifest, tenant="me"))
        self.assertEqual(receipt.resources, 3)
        self.assertTrue(receipt.manifest_key)
        job = self.box.wait(receipt.job_id, timeout=BOUND)
        self.assertEqual((job.status, job.completed, job.failed), ("completed", 3, 0))
        self.assertEqual((job.tenant, job.type, job.remaining), ("me", "default", 0))
        self.assertTrue(job.finished)
        self.assertIn("1", [request.headers.get("x-mine") for request in origin.requests])
        again = FetchBoxSpec(
            "default", manifest, tenant="me", idempotency_key=receipt.idempotency_key
        )
        self.assertEqual(self.box.submit(again).job_id, receipt.job_id)
        listed = self.box.jobs(FetchBoxFilter(status="completed", page_size=1))
        self.assertIn(receipt.job_id, [found.id for found in listed])
        self.assertEqual(self.box.job(receipt.job_id).id, receipt.job_id)

    def test_large_manifests_are_compressed(self) -> None:
        origin = self.origin(Reply(200, b"content"))
        manifest = self.manifest(origin, 300, metadata={"text": "x" * 20_000})
        receipt = self.box.submit(FetchBoxSpec("default", manifest))
        self.assertEqual(receipt.resources, 300)
        self.assertEqual(self.box.wait(receipt.job_id, timeout=BOUND).completed, 300)

    def test_logs(self) -> None:
        origin = self.origin(Reply(200, b"content"))
        ready = millrace.RawJSON(self.manifest(origin, 2).encode().text)
        receipt = self.box.submit(FetchBoxSpec("default", ready))
        followed = []
        for entry in self.box.logs(receipt.job_id, follow=True, timeout=BOUND):
            followed.append(entry)
            if len({e.resource_id for e in followed if e.resource_id}) == 2:
                break
        self.box.wait(receipt.job_id, timeout=BOUND)
        entries = list(self.box.logs(receipt.job_id))
        self.assertEqual([e.offset for e in entries[: len(followed)]], [e.offset for e in followed])
        self.assertTrue(all(e.message and e.level and e.timestamp_ms for e in entries))
        rest = list(self.box.logs(receipt.job_id, since=entries[1].offset))
        self.assertEqual(
            [e.offset for e in rest[: len(entries) - 1]], [e.offset for e in entries[1:]]
        )
        with self.assertRaises(millrace.NotFoundError):
            list(self.box.logs("7f2fb3f8-5bb7-4ac8-9d3b-d3b1c0a3b1f0"))

    def test_dead_letters(self) -> None:
        origin = self.origin(Reply(404, b"none"))
        receipt = self.box.submit(FetchBoxSpec("default", self.manifest(origin)))
        job = self.box.wait(receipt.job_id, timeout=BOUND)
        self.assertEqual((job.status, job.failed), ("failed", 1))
        assert job.last_error is not None
        self.assertEqual(job.last_error.code, "HTTP_404")

        def dead_letters() -> List[millrace.FetchBoxDeadLetter]:
            found = self.box.dead_letters(page_size=50)
            return [one for one in found if one.task["job_id"] == receipt.job_id]

        (dead_letter,) = until("the dead letter", dead_letters)
        task = millrace.FetchBoxTask.of(dead_letter.task)
        self.assertEqual((task.resource_id, dead_letter.code), ("r0", "HTTP_404"))
        origin.replies = [Reply(200, b"content")]
        again = self.box.replay(dead_letter.offset)
        self.assertEqual((again.job_id, again.resource_id), (receipt.job_id, "r0"))
        self.assertEqual(self.box.wait(receipt.job_id, timeout=BOUND).status, "completed")
        with self.assertRaises(millrace.ConflictError):
            self.box.replay(dead_letter.offset)
        with self.assertRaises(millrace.NotFoundError):
            self.box.replay(10**9)

    def test_cancel_and_retry(self) -> None:
        origin = self.origin(Reply(404, b"none"))
        spec = FetchBoxSpec("default", self.manifest(origin), callback_url=f"{origin.url}/told")
        id = self.box.submit(spec).job_id
        self.assertEqual(self.box.wait(id, timeout=BOUND).status, "failed")
        with self.assertRaises(millrace.ConflictError):
            self.box.cancel(id)
        origin.replies = [Reply(200, b"content")]
        again = self.box.retry(id)
        self.assertEqual((again.id, again.callback_url), (id, spec.callback_url))
        self.assertEqual(self.box.wait(id, timeout=BOUND).status, "completed")
        with self.assertRaises(millrace.ConflictError):
            self.box.retry(id)
        with self.assertRaises(millrace.NotFoundError):
            self.box.cancel("7f2fb3f8-5bb7-4ac8-9d3b-d3b1c0a3b1f0")

    def test_health(self) -> None:
        health = self.box.health()
        self.assertEqual(health.status, "ok")
        self.assertEqual(health.components["ledger"].status, "ok")

    def test_bad_input_changes_nothing(self) -> None:
        good = FetchBoxManifest([FetchBoxResource("a", "http://127.0.0.1:1/")])
        calls: List[Callable[[], Any]] = [
            lambda: self.box.submit(FetchBoxSpec("none", good)),
            lambda: self.box.submit(FetchBoxSpec("", good)),
            lambda: self.box.submit(FetchBoxSpec("default", FetchBoxManifest([]))),
            lambda: self.box.submit(FetchBoxSpec("default", {"no": "manifest"})),
            lambda: self.box.submit(FetchBoxSpec("default", millrace.RawJSON("{"))),
            lambda: self.box.submit(FetchBoxSpec("default", good, tenant="two\nlines")),
            lambda: self.box.submit(
                FetchBoxSpec("default", FetchBoxManifest([FetchBoxResource("", "http://x")]))
            ),
            lambda: self.box.submit(
                FetchBoxSpec("default", FetchBoxManifest([FetchBoxResource("a", "ftp://x")]))
            ),
            lambda: self.box.submit(
                FetchBoxSpec("default", FetchBoxManifest(good.resources, metadata=object()))
            ),
            lambda: self.box.job(""),
            lambda: self.box.logs(""),
            lambda: self.box.with_operator_token(""),
            lambda: millrace.FetchBoxTask.of({"attempt": "x"}) or 1 / 0,
        ]
        before = [job.id for job in self.box.jobs()]
        for i, call in enumerate(calls[:-1]):
            with self.subTest(i), self.assertRaises(millrace.InvalidError):
                call()
        with self.assertRaises(ValueError):
            calls[-1]()
        self.assertEqual([job.id for job in self.box.jobs()], before)
        with self.assertRaises(millrace.InvalidError) as caught:
            self.box.submit(FetchBoxSpec("none", good, idempotency_key="mine"))
        self.assertEqual(caught.exception.code, "UNSUPPORTED_JOB_TYPE")
        self.assertEqual(caught.exception.idempotency_key, "mine")


if __name__ == "__main__":
    unittest.main()
