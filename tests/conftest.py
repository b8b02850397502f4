"""Hooks for every suite that shares tests/pytest.ini."""

import gc
import pathlib

import pytest

# Asserts in helper modules show both sides, as asserts in tests do.
_FILES = [path for name in ("owner", "fleet") for path in pathlib.Path(__file__).parent.glob(f"{name}/*.py")]
pytest.register_assert_rewrite(
    "harness", *(path.stem for path in _FILES if not path.stem.startswith(("conftest", "test_")))
)

from durations import LongestFirst, Recorder  # noqa: E402
from saved_logs import pytest_runtest_makereport, pytest_runtest_setup  # noqa: E402, F401
from tiers import IS_SHIPPED, IS_THOROUGH  # noqa: E402

_recorder = Recorder()


def pytest_xdist_make_scheduler(config, log):
    return LongestFirst(config, log)


def pytest_collection_modifyitems(config, items):
    left_out = [] if IS_THOROUGH else ["thorough"]
    if not IS_SHIPPED:
        left_out.append("shipped")

    def is_left_out(item):
        names = left_out
        if not IS_THOROUGH and hasattr(item, "callspec") and item.callspec.params.get("host") == "wasm":
            names = [*left_out, "wasm_thorough"]
        return any(item.get_closest_marker(name) for name in names)

    config.hook.pytest_deselected(items=[item for item in items if is_left_out(item)])
    items[:] = [item for item in items if not is_left_out(item)]


def pytest_collection_finish():
    """Thousands of tests live to the end: the collector need not walk over them again."""
    gc.collect()
    gc.freeze()


def pytest_runtest_logreport(report):
    _recorder.add(report)


def pytest_sessionfinish(session):
    if not hasattr(session.config, "workerinput"):  # the controller of xdist's workers
        _recorder.write()
