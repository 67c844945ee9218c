"""TLS, with a certificate that is made for the test."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import tempfile
import threading
import unittest

import millrace

from .base import BOUND, Background
from .fake import FakeServer, Reply


class TLSTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        self.cert, key = os.path.join(folder, "cert"), os.path.join(folder, "key")
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
            + ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
            + ["-out", self.cert, "-keyout", key],
            check=True,
            capture_output=True,
        )
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(self.cert, key)

    def serve(self, *replies: Reply) -> str:
        self.fake = FakeServer(*replies, tls=self.context)
        self.addCleanup(self.fake.close)
        return self.fake.url

    def trusting(self, url: str) -> millrace.Client:
        return millrace.Client(url, ssl_context=ssl.create_default_context(cafile=self.cert))

    def test_requests(self) -> None:
        client = self.trusting(self.serve(Reply(200)))
        for _ in range(3):
            client.relay().delete("q", "a")
        self.assertEqual(len({request.port for request in self.fake.requests}), 1)
        client.close_idle_connections()

    def test_a_certificate_that_is_not_trusted(self) -> None:
        client = millrace.Client(self.serve(Reply(200)))
        with self.assertRaises(millrace.Error) as caught:
            client.relay().delete("q", "a")
        self.assertIn("certificate", str(caught.exception))
        self.assertFalse(caught.exception.retryable or caught.exception.uncertain)
        self.assertEqual(self.fake.requests, [])

    def test_a_poll_is_cut_off(self) -> None:
        polled, go_on = threading.Event(), threading.Event()

        def hang() -> None:
            polled.set()
            go_on.wait(BOUND)

        client = self.trusting(self.serve(Reply(204, b"", after=hang)))
        worker = Background(millrace.Worker(client.relay(), "q", lambda run: None))
        self.addCleanup(go_on.set)
        self.assertTrue(polled.wait(BOUND))
        worker.stop()

    def test_a_timeout(self) -> None:
        go_on = threading.Event()
        self.addCleanup(go_on.set)

        def hang() -> None:
            go_on.wait(BOUND)

        client = self.trusting(self.serve(Reply(200, after=hang)))
        with self.assertRaises(millrace.DeadlineError):
            client.with_timeout(0.2).relay().delete("q", "a")


if __name__ == "__main__":
    unittest.main()
