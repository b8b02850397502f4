"""The stack of all tests, which is removed at their end."""

import pytest

# Asserts in helper modules show both sides, as asserts in tests do.
pytest.register_assert_rewrite("stack")

from stack import Stack  # noqa: E402


@pytest.fixture(scope="session")
def stack():
    one = Stack("node.yml")
    try:
        one.up()
        yield one
    finally:
        one.down()
