"""The stack of all tests, which is removed at their end."""

import pytest

from stack import Stack


@pytest.fixture(scope="session")
def stack():
    one = Stack("node.yml")
    try:
        one.up()
        yield one
    finally:
        one.down()
