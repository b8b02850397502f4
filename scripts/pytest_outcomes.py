"""A pytest plugin: writes the outcome of each test to the file that SSZIP_OUTCOMES names."""

import collections
import json
import os
import pathlib
import re

# Of an error's message: a process crashed, or a sanitizer or Rust reported a fault. SIGKILL and SIGTERM are no crashes.
CRASH = re.compile(r"(ended with|assert) -(4|6|7|8|11)\b|signal (4|6|7|8|11)\b|Sanitizer|runtime error:|panicked|core dumped")

_failures = []  # test ids, in the order in which they failed
_crashes = []  # the failed tests whose error is a crash
_skips = collections.Counter()  # by reason
_passed = set()


def pytest_runtest_logreport(report):
    if report.failed and report.nodeid not in _failures:
        _failures.append(report.nodeid)
        message = getattr(getattr(report.longrepr, "reprcrash", None), "message", "")
        if CRASH.search(message):
            _crashes.append(report.nodeid)
    elif report.skipped and not hasattr(report, "wasxfail"):
        _skips[report.longrepr[2].removeprefix("Skipped: ")] += 1
    elif report.when == "call" and report.passed:
        _passed.add(report.nodeid)


def pytest_sessionfinish(session):
    if hasattr(session.config, "workerinput"):  # a worker of xdist; the controller writes
        return
    outcomes = {
        "passed": len(_passed.difference(_failures)),
        "failed": len(_failures),
        "skipped": sum(_skips.values()),
        "failures": _failures,
        "crashes": _crashes,
        "reasons": [f"{count} x {reason}" for reason, count in _skips.items()],
    }
    pathlib.Path(os.environ["SSZIP_OUTCOMES"]).write_text(json.dumps(outcomes))
