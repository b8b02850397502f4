"""Hooks for every suite that shares tests/pytest.ini."""

import pytest

# Asserts in helper modules show both sides, as asserts in tests do.
pytest.register_assert_rewrite("harness", "daemon")

import kept_logs  # noqa: E402


def pytest_runtest_logstart(nodeid):
    kept_logs.begin(nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        kept_logs.record_failure(item.nodeid)
        if folder := kept_logs.folder():
            report.sections.append(("Kept logs", str(folder)))
    return report
