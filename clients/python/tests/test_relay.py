"""Relay against a real server."""

from __future__ import annotations

import unittest
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any, Callable, List

import millrace
from millrace import RelayHeartbeat, RelayMode, RelayRun, RelaySpec

from .base import ServerTest, until


class RelayTest(ServerTest):
    def setUp(self) -> None:
        self.relay = self.client.relay()
        self.queue = self.name()

    def claim(self, id: str = "a", **members: Any) -> millrace.RelayJob:
        """Enqueue a job and claim it."""
        spec = RelaySpec(self.queue, id, timeout=60)
        self.relay.enqueue(replace(spec, **members))
        return self.relay.claim(self.queue)[0]

    def test_life_of_a_job(self) -> None:
        payload = {"to": "ü", "n": [1, 2.5, None, True], "big": 2**80}
        spec = RelaySpec(self.queue, "a/b ?#ü", timeout=59.5, max_retries=3, payload=payload)
        self.relay.enqueue(replace(spec, state={"step": 1}))
        stored = self.relay.get(self.queue, spec.id)
        self.assertEqual(stored.payload, payload)
        self.assertEqual((stored.timeout, stored.max_retries), (60, 3))
        self.assertEqual((stored.retries_remaining, stored.run_id), (3, ""))
        self.assertLess(abs(datetime.now(timezone.utc) - stored.created_at), timedelta(minutes=1))

        (job,) = self.relay.claim(self.queue, 5, wait=1)
        self.assertEqual((job.payload, job.state), (payload, {"step": 1}))
        self.relay.heartbeat(job.run())
        self.assertEqual(self.relay.get(self.queue, spec.id).state, {"step": 1})
        self.relay.heartbeat(job.run(), {"step": 2})
        self.assertEqual(self.relay.get(self.queue, spec.id).state, {"step": 2})
        self.relay.heartbeat(job.run(), None)
        self.assertIsNone(self.relay.get(self.queue, spec.id).state)

        self.assertTrue(self.relay.exists(self.queue, spec.id))
        self.relay.complete(job.run())
        self.assertFalse(self.relay.exists(self.queue, spec.id))
        self.relay.complete(job.run())  # no error, also when it is repeated
        with self.assertRaises(millrace.NotFoundError) as caught:
            self.relay.get(self.queue, spec.id)
        self.assertEqual(caught.exception.status, 404)
        self.assertTrue(caught.exception.instance)

    def test_no_job(self) -> None:
        self.assertEqual(self.relay.claim(self.queue), [])
        self.relay.enqueue([])

    def test_run_at(self) -> None:
        later = datetime.now(timezone.utc) + timedelta(hours=1)
        self.relay.enqueue(RelaySpec(self.queue, "a", timeout=1, run_at=later))
        self.assertEqual(self.relay.get(self.queue, "a").run_at, later)
        self.assertEqual(self.relay.claim(self.queue), [])

    def test_modes(self) -> None:
        spec = RelaySpec(self.queue, "a", timeout=60, payload=1)
        self.relay.enqueue([spec])
        with self.assertRaises(millrace.ConflictError) as caught:
            self.relay.enqueue([replace(spec, payload=2), replace(spec, id="b")])
        self.assertFalse(caught.exception.uncertain)
        self.assertFalse(self.relay.exists(self.queue, "b"))
        self.relay.enqueue([replace(spec, payload=2), replace(spec, id="b")], RelayMode.IGNORE)
        self.assertEqual(self.relay.get(self.queue, "a").payload, 1)
        self.relay.enqueue(replace(spec, payload=2), RelayMode.REPLACE)
        self.assertEqual(self.relay.get(self.queue, "a").payload, 2)

    def test_requeue(self) -> None:
        job = self.claim()
        later = replace(job, run_at=datetime.now(timezone.utc) + timedelta(hours=1))
        self.relay.requeue(job.run(), [later, RelaySpec(self.queue, "b", timeout=1)])
        self.assertEqual(self.relay.get(self.queue, "a").run_id, "")
        self.assertTrue(self.relay.exists(self.queue, "b"))
        with self.assertRaises(millrace.RunLostError):
            self.relay.heartbeat(job.run())

    def test_callback(self) -> None:
        job = self.claim(callback_url="http://127.0.0.1:1/told")
        self.assertEqual(job.callback_url, "http://127.0.0.1:1/told")
        self.relay.requeue(job.run(), job)
        self.assertEqual(self.relay.get(self.queue, "a").callback_url, job.callback_url)

    def test_lost_run(self) -> None:
        job = self.claim()
        self.relay.delete(self.queue, "a")
        self.relay.delete(self.queue, "a")  # no error
        with self.assertRaises(millrace.RunLostError) as caught:
            self.relay.heartbeat(job.run(), {"late": True})
        self.assertEqual(caught.exception.status, 404)

    def test_batches_of_runs(self) -> None:
        self.relay.enqueue([RelaySpec(self.queue, f"{i}", timeout=60) for i in range(5)])
        runs = [job.run() for job in self.relay.claim(self.queue, 5)]
        lost = replace(runs[0], run_id="7f2fb3f8-5bb7-4ac8-9d3b-d3b1c0a3b1f0")
        heartbeats = [RelayHeartbeat(r.queue, r.id, r.run_id, {"at": r.id}) for r in runs[:2]]
        heartbeats.append(RelayHeartbeat(lost.queue, lost.id, lost.run_id))
        self.assertEqual(self.relay.heartbeat_all(heartbeats), [True, True, False])
        self.assertEqual(self.relay.get(self.queue, runs[1].id).state, {"at": runs[1].id})
        self.assertEqual(self.relay.complete_all([*runs[:3], lost]), [True] * 3 + [False])
        self.assertFalse(self.relay.exists(self.queue, runs[0].id))
        self.assertTrue(self.relay.exists(self.queue, runs[4].id))
        self.assertEqual(self.relay.complete_all([]), [])
        self.assertEqual(self.relay.heartbeat_all([]), [])
        with self.assertRaises(millrace.InvalidError):
            self.relay.complete_all([runs[3], replace(runs[4], run_id="no uuid")])
        self.assertEqual(self.relay.complete_all(runs[3:]), [True, True])

    def test_raw_json_travels_byte_for_byte(self) -> None:
        exact = millrace.RawJSON('{"amount": 1.10, "big": 123456789012345678901234567890}')
        self.claim(payload=exact)
        raw = self.client._http.call(
            self.client._context(),
            millrace._http.Call("raw", "GET", f"/v2/queues/{self.queue}/jobs/a"),
        )
        self.assertIn(exact.text, raw.body)

    def test_dead_letters(self) -> None:
        job = self.claim(timeout=1, max_retries=0, payload={"n": 1})
        self.relay.heartbeat(job.run(), {"error": "no mail server"})
        (dead_letter,) = until("a dead letter", lambda: list(self.relay.dead_letters(self.queue)))
        self.assertEqual((dead_letter.job_id, dead_letter.attempts), ("a", 1))
        self.assertEqual(dead_letter.payload, {"n": 1})
        self.assertIn("no mail server", dead_letter.error)
        self.assertIsNone(dead_letter.replayed_at)
        again = self.relay.replay(self.queue, dead_letter.id)
        self.assertEqual((again.id, again.payload), ("a", {"n": 1}))
        with self.assertRaises(millrace.ConflictError):
            self.relay.replay(self.queue, dead_letter.id)
        self.relay.delete(self.queue, "a")
        self.relay.replay(self.queue, dead_letter.id, again=True)
        self.assertTrue(self.relay.exists(self.queue, "a"))
        with self.assertRaises(millrace.NotFoundError):
            self.relay.replay(self.queue, dead_letter.id + 1000)
        (dead_letter,) = self.relay.dead_letters(self.queue, page_size=1)
        self.assertIsNotNone(dead_letter.replayed_at)

    def test_bad_input_changes_nothing(self) -> None:
        good = RelaySpec(self.queue, "a", timeout=60)
        run = RelayRun(self.queue, "a", "7f2fb3f8-5bb7-4ac8-9d3b-d3b1c0a3b1f0")
        naive = datetime(2026, 1, 1)
        calls: List[Callable[[], Any]] = [
            lambda: self.relay.enqueue([good, replace(good, id="")]),
            lambda: self.relay.enqueue([good, replace(good, id="x" * 1025)]),
            lambda: self.relay.enqueue([good, replace(good, id="\ud800")]),
            lambda: self.relay.enqueue([good, replace(good, id="b", timeout=-1)]),
            lambda: self.relay.enqueue([good, replace(good, id="b", timeout=2**31)]),
            lambda: self.relay.enqueue([good, replace(good, id="b", timeout=float("nan"))]),
            lambda: self.relay.enqueue([good, replace(good, id="b", max_retries=-1)]),
            lambda: self.relay.enqueue([good, replace(good, id="b", max_retries=40000)]),
            lambda: self.relay.enqueue([good, replace(good, id="b", payload=object())]),
            lambda: self.relay.enqueue([good, replace(good, id="b", state=float("inf"))]),
            lambda: self.relay.enqueue([good, replace(good, id="b", run_at=naive)]),
            lambda: self.relay.enqueue([good], mode="other"),
            lambda: self.relay.enqueue([good, replace(good, id="b", payload="x" * (2 << 20))]),
            lambda: self.relay.claim(self.queue, 0),
            lambda: self.relay.claim(self.queue, -1),
            lambda: self.relay.claim(""),
            lambda: self.relay.claim(self.queue, wait=float("nan")),
            lambda: self.relay.heartbeat(replace(run, run_id="")),
            lambda: self.relay.heartbeat(run, object()),
            lambda: self.relay.complete(replace(run, run_id="no uuid")),
            lambda: self.relay.requeue(run, [replace(good, id="")]),
            lambda: self.relay.get("", "a"),
            lambda: self.relay.get(self.queue, ""),
            lambda: self.relay.exists(self.queue, ""),
            lambda: self.relay.delete(self.queue, ""),
            lambda: self.relay.heartbeat_all([RelayHeartbeat(self.queue, "a", "")]),
            lambda: self.relay.heartbeat_all([RelayHeartbeat(self.queue, "a", "r", object())]),
            lambda: self.relay.dead_letters(""),
            lambda: self.relay.replay("", 1),
        ]
        for i, call in enumerate(calls):
            with self.subTest(i), self.assertRaises(millrace.InvalidError):
                call()
        self.assertFalse(self.relay.exists(self.queue, "a"))


if __name__ == "__main__":
    unittest.main()
