"""A Debian of each test, in which nothing of sszip is installed."""

import pytest

# Asserts in helper modules show both sides, as asserts in tests do.
pytest.register_assert_rewrite("chroot", "harness", "nginx_site")

from chroot import DebianSystem  # noqa: E402
from harness.replay import ReplayNode  # noqa: E402
from saved_logs import pytest_runtest_makereport, pytest_runtest_setup  # noqa: E402, F401


@pytest.fixture
def system():
    with DebianSystem() as one:
        yield one


@pytest.fixture(scope="session")
def node():
    """The node of all tests, on this machine's loopback, which the Debians share."""
    one = ReplayNode()
    yield one
    one.stop()
