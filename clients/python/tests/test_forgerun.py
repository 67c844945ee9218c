"""ForgeRun against a real server, and the verification of webhooks."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import unittest
from datetime import datetime, timedelta, timezone
from typing import Any, Callable, List

import millrace
from millrace import Contract, ForgeRunFilter, ForgeRunDeliveryReplayFilter, ForgeRunSpec

from .base import BOUND, TOKEN, Background, ServerTest, until
from .fake import FakeServer, Reply
from .server import SETTINGS, Server

EVENTS = [str(name) for name in millrace.forge_run_events()]


class ForgeRunWebhookTest(ServerTest):
    def setUp(self) -> None:
        anonymous = self.client.forge_run()
        self.client_id = anonymous.create_client()
        self.key = anonymous.create_first_api_key(self.client_id)
        self.forge = anonymous.with_api_key(self.key.api_key)

    def submit(self, kind: str = "SUCCESS_FAST", **members: Any) -> str:
        return self.forge.submit(ForgeRunSpec("EXECUTE", kind, **members)).job_id

    def test_life_of_a_job(self) -> None:
        receipt = self.forge.submit(ForgeRunSpec(millrace.ForgeRunType.EXECUTE, "SUCCESS_FAST"))
        self.assertEqual(receipt.state, "CREATED")
        job = self.forge.wait(receipt.job_id, timeout=BOUND)
        self.assertEqual((job.state, job.outcome, job.attempt), ("SUCCEEDED", "SUCCESS", 0))
        self.assertEqual(job.definition.kind, millrace.ForgeRunWorkKind.SUCCESS_FAST)
        report = self.forge.report(receipt.job_id)
        self.assertEqual(report.events[0].name, millrace.ForgeRunEventName.JOB_CREATED)
        self.assertEqual((report.events[0].prev, report.events[-1].next), ("", "SUCCEEDED"))
        self.assertEqual(report.outcome, "SUCCESS")
        same = ForgeRunSpec("EXECUTE", "SUCCESS_FAST", idempotency_key=receipt.idempotency_key)
        self.assertEqual(self.forge.submit(same).job_id, receipt.job_id)
        other = ForgeRunSpec("EXECUTE", "SUCCESS_SLOW", idempotency_key=receipt.idempotency_key)
        with self.assertRaises(millrace.ConflictError) as caught:
            self.forge.submit(other)
        self.assertEqual(caught.exception.code, "RFA_EXEC_IDEMPOTENCY_CONFLICT")
        self.assertEqual(caught.exception.idempotency_key, receipt.idempotency_key)

    def test_cancel_and_schedule(self) -> None:
        later = datetime.now(timezone.utc) + timedelta(hours=1)
        receipt = self.forge.submit(
            ForgeRunSpec("DEFERRED", "SUCCESS_FAST", execution_at=later, callback=self.server.url)
        )
        job = self.forge.get(receipt.job_id)
        self.assertEqual((job.execution_at, job.callback), (later, self.server.url))
        with self.assertRaises(millrace.NotFoundError):
            self.forge.report(receipt.job_id)
        self.assertEqual(self.forge.cancel(receipt.job_id).state, "CANCELED")
        self.assertIsNone(self.forge.report(receipt.job_id).started_at)

    def test_retry(self) -> None:
        id = self.submit("FAIL_IMMEDIATE")
        job = self.forge.wait(id, timeout=BOUND)
        self.assertEqual(job.state, "FAILED")
        self.assertIsNotNone(job.failure)
        change = self.forge.retry(id)
        self.assertEqual(change.attempt, 1)
        self.assertNotEqual(change.state, "FAILED")
        self.forge.cancel(id)
        done = self.submit()
        self.forge.wait(done, timeout=BOUND)
        with self.assertRaises(millrace.ConflictError):
            self.forge.retry(done)

    def test_jobs(self) -> None:
        ids = [self.submit() for _ in range(3)]
        for id in ids:
            self.forge.wait(id, timeout=BOUND)
        found = list(self.forge.jobs(ForgeRunFilter(page_size=2)))
        self.assertEqual({job.id for job in found}, set(ids))
        self.assertEqual(list(self.forge.jobs(ForgeRunFilter(state="FAILED"))), [])

    def test_keys(self) -> None:
        self.assertTrue(self.key.callback_secret.startswith("whsec_"))
        with self.assertRaises(millrace.UnauthorizedError):
            self.client.forge_run().create_first_api_key(self.client_id)
        known = self.forge.create_api_key(self.client_id)
        self.assertEqual((known.id, known.api_key), (self.key.id, ""))
        rotated = self.forge.create_api_key(self.client_id, rotate=True)
        with self.assertRaises(millrace.UnauthorizedError):
            self.forge.get("x")
        forge = self.forge.with_api_key(rotated.api_key)
        renewed = forge.renew_api_key(self.client_id)
        forge = self.forge.with_api_key(renewed.api_key)
        keys = list(forge.api_keys(self.client_id))
        self.assertEqual(len([key for key in keys if key.revoked_at is None]), 1)
        self.assertGreaterEqual(len(keys), 2)
        forge.revoke_api_key(self.client_id, renewed.id)
        with self.assertRaises(millrace.UnauthorizedError):
            until("it is in force", lambda: list(forge.jobs()) and None)

    def test_jobs_of_others(self) -> None:
        id = self.submit()
        anonymous = self.client.forge_run()
        first = anonymous.create_first_api_key(anonymous.create_client())
        other = anonymous.with_api_key(first.api_key)
        with self.assertRaises(millrace.UnauthorizedError) as caught:
            other.get(id)
        self.assertEqual(caught.exception.code, "RFA_AUTH_FORBIDDEN")
        self.assertTrue(caught.exception.instance)

    def test_webhooks(self) -> None:
        fake = FakeServer(Reply(200))
        self.addCleanup(fake.close)
        hook = self.forge.create_webhook(fake.url, EVENTS)
        with self.assertRaises(millrace.ConflictError):
            self.forge.create_webhook(fake.url, EVENTS)
        (listed,) = self.forge.webhooks()
        self.assertEqual((listed.id, listed.url.rstrip("/")), (hook.id, fake.url))
        test = self.forge.test_webhook(hook.id)
        self.assertEqual((test.status_code, test.error), (200, ""))
        id = self.submit()
        self.forge.wait(id, timeout=BOUND)

        def events() -> List[millrace.ForgeRunWebhookEvent]:
            found = []
            for request in fake.requests[1:]:
                event = millrace.verify_webhook([hook.secret], request.headers, request.body)
                self.assertEqual(event.job_id, id)
                found.append(event)
            return found

        until("all events", lambda: [e for e in events() if e.next == "SUCCEEDED"])
        self.assertEqual((events()[0].name, events()[0].prev), ("job_created", ""))
        until(
            "all are delivered",
            lambda: all(d.status == "delivered" for d in self.forge.deliveries(hook.id)),
        )
        deliveries = list(self.forge.deliveries(hook.id, page_size=2))
        self.assertEqual(deliveries[0].attempts[0].status_code, 200)
        count = len(fake.requests)
        again = self.forge.replay_delivery(hook.id, deliveries[0].id)
        self.assertEqual(again.event_id, deliveries[0].event_id)
        until("it comes again", lambda: len(fake.requests) == count + 1)

        secret = self.forge.rotate_webhook_secret(hook.id)
        self.forge.test_webhook(hook.id)
        for used in ([secret], [hook.secret]):  # for a day both are used
            self.assertTrue(is_genuine(used, fake))
        done = ForgeRunDeliveryReplayFilter(
            from_time=datetime.now(timezone.utc) - timedelta(hours=1),
            to_time=datetime.now(timezone.utc) + timedelta(hours=1),
            status="delivered",
        )
        result = self.forge.replay_deliveries(hook.id, done)
        self.assertGreater(result.replayed, 0)
        self.assertEqual(self.forge.replay_deliveries(hook.id).replayed, 0)
        self.assertFalse(self.forge.enable_webhook(hook.id).disabled)
        self.forge.delete_webhook(hook.id)
        with self.assertRaises(millrace.NotFoundError):
            self.forge.delete_webhook(hook.id)

    def test_bad_input_changes_nothing(self) -> None:
        naive, past = datetime(2026, 1, 1), datetime(2020, 1, 1, tzinfo=timezone.utc)
        calls: List[Callable[[], Any]] = [
            lambda: self.forge.submit(ForgeRunSpec("NONE")),
            lambda: self.forge.submit(ForgeRunSpec("EXECUTE", "NONE")),
            lambda: self.forge.submit(ForgeRunSpec("EXECUTE", "PAYLOAD_INVALID")),
            lambda: self.forge.submit(ForgeRunSpec("EXECUTE", callback="ftp://x")),
            lambda: self.forge.submit(ForgeRunSpec("EXECUTE", execution_at=naive)),
            lambda: self.forge.submit(ForgeRunSpec("DEFERRED", execution_at=past)),
            lambda: self.forge.submit(ForgeRunSpec(object())),  # type: ignore[arg-type]
            lambda: self.forge.get(""),
            lambda: self.forge.with_api_key("two\nlines"),
            lambda: self.forge.create_webhook("no url", EVENTS),
            lambda: self.forge.create_webhook(self.server.url, ["none"]),
            lambda: self.forge.create_client("two\nlines"),
        ]
        for i, call in enumerate(calls):
            with self.subTest(i), self.assertRaises(millrace.InvalidError):
                call()
        self.assertEqual(list(self.forge.jobs()), [])
        self.assertEqual(list(self.forge.webhooks()), [])


def is_genuine(secrets: List[str], fake: FakeServer) -> bool:
    """Whether the last request was signed with one of the secrets, whatever its event."""
    last = fake.requests[-1]
    try:
        millrace.verify_webhook(secrets, last.headers, last.body)
    except millrace.InvalidWebhookError:
        return False
    except ValueError:
        pass  # the event of a test is about no job
    return True


class ForgeWorkerTest(unittest.TestCase):
    """A worker of one's own, with a server that runs no jobs itself."""

    def test_a_worker_runs_jobs(self) -> None:
        server = Server(*SETTINGS, flags=["--no-workers"]).start()
        self.addCleanup(server.close)
        client = millrace.Client(server.url, token=TOKEN)
        forge = client.forge_run()
        forge = forge.with_api_key(forge.create_first_api_key(forge.create_client()).api_key)
        states: List[str] = []

        def handle(run: millrace.JobRun) -> None:
            states.append(forge.get(run.job.id).state)
            if len(states) == 1:
                raise millrace.JobError("it broke", final=True)

        quiet = logging.getLogger("test.forgerun")
        quiet.disabled = True
        worker = millrace.JobWorker(
            client.worker_api(), Contract.FORGE_RUN, {"": handle}, logger=quiet
        )
        running = Background(worker)
        self.addCleanup(worker.kill)
        first = forge.submit(ForgeRunSpec("EXECUTE", "SUCCESS_FAST"))
        self.assertEqual(forge.wait(first.job_id, timeout=BOUND).state, "FAILED")
        second = forge.submit(ForgeRunSpec("EXECUTE", "SUCCESS_FAST"))
        self.assertEqual(forge.wait(second.job_id, timeout=BOUND).state, "SUCCEEDED")
        running.stop()
        self.assertEqual(states, ["RUNNING", "RUNNING"])


class VerifyTest(unittest.TestCase):
    SECRET = "whsec_" + base64.b64encode(b"k" * 24).decode()
    NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
    BODY = b'{"event_id":"e","job_id":"j","event_name":"job_created","prev_state":null}'

    def headers(self, body: bytes = BODY, at: datetime = NOW) -> Any:
        stamp = str(int(at.timestamp()))
        digest = hmac.new(b"k" * 24, b"e." + stamp.encode() + b"." + body, hashlib.sha256).digest()
        signature = "v1," + base64.b64encode(digest).decode()
        return {"Webhook-Id": "e", "webhook-timestamp": stamp, "WEBHOOK-SIGNATURE": signature}

    def test_a_genuine_request(self) -> None:
        event = millrace.verify_webhook([self.SECRET], self.headers(), self.BODY, self.NOW)
        self.assertEqual((event.event_id, event.job_id, event.prev), ("e", "j", ""))
        self.assertEqual(event.signed_at, self.NOW)
        other = "whsec_" + base64.b64encode(b"o" * 24).decode()
        headers = self.headers()
        headers["WEBHOOK-SIGNATURE"] = "v1,AAAA v2,x " + headers["WEBHOOK-SIGNATURE"]
        millrace.verify_webhook([other, self.SECRET], headers, self.BODY, self.NOW)

    def test_requests_that_are_not_genuine(self) -> None:
        good = self.headers()
        early, late = self.NOW - timedelta(minutes=6), self.NOW + timedelta(minutes=6)
        for headers, body in (
            ({}, self.BODY),
            ({**good, "Webhook-Id": "f"}, self.BODY),
            ({**good, "webhook-timestamp": "x"}, self.BODY),
            ({**good, "webhook-timestamp": "9" * 30}, self.BODY),
            ({**good, "WEBHOOK-SIGNATURE": ""}, self.BODY),
            ({**good, "WEBHOOK-SIGNATURE": "v1,?"}, self.BODY),
            (good, self.BODY + b" "),
            (self.headers(at=early), self.BODY),
            (self.headers(at=late), self.BODY),
        ):
            with self.assertRaises(millrace.InvalidWebhookError):
                millrace.verify_webhook([self.SECRET], headers, body, self.NOW)
        with self.assertRaises(millrace.InvalidWebhookError):
            millrace.verify_webhook([], good, self.BODY, self.NOW)

    def test_what_is_no_event(self) -> None:
        headers = self.headers(b"[]")
        with self.assertRaises(ValueError):
            millrace.verify_webhook([self.SECRET], headers, b"[]", self.NOW)
        for secret in ("whsec_", "whsec_?", ""):
            with self.assertRaises(ValueError):
                millrace.verify_webhook([secret], self.headers(), self.BODY, self.NOW)


if __name__ == "__main__":
    unittest.main()
