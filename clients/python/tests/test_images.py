"""Images against a real server."""

from __future__ import annotations

import io
import struct
import unittest
import zlib
from typing import Any, Callable, List

import millrace
from millrace import ImageJobFilter, ImageJobType

from .base import BOUND, ServerTest, until


def png(width: int, height: int) -> bytes:
    """Make a picture of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    rows = (b"\x00" + b"\x30\x60\x90" * width) * height
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


class ImagesTest(ServerTest):
    def setUp(self) -> None:
        self.images = self.client.images()

    def broken(self) -> millrace.ImageReceipt:
        """Upload what is no picture, and wait until that is known."""
        receipt = self.images.upload(b"no picture", type="image/png")
        job = self.images.wait_job(receipt.job_id, timeout=BOUND)
        self.assertEqual(job.status, "failed")
        self.assertTrue(job.last_error and job.last_error_type)
        return receipt

    def test_life_of_a_file(self) -> None:
        picture = png(300, 200)
        receipt = self.images.upload(
            io.BytesIO(picture), name="A.PNG", sizes=[100, 50], user_id="me"
        )
        file = self.images.wait(receipt.file_id, timeout=BOUND)
        self.assertEqual((file.status, file.type), ("ready", "image/png"))
        self.assertEqual((file.width, file.height, file.bytes), (300, 200, len(picture)))
        self.assertEqual([(v.size, v.width) for v in file.variants], [(50, 50), (100, 100)])
        with self.images.content(file.id) as content:
            self.assertEqual(content.read(), picture)
        with self.images.variant(file.id, 50) as variant:
            self.assertTrue(variant.readable())
            self.assertEqual(len(variant.read()), file.variants[0].bytes)
        with self.assertRaises(millrace.NotFoundError) as caught:
            self.images.variant(file.id, 51)
        self.assertEqual(caught.exception.code, "VARIANT_NOT_FOUND")

        callback_url = "http://127.0.0.1:1/told?a=1&b=2"
        more = self.images.submit_job(
            ImageJobType.PROCESS_FILE, file.id, [70], callback_url=callback_url
        )
        self.assertEqual(self.images.job(more.id).callback_url, callback_url)
        self.assertEqual(self.images.wait_job(more.id, timeout=BOUND).status, "completed")
        self.assertEqual(len(self.images.file(file.id).variants), 3)
        self.assertEqual(self.images.republish_message(more.id), "completed")
        listed = self.images.jobs(ImageJobFilter("completed", ImageJobType.PROCESS_FILE, 1))
        found = [job for job in listed if job.file_id == file.id]
        self.assertEqual({job.id for job in found}, {more.id, receipt.job_id})
        self.assertEqual({job.user_id for job in found}, {"me"})

        job_id = self.images.delete(file.id)
        self.assertEqual(self.images.wait_job(job_id, timeout=BOUND).status, "completed")
        with self.assertRaises(millrace.NotFoundError) as caught:
            self.images.content(file.id)
        self.assertEqual((caught.exception.status, caught.exception.code), (410, "FILE_DELETED"))

    def test_the_same_key_returns_the_same_file(self) -> None:
        first = self.images.upload(png(10, 10), type="image/png", sizes=[5])
        again = self.images.upload(
            png(20, 20), type="image/png", idempotency_key=first.idempotency_key
        )
        self.assertEqual(again.file_id, first.file_id)

    def test_dead_letters(self) -> None:
        receipt = self.broken()
        self.assertEqual(self.images.wait(receipt.file_id).status, "failed")

        def dead_letters() -> List[millrace.ImageDeadLetter]:
            found = self.images.dead_letters(page_size=1)
            return [one for one in found if one.job_id == receipt.job_id]

        (dead_letter,) = until("the dead letter", dead_letters)
        self.assertEqual((dead_letter.file_id, dead_letter.replayed_at), (receipt.file_id, None))
        again = self.images.replay(receipt.job_id)
        self.assertNotEqual(again.id, receipt.job_id)
        self.images.wait_job(again.id, timeout=BOUND)
        with self.assertRaises(millrace.NotFoundError):
            self.images.replay("7f2fb3f8-5bb7-4ac8-9d3b-d3b1c0a3b1f0")

    def test_cancel(self) -> None:
        receipt = self.broken()
        with self.assertRaises(millrace.ConflictError):
            self.images.cancel_job(receipt.job_id)

    def test_bad_input_changes_nothing(self) -> None:
        picture = png(10, 10)
        calls: List[Callable[[], Any]] = [
            lambda: self.images.upload(picture, name="a.txt"),
            lambda: self.images.upload(picture, type="text/plain"),
            lambda: self.images.upload(picture, type="image/png", sizes=[0]),
            lambda: self.images.upload(picture, type="image/png", sizes=range(1, 22)),
            lambda: self.images.upload(picture, type="two\nlines"),
            lambda: self.images.upload(b"", type="image/png"),
            lambda: self.images.upload("text", type="image/png"),  # type: ignore[arg-type]
            lambda: self.images.upload(b"x" * (33 << 20), type="image/png"),
            lambda: self.images.file(""),
            lambda: self.images.job(""),
            lambda: self.images.submit_job("none", "x"),
            lambda: self.images.republish_message(""),
        ]
        before = [job.id for job in self.images.jobs()]
        for i, call in enumerate(calls):
            with self.subTest(i), self.assertRaises(millrace.InvalidError):
                call()
        self.assertEqual([job.id for job in self.images.jobs()], before)


if __name__ == "__main__":
    unittest.main()
