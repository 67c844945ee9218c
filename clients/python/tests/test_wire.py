"""How values are written to and read from the wire."""

from __future__ import annotations

import unittest
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Dict, List

import millrace
from millrace import _wire


class WireTest(unittest.TestCase):
    def test_segments_are_escaped(self) -> None:
        for text, want in {
            "a-b_c.d~e": "a-b_c.d~e",
            "a/b?c#d": "a%2Fb%3Fc%23d",
            "ü ": "%C3%BC%20",
            ".": "%2E",
            "..": "%2E%2E",
            "...": "...",
            "%41": "%2541",
        }.items():
            self.assertEqual(_wire.escape(text), want)

    def test_names_that_cannot_be_sent(self) -> None:
        for name in ("", "\ud800", 7):
            with self.assertRaises(ValueError):
                _wire.check_name("queue", name)  # type: ignore[arg-type]

    def test_seconds_are_whole(self) -> None:
        for seconds, want in {
            0: 0,
            1: 1,
            0.1: 1,
            1.2: 2,
            0.1 + 0.2 - 0.3: 0,
            -0.5: -1,
            300.0: 300,
        }.items():
            self.assertEqual(_wire.whole_seconds(seconds), want)
        for wrong in (float("nan"), float("inf"), "30", True, None):
            with self.assertRaises(ValueError):
                _wire.whole_seconds(wrong)  # type: ignore[arg-type]

    def test_times(self) -> None:
        at = datetime(2026, 1, 2, 3, 4, 5, 678901, timezone.utc)
        self.assertEqual(_wire.format_time(at), "2026-01-02T03:04:05.678901Z")
        for text, want in {
            "2026-01-02T03:04:05.678901Z": at,
            "2026-01-02T03:04:05.678901234Z": at,
            "2026-01-02T05:04:05.678901+02:00": at,
            "2026-01-01T22:34:05.678901-04:30": at,
            "2026-01-02T03:04:05Z": at.replace(microsecond=0),
            "2026-01-02t03:04:05.6z": at.replace(microsecond=600000),
        }.items():
            self.assertEqual(_wire.parse_time(text), want)
        for wrong in ("", "2026-01-02", "2026-13-02T03:04:05Z", "now"):
            with self.assertRaises(ValueError):
                _wire.parse_time(wrong)
        with self.assertRaises(ValueError):
            _wire.format_time(datetime(2026, 1, 2))
        east = at.astimezone(timezone(timedelta(hours=2)))
        self.assertEqual(_wire.format_time(east), "2026-01-02T03:04:05.678901Z")

    def test_values_are_encoded(self) -> None:
        for value, want in (
            ({"a": [1, 2.5, None, True]}, b'{"a":[1,2.5,null,true]}'),
            ("ü", '"ü"'.encode()),
            ("\ud800", b'"\\ud800"'),
            (millrace.RawJSON('{"n": 1.10}'), b'{"n": 1.10}'),
            (millrace.RawJSON(b"1e400"), b"1e400"),
        ):
            self.assertEqual(_wire.encode(value), want)

    def test_values_that_are_no_json(self) -> None:
        deep: List[Any] = []
        for _ in range(100_000):
            deep = [deep]
        for value in (
            object(),
            float("nan"),
            float("inf"),
            {1, 2},
            b"bytes",
            deep,
            millrace.RawJSON("{"),
            millrace.RawJSON("[" * 100_000),
            millrace.RawJSON(b"\xff"),
        ):
            with self.assertRaises(ValueError):
                _wire.encode(value)

    def test_numbers_with_very_many_digits_are_exact(self) -> None:
        digits = "1" + "0" * 5000 + "7"
        self.assertEqual(_wire.decode(digits), Decimal(digits))

    def test_answers_are_checked(self) -> None:
        good: Dict[str, Any] = {"queue": "q", "id": "a", "timeout": 3, "run_id": None, "x": 1}
        job = _wire.read(millrace.RelayJob, good)
        self.assertEqual((job.queue, job.timeout, job.run_id), ("q", 3.0, ""))
        wrongs: List[Any] = [
            None,
            [],
            {"queue": "q"},
            {**good, "id": 7},
            {**good, "timeout": "3"},
            {**good, "timeout": True},
            {**good, "max_retries": 1.5},
            {**good, "created_at": "yesterday"},
        ]
        for wrong in wrongs:
            with self.assertRaises(ValueError, msg=str(wrong)):
                _wire.read(millrace.RelayJob, wrong)

    def test_null_is_a_value_of_a_payload(self) -> None:
        job = _wire.read(millrace.TaskFlowJob, {"name": "a", "queue": "q", "payload": None})
        self.assertIsNone(job.payload)

    def test_words_equal_their_texts(self) -> None:
        self.assertEqual(millrace.TaskFlowStatus.READY, "READY")
        self.assertTrue(millrace.TaskFlowStatus("COMPLETED").final)
        self.assertFalse(millrace.TaskFlowStatus("LATER").final)
        self.assertEqual(millrace.AdminAction.RUN_NOW, "run-now")
        self.assertEqual(millrace.AdminReasonCode.NO_WORKERS, "nobody_asks")
        self.assertEqual(millrace.ForgeRunWorkKind.WEBHOOK_5XX, "WEBHOOK_5XX")
        self.assertEqual(millrace.ForgeRunEventName.JOB_CREATED, "job_created")
        self.assertEqual(len(millrace.forge_run_events()), 8)
