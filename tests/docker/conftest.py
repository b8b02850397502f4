"""The stack of all tests, and containers of single tests.

A stack is removed by another fixture than the one that starts it, so that the logs of a stack that
does not start are saved before."""

import contextlib

import pytest

# Asserts in helper modules show both sides, as asserts in tests do.
pytest.register_assert_rewrite("stack")

import saved_logs  # noqa: E402
from saved_logs import pytest_runtest_makereport, pytest_runtest_setup  # noqa: E402, F401
from stack import LABEL, Stack, docker, save_containers  # noqa: E402

saved_logs.at_failure.append(save_containers)


@pytest.fixture(scope="session")
def first_stack():
    with Stack("node.yml") as one:
        yield one


@pytest.fixture(scope="session")
def stack(first_stack):
    first_stack.up()
    return first_stack


@pytest.fixture
def new_stack():
    """Creates a stack that is removed after the test."""
    with contextlib.ExitStack() as stacks:
        yield lambda *overrides, **environment: stacks.enter_context(Stack(*overrides, **environment))


@pytest.fixture
def run_container():
    """Starts a container that is removed after the test, and returns its id."""
    found = []

    def run(*arguments):
        found.append(docker("run", "--detach", "--label", LABEL, *arguments).stdout.strip())
        return found[-1]

    yield run
    for one in found:
        docker("rm", "--force", one)
