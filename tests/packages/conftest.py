"""A Debian of each test, in which nothing of sszip is installed."""

import pytest

from chroot import DebianSystem
from harness.replay import ReplayNode


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
