"""Every block of the README is executed, as a reader would."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import unittest
from typing import Dict, List, Tuple

from .base import BOUND
from .server import BINARY, free_port, is_ready, until

FOLDER = pathlib.Path(__file__).parents[1]

# What each program prints: regular expressions, one a line.
OUTPUT = {
    "relay.py": r"may 0\nmay 1\njune 0\njune 1\nmay 2\nmay is done: True\n"
    r"dead: june {'page': 2}\ncompleted: \[True, True, True, True, True\]\n",
    "graph.py": r"extract COMPLETED {'rows': 42}\nload COMPLETED None\n2\n",
    "forge.py": r"job_succeeded SUCCEEDED\nSUCCEEDED True\n.+\n",
    "fetch.py": r"(.+\n)+completed\n",
    "picture.py": r"ready 1 True\n",
    "operate.py": r"1 .+\n\w+\n(\w+ \d+ \d+\n)+",
    "errors.py": r"409 .+ True\nmillrace: relay get: 404 .+\n",
}


def blocks() -> List[Tuple[str, str]]:
    """Return the language and the text of each block."""
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


class ReadmeTest(unittest.TestCase):
    def setUp(self) -> None:
        self.dir = tempfile.mkdtemp(prefix="millrace-readme-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.port = free_port()
        tools = os.path.join(self.dir, "bin")
        os.mkdir(tools)
        os.symlink(os.path.abspath(BINARY), os.path.join(tools, "millrace"))
        os.symlink(FOLDER.parent, os.path.join(self.dir, "clients"))
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("MILLRACE", "PYTHON"))},
            "PATH": tools + os.pathsep + os.environ["PATH"],
            "MILLRACE__LISTEN": f"127.0.0.1:{self.port}",
        }
        self.programs: Dict[str, str] = {}
        self.shell: List[str] = []
        for language, text in blocks():
            if language == "python":
                self.write(text)
            else:
                self.shell.append(text)

    def write(self, text: str) -> None:
        """Write a program to its file."""
        name = text.split("\n")[0][2:]
        self.programs[name] = text
        address = "http://127.0.0.1:8080"
        self.assertIn(address, text)
        moved = text.replace(address, f"http://127.0.0.1:{self.port}")
        (pathlib.Path(self.dir) / name).write_text(moved, encoding="utf-8")

    def start(self, commands: str) -> subprocess.Popen[str]:
        """Run commands as in a terminal: Ctrl-C reaches all of them."""
        process = subprocess.Popen(
            ["bash", "-ec", commands],
            cwd=self.dir,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.addCleanup(process.wait)
        self.addCleanup(self.send, process, signal.SIGKILL)
        assert process.stdout is not None
        self.addCleanup(process.stdout.close)
        return process

    def send(self, process: subprocess.Popen[str], number: int) -> None:
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass

    def run_block(self, commands: str) -> str:
        """Run commands to their end and return what they print."""
        process = self.start(commands)
        output, _ = process.communicate(timeout=2 * BOUND)
        self.assertEqual(process.returncode, 0, output)
        return output

    def test_every_block(self) -> None:
        serve, install, first, token, tests = self.shell
        self.start(serve)
        until("the server is ready", lambda: is_ready(self.port))
        self.run_block(install)
        activate = ". .venv/bin/activate\n"

        worker = self.start(activate + first)
        assert worker.stdout is not None
        seen: List[str] = []
        while len(seen) < 5:
            line = worker.stdout.readline()
            self.assertTrue(line, seen)
            seen.append(line)
        self.assertEqual(seen[0], "enqueued\n")
        self.assertIn("waiting for jobs of mail (relay) at http", seen[1])
        names = ("ada", "grace", "linus")
        self.assertEqual(sorted(seen[2:]), [f"sending to {name}\n" for name in names])
        self.send(worker, signal.SIGINT)
        worker.wait(BOUND)
        del self.programs["enqueue.py"], self.programs["worker.py"]

        self.assertEqual(list(self.programs), list(OUTPUT))
        for name in self.programs:
            output = self.run_block(f"{activate}{token}python {name} 2>errors || cat errors")
            with self.subTest(name):
                self.assertRegex(output, rf"\A{OUTPUT[name]}\Z")
        # These are the commands that run this test.
        self.assertEqual(
            tests,
            "cd clients/python\nMILLRACE_BIN=$(command -v millrace) python3 -m tests\n",
        )
        self.assertEqual(FOLDER.parts[-2:], ("clients", "python"))
        self.assertTrue((FOLDER / "tests" / "__main__.py").is_file())


if __name__ == "__main__":
    unittest.main()
