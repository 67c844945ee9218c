"""Runs all tests, and reports the methods that none of them has called.

``MILLRACE_BIN=…/millrace python3 -m tests`` in the folder of the package.
"""

from __future__ import annotations

import pathlib
import sys
import time
import unittest
from typing import List, Tuple

from . import base


class Timed(unittest.TextTestResult):
    """Notes how long each test takes."""

    times: List[Tuple[float, str]] = []

    def startTest(self, test: unittest.TestCase) -> None:
        self._began = time.monotonic()
        super().startTest(test)

    def stopTest(self, test: unittest.TestCase) -> None:
        self.times.append((time.monotonic() - self._began, test.id()))
        super().stopTest(test)


def main() -> int:
    """Run the tests and return the exit code."""
    here = pathlib.Path(__file__).parent
    suite = unittest.defaultTestLoader.discover(str(here), top_level_dir=str(here.parent))
    result = unittest.TextTestRunner(resultclass=Timed).run(suite)
    for seconds, name in sorted(Timed.times)[-8:]:
        print(f"{seconds:6.1f} s  {name}")
    missing = [
        f"{cls.__name__}.{name}"
        for cls in base.CONTRACTS
        for name, _ in base.public_methods(cls)
        if f"{cls.__name__}.{name}" not in base.called
    ]
    if missing:
        print("no test calls", ", ".join(missing), file=sys.stderr)
    failed = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - failed} passed, {failed} failed")
    return 0 if result.wasSuccessful() and not missing else 1


if __name__ == "__main__":
    sys.exit(main())
