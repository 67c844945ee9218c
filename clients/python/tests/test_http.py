"""Tries, pauses and errors of calls, with a server that answers what a test tells it to."""

from __future__ import annotations

import io
import threading
import time
import unittest
from typing import Any, BinaryIO, Dict, List, Tuple, cast

import millrace
from millrace import Retry

from .base import until
from .fake import FakeServer, Reply, silent_server, trickle, unused_port

PROBLEM = {"Content-Type": "application/problem+json"}
FAST = Retry(base_delay=0.001)


class HttpTest(unittest.TestCase):
    def serve(self, *replies: Reply, **options: Any) -> millrace.Client:
        """Start a server and return a client of it."""
        self.fake = FakeServer(*replies)
        self.addCleanup(self.fake.close)
        options.setdefault("retry", FAST)
        return millrace.Client(self.fake.url + "/base/", **options)

    def paths(self) -> List[str]:
        return [request.path for request in self.fake.requests]

    def test_requests(self) -> None:
        client = self.serve(Reply(202), Reply(200), token="secret", user_agent="me")
        client.relay().enqueue(millrace.RelaySpec("q", "a", timeout=1), "ignore")
        client.relay().delete("ü/?", "..")
        first, second = self.fake.requests
        self.assertEqual(first.path, "/base/v2/queues/jobs?mode=ignore")
        self.assertEqual(first.headers["authorization"], "Bearer secret")
        self.assertEqual(first.headers["user-agent"], "me")
        self.assertEqual(first.headers["content-type"], "application/json")
        self.assertEqual(second.path, "/base/v2/queues/%C3%BC%2F%3F/jobs/%2E%2E")
        self.assertEqual(second.body, b"")
        self.assertNotIn("content-type", second.headers)

    def test_the_user_agent_has_the_version(self) -> None:
        self.serve(Reply(200)).relay().delete("q", "a")
        (request,) = self.fake.requests
        self.assertEqual(request.headers["user-agent"], "millrace-python/" + millrace.__version__)

    def test_connections_are_used_again(self) -> None:
        client = self.serve(Reply(200), Reply(404, b"gone"), Reply(200))
        relay = client.relay()
        relay.delete("q", "a")
        with self.assertRaises(millrace.NotFoundError):
            relay.get("q", "a")
        relay.delete("q", "a")
        self.assertEqual(len({request.port for request in self.fake.requests}), 1)
        client.close_idle_connections()
        relay.delete("q", "a")
        self.assertEqual(len({request.port for request in self.fake.requests}), 2)

    def test_a_connection_that_the_server_has_closed_is_not_used_again(self) -> None:
        client = self.serve(Reply(200, headers={"Connection": "close"}), retry=Retry(max_tries=1))
        for _ in range(3):
            client.relay().delete("q", "a")
        self.assertEqual(len({request.port for request in self.fake.requests}), 3)

    def test_many_threads_share_a_client(self) -> None:
        client = self.serve(Reply(200))

        def work() -> None:
            for _ in range(20):
                client.relay().delete("q", "a")

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(self.fake.requests), 160)

    def test_tries_are_repeated(self) -> None:
        for status in (429, 502, 503, 504, 0):
            client = self.serve(Reply(status), Reply(status), Reply(200))
            client.relay().delete("q", "a")
            self.assertEqual(len(self.fake.requests), 3)

    def test_other_answers_are_not_repeated(self) -> None:
        for status, kind in {
            400: millrace.InvalidError,
            401: millrace.UnauthorizedError,
            403: millrace.UnauthorizedError,
            404: millrace.NotFoundError,
            409: millrace.ConflictError,
            410: millrace.NotFoundError,
            413: millrace.InvalidError,
            415: millrace.InvalidError,
            422: millrace.InvalidError,
            500: millrace.Error,
            301: millrace.Error,
            201: millrace.Error,
        }.items():
            client = self.serve(Reply(status, b"some words"))
            with self.assertRaises(kind) as caught:
                client.relay().delete("q", "a")
            self.assertEqual(len(self.fake.requests), 1)
            self.assertEqual(caught.exception.status, status)
            self.assertEqual(caught.exception.message, "some words")
            self.assertEqual(caught.exception.uncertain, status == 500)
            self.assertFalse(caught.exception.retryable)

    def test_tries_are_used_up(self) -> None:
        client = self.serve(Reply(503, b"later", {"X-Request-Id": "r-1"}))
        with self.assertRaises(millrace.RetryableError) as caught:
            client.relay().delete("q", "a")
        self.assertEqual(len(self.fake.requests), 6)
        self.assertEqual(
            str(caught.exception),
            "millrace: relay delete: 503 Service Unavailable: later (request r-1)",
        )
        self.assertTrue(caught.exception.uncertain)

    def test_no_server(self) -> None:
        client = millrace.Client(f"http://127.0.0.1:{unused_port()}", retry=FAST)
        with self.assertRaises(millrace.RetryableError) as caught:
            client.relay().delete("q", "a")
        self.assertEqual((caught.exception.status, caught.exception.uncertain), (0, False))
        self.assertIsInstance(caught.exception.__cause__, OSError)
        self.assertRegex(
            str(caught.exception),
            r"no connection to 127\.0\.0\.1:\d+: .*refused; is the server running\? `millrace",
        )

    def test_a_lost_answer_is_uncertain(self) -> None:
        client = self.serve(Reply(0), Reply(409, b"exists"))
        with self.assertRaises(millrace.ConflictError) as caught:
            client.relay().enqueue(millrace.RelaySpec("q", "a", timeout=1))
        self.assertTrue(caught.exception.uncertain)
        self.assertIn("may have taken effect", str(caught.exception))

    def test_what_is_not_repeatable_is_repeated_only_when_nothing_can_have_happened(self) -> None:
        spec = millrace.TaskFlowSpec("a", "q")
        made = Reply(201, b'{"id":"1","name":"a","queue":"q"}')
        client = self.serve(Reply(429), made)
        client.task_flow().submit(spec)
        self.assertEqual(len(self.fake.requests), 2)
        for lost in (Reply(0), Reply(503)):
            client = self.serve(lost, made)
            with self.assertRaises(millrace.RetryableError) as caught:
                client.task_flow().submit(spec)
            self.assertTrue(caught.exception.uncertain)
            self.assertEqual(len(self.fake.requests), 1)
            client = self.serve(lost, made)
            client.task_flow().submit_once("", spec)
            keys = {request.headers["idempotency-key"] for request in self.fake.requests}
            self.assertEqual((len(self.fake.requests), len(keys)), (2, 1))

    def test_a_delete_that_took_effect_is_one(self) -> None:
        client = self.serve(Reply(0), Reply(404))
        client.task_flow().delete("1")
        client = self.serve(Reply(404))
        with self.assertRaises(millrace.NotFoundError):
            client.task_flow().delete("1")

    def test_reads_are_never_uncertain(self) -> None:
        client = self.serve(Reply(0))
        with self.assertRaises(millrace.RetryableError) as caught:
            client.relay().get("q", "a")
        self.assertFalse(caught.exception.uncertain)

    def test_problem_documents(self) -> None:
        body = b'{"title":"T","detail":"D","code":"C","instance":"I"}'
        for reply, want in (
            (Reply(409, body, PROBLEM), ("C", "D", "I")),
            (Reply(409, b'{"title":"T"}', PROBLEM), ("", "T", "")),
            (Reply(409, b'["x"]', PROBLEM), ("", '["x"]', "")),
            (
                Reply(409, b'{"code":"C","message":"M"}', {"Content-Type": "application/json"}),
                ("C", "M", ""),
            ),
            (
                Reply(
                    409,
                    b'{"error":{"code":"C","message":"M"}}',
                    {"Content-Type": "application/json; charset=utf-8"},
                ),
                ("C", "M", ""),
            ),
            (Reply(409, b"\xff", {"X-Request-Id": "R"}), ("", "\ufffd", "R")),
        ):
            client = self.serve(reply)
            with self.assertRaises(millrace.ConflictError) as caught:
                client.relay().delete("q", "a")
            error = caught.exception
            self.assertEqual((error.code, error.message, error.instance), want)

    def test_foreign_servers(self) -> None:
        for reply in (
            Reply(404, b"<html>no</html>"),
            Reply(404, b"404 page not found\n"),
            Reply(200, b"<!doctype html><p>Welcome</p>"),
        ):
            client = self.serve(reply)
            with self.assertRaises(millrace.NotMillraceError) as caught:
                client.relay().get("q", "a")
            self.assertEqual(caught.exception.message, "")
        client = self.serve(Reply(502, b"<html>bad gateway</html>"), Reply(200))
        client.relay().delete("q", "a")

    def test_answers_that_cannot_be_read(self) -> None:
        for body in (b"", b"{", b"[]", b'{"queue":7}', b"[" * 100_000):
            client = self.serve(Reply(200, body))
            with self.assertRaises(millrace.Error) as caught:
                client.relay().get("q", "a")
            self.assertIn("answer:", str(caught.exception))
        client = self.serve(Reply(200, b"x" * 1000), max_response_bytes=999)
        with self.assertRaisesRegex(millrace.Error, "max_response_bytes"):
            client.relay().get("q", "a")
        client = self.serve(Reply(200, b"{", length=9), Reply(200, b'{"queue":"q"}'))
        with self.assertRaisesRegex(millrace.Error, "RelayJob"):
            client.relay().get("q", "a")  # an answer that breaks off is tried again
        self.assertEqual(len(self.fake.requests), 2)

    def test_retry_after(self) -> None:
        date = {"Date": "Mon, 05 Jan 2026 10:00:00 GMT"}
        for headers, want in (
            ({"Retry-After": "90"}, 90.0),
            ({"Retry-After": "Mon, 05 Jan 2026 10:01:30 GMT", **date}, 90.0),
        ):
            client = self.serve(Reply(503, b"", headers))
            began = time.monotonic()
            with self.assertRaises(millrace.RetryableError) as caught:
                client.relay().delete("q", "a")  # more than a minute is for the caller
            self.assertGreaterEqual(caught.exception.retry_after, want)
            self.assertEqual(len(self.fake.requests), 1)
            self.assertLess(time.monotonic() - began, 30)
        for value in ("", "-1", "soon", "Mon, 05 Jan", "9" * 5000):
            client = self.serve(Reply(503, b"", {"Retry-After": value}), retry=Retry(max_tries=1))
            with self.assertRaises(millrace.RetryableError):
                client.relay().delete("q", "a")

    def test_pauses(self) -> None:
        backoff = millrace._http.Backoff(0.1, 10.0)
        backoff.random = lambda: 1.0
        delays = [backoff.delay(n, 0) for n in (1, 2, 3, 4, 8, 100, 10_000)]
        self.assertEqual([round(d, 3) for d in delays], [0.1, 0.2, 0.4, 0.8, 10, 10, 10])
        backoff.random = lambda: 0.0
        self.assertEqual(backoff.delay(3, 7.0), 7.0)

    def test_timeouts(self) -> None:
        listener = silent_server()
        self.addCleanup(listener.close)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        client = millrace.Client(url, request_timeout=0.05, retry=Retry(max_tries=2, base_delay=0))
        with self.assertRaises(millrace.RetryableError) as caught:
            client.relay().delete("q", "a")
        self.assertTrue(caught.exception.uncertain)
        client = millrace.Client(url, call_timeout=0.05)
        for relay in (client.relay(), millrace.Client(url).with_timeout(0.05).relay()):
            with self.assertRaises(millrace.DeadlineError) as late:
                relay.delete("q", "a")
            self.assertIsInstance(late.exception, TimeoutError)
            self.assertTrue(late.exception.uncertain)

    def test_a_timeout_ends_the_pauses(self) -> None:
        client = self.serve(Reply(503, b"why", {"Retry-After": "50"}), call_timeout=0.2)
        with self.assertRaises(millrace.DeadlineError) as caught:
            client.relay().delete("q", "a")
        self.assertEqual((caught.exception.status, caught.exception.message), (503, "why"))

    def test_an_answer_that_comes_byte_by_byte_is_bounded(self) -> None:
        listener, ends = silent_server(), threading.Event()
        self.addCleanup(listener.close)
        self.addCleanup(ends.set)
        threading.Thread(target=trickle, args=(listener, ends), daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        client = millrace.Client(url, request_timeout=0.3, retry=Retry(max_tries=1))
        with self.assertRaises(millrace.RetryableError):
            client.relay().delete("q", "a")

    def test_arguments_of_a_client(self) -> None:
        cases: List[Tuple[str, Dict[str, Any]]] = [
            ("127.0.0.1:8080", {}),
            ("ftp://host", {}),
            ("http://", {}),
            ("http://host?x=1", {}),
            ("http://host#x", {}),
            ("http://user:pw@host", {}),
            ("http://host:99999", {}),
            ("http://host", {"token": "two\nlines"}),
            ("http://host", {"request_timeout": -1}),
            ("http://host", {"max_response_bytes": 0}),
        ]
        for url, options in cases:
            with self.assertRaises(millrace.InvalidError, msg=url):
                millrace.Client(url, **options)

    def test_tls_that_is_none(self) -> None:
        fake = FakeServer(Reply(200))
        self.addCleanup(fake.close)
        client = millrace.Client(fake.url.replace("http", "https"), retry=FAST)
        with self.assertRaises(millrace.Error) as caught:
            client.relay().delete("q", "a")
        self.assertFalse(caught.exception.retryable or caught.exception.uncertain)

    def test_uploads_are_repeated_from_their_start(self) -> None:
        made = Reply(202, b'{"file_id":"f","job_id":"j","status":"queued"}')
        client = self.serve(Reply(0), Reply(503), made)
        picture = io.BytesIO(b"head" + b"p" * 200_000)
        picture.seek(4)
        receipt = client.images().upload(picture, name="a.png", sizes=[100, 400], user_id="u")
        self.assertEqual(receipt.file_id, "f")
        for request in self.fake.requests:
            self.assertEqual(request.body, b"p" * 200_000)
            self.assertEqual(request.path, "/base/images/v1/files?sizes=100,400")
            self.assertEqual(request.headers["content-type"], "image/png")
            self.assertEqual(request.headers["idempotency-key"], receipt.idempotency_key)

    def test_an_upload_that_cannot_be_read_again_is_tried_once(self) -> None:
        class Pipe(io.RawIOBase):
            left = [b"one", b"two"]

            def read(self, size: int = -1) -> bytes:
                return self.left.pop(0) if self.left else b""

        client = self.serve(Reply(503))
        with self.assertRaises(millrace.RetryableError) as caught:
            client.images().upload(
                cast(BinaryIO, Pipe()), type="image/png", idempotency_key="k"
            )
        self.assertEqual([r.body for r in self.fake.requests], [b"onetwo"])
        self.assertEqual(caught.exception.idempotency_key, "k")

    def test_logs_go_on_after_broken_connections(self) -> None:
        def lines(*offsets: int) -> bytes:
            return b"".join(b'{"offset":%d,"message":"m"}\n' % n for n in offsets)

        client = self.serve(
            Reply(200, lines(5, 6) + b'{"off', length=500),
            Reply(503),
            Reply(200, lines(7) + b"\n" + lines(8)),
        )
        found = [entry.offset for entry in client.fetch_box().logs("j", since=5)]
        self.assertEqual(found, [5, 6, 7, 8])
        starts = [path.split("since_offset=")[1] for path in self.paths()]
        self.assertEqual([s.split("&")[0] for s in starts], ["5", "7", "7"])

    def test_logs_that_bring_nothing_end(self) -> None:
        client = self.serve(Reply(200, b"no json\n"))
        with self.assertRaises(millrace.RetryableError):
            list(client.fetch_box().logs("j"))
        self.assertEqual(len(self.fake.requests), 6)
        client = self.serve(Reply(200, b""))
        self.assertEqual(list(client.fetch_box().logs("j")), [])
        with self.assertRaises(millrace.DeadlineError):
            list(client.fetch_box().logs("j", follow=True, timeout=0.1))
        client = self.serve(Reply(200, b"x" * (2 << 20)))
        with self.assertRaisesRegex(millrace.Error, "more than"):
            list(client.fetch_box().logs("j"))

    def test_waits_go_on_while_the_server_is_unavailable(self) -> None:
        def job(state: str) -> Reply:
            return Reply(200, b'{"job_id":"j","state":"%s"}' % state.encode())

        client = self.serve(job("RUNNING"), Reply(503), job("RUNNING"), job("FAILED"))
        self.assertEqual(client.forge_run().wait("j").state, "FAILED")
        client = self.serve(job("RUNNING"))
        with self.assertRaises(millrace.DeadlineError):
            client.forge_run().wait("j", timeout=0.1)
        client = self.serve(Reply(404))
        with self.assertRaises(millrace.NotFoundError):
            client.forge_run().wait("j")

    def test_a_picture_that_breaks_off(self) -> None:
        client = self.serve(Reply(200, b"half", length=8))
        with client.images().content("f") as picture:
            with self.assertRaises(millrace.RetryableError):
                picture.read()

    def test_outcomes_after_a_lost_answer(self) -> None:
        answer = b'{"outcomes":[{"run_id":"r","code":"RUN_LOST","detail":"d"}]}'
        for replies, uncertain in (
            ([Reply(200, answer)], False),
            ([Reply(0), Reply(200, answer)], True),
        ):
            client = self.serve(*replies)
            (result,) = client.worker_api().finish([millrace.RunOutcome("r")])
            assert isinstance(result.error, millrace.RunLostError)
            self.assertEqual(result.error.uncertain, uncertain)
        client = self.serve(Reply(200, answer.replace(b'"r"', b'"other"')))
        with self.assertRaisesRegex(millrace.Error, "other runs"):
            client.worker_api().finish([millrace.RunOutcome("r")])

    def test_errors_of_batches(self) -> None:
        run = millrace.RelayRun("q", "a", "r")
        for body in (b"[]", b'[{"id":"b","run_id":"r","known":true}]', b"{}"):
            client = self.serve(Reply(200, body))
            with self.assertRaises(millrace.Error) as caught:
                client.relay().complete_all([run])
            self.assertTrue(caught.exception.uncertain)

    def test_idle_connections_of_another_process_are_left_alone(self) -> None:
        client = self.serve(Reply(200))
        client.relay().delete("q", "a")
        client._http._pool._process = -1  # as after a fork
        client.relay().delete("q", "a")
        self.assertEqual(len({request.port for request in self.fake.requests}), 2)

    def test_members_of_an_error(self) -> None:
        error: Dict[str, Any] = vars(millrace.Error("op", status=599, code="C"))
        self.assertEqual((error["op"], error["status"], error["code"]), ("op", 599, "C"))
        self.assertEqual(str(millrace.Error("op", status=599)), "millrace: op: 599")
        self.assertTrue(until("a value", lambda: True))


if __name__ == "__main__":
    unittest.main()
