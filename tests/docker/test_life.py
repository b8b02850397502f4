"""Containers end, return and are replaced, under a steady stream of checked requests: no response
is ever wrong, and none fails except while its own proxy, or the node that it needs, is down."""

import time

import pytest

from known_calls import Stream, send_call, call
from stack import PROXIES, TAG, docker, wait_for

# proxies that are down while a service is
AWAY = {"cached": (), "nginx": ("nginx",), "envoy": ("envoy", "wasm"), "node": PROXIES}


@pytest.fixture(scope="module")
def stream(stack):
    with Stream(stack, PROXIES) as one:
        wait_for("the stream goes on", one.has_responses)
        yield one


def settle(stream, since):
    """Waits until every request is answered again."""
    wait_for("the stream goes on", lambda: stream.has_responses(since=since))


def judge(stream, began, may_fail):
    wrong = [one for one in stream.outcomes if one.verdict == "wrong"]
    assert not wrong, wrong[:3]
    for proxy in PROXIES:
        failed = stream.outcomes_of(proxy, "failed", began)
        if proxy not in may_fail:
            assert not failed, failed[:3]


def test_wrong_response_is_detected_by_the_stream(stack):
    request = call("eth_chainId", [], 7)
    good = {"jsonrpc": "2.0", "id": 7, "result": "0x1"}
    url = stack.url("nginx")
    assert Stream.judge(url, request, good, "gzip") == ("right",)
    for other in ({"result": "0x2"}, {"id": 8}, {"id": "7"}):
        assert Stream.judge(url, request, good | other, "gzip")[0] == "wrong"


@pytest.mark.parametrize("service", AWAY)
def test_responses_are_right_when_a_service_is_killed(stack, stream, service):
    began = time.monotonic()
    stack.kill(service)
    settle(stream, time.monotonic())
    judge(stream, began, AWAY[service])
    # and the failures have ended
    again = time.monotonic()
    settle(stream, again)
    judge(stream, again, ())


@pytest.mark.parametrize("service", AWAY)
def test_responses_are_right_when_a_service_is_stopped_and_started(stack, stream, service):
    began = time.monotonic()
    stack.compose("stop", "--timeout", "10", service)
    # all others continue without it; without the node only stored responses are available
    for proxy in PROXIES:
        if proxy not in AWAY[service]:
            since = time.monotonic()
            wait_for(f"{proxy} without {service}", lambda p=proxy, s=since: len(stream.outcomes_of(p, "right", s)) > 20)
    # a proxy that is down fails requests; without the node, calls that are not stored fail
    for proxy in AWAY[service]:
        wait_for(f"{proxy} tells", lambda p=proxy: stream.outcomes_of(p, "failed", began))
    stack.up(service)
    settle(stream, time.monotonic())
    judge(stream, began, AWAY[service])
    again = time.monotonic()
    settle(stream, again)
    judge(stream, again, ())


@pytest.mark.parametrize("service", ["cached", "nginx"])
def test_responses_are_right_when_a_service_is_upgraded(stack, stream, service, request):
    """One service gets another image; the others stay."""
    image, newer = f"sszip-{service}:{TAG}", f"sszip-{service}:{TAG}-next"
    docker("build", "--tag", newer, "-", text=f"FROM {image}\nLABEL next=yes\n")

    def restore():
        stack.up("--no-deps", service)
        docker("image", "rm", newer)
        settle(stream, time.monotonic())

    request.addfinalizer(restore)
    others = {name: stack.id(name) for name in AWAY if name != service}
    began = time.monotonic()
    stack.up("--no-deps", service, TAG=f"{TAG}-next")
    assert stack.inspect(service)["Config"]["Labels"]["next"] == "yes"
    assert {name: stack.id(name) for name in others} == others
    settle(stream, time.monotonic())
    judge(stream, began, AWAY[service])


@pytest.fixture
def squatter(stack, run_container):
    """The address of a container that has the node's address, and does not listen there."""
    was = stack.address("node")
    stack.compose("stop", "--timeout", "10", "node")
    for _ in range(10):
        one = run_container("--network", f"{stack.project}_default", f"sszip-replay-node:{TAG}", "--listen", "127.0.0.1:1545")
        if stack.address_of(one) == was:
            return was
    raise AssertionError("no container gets the node's address")


def test_proxies_find_a_node_at_another_address(stack, stream, squatter):
    """nginx and Envoy resolve the node's name again."""
    began = time.monotonic()
    stack.up("--no-deps", "--force-recreate", "node")
    assert stack.address("node") != squatter
    request = call("eth_getBlockByNumber", ["0x14ffff9", False])
    own = send_call(stack.url("node"), request).json()
    for proxy in PROXIES:
        # the call must not be stored
        stack.purge()

        def answered(proxy=proxy):
            answer = send_call(stack.url(proxy), request)
            return answer.status == 200 and answer.json() == own

        wait_for(f"{proxy} asks the node", answered)
    settle(stream, time.monotonic())
    again = time.monotonic()
    settle(stream, again)
    judge(stream, began, PROXIES)
    judge(stream, again, ())


def test_stream_sent_enough_requests_to_each_proxy(stream):
    """The stream checked more than 200 responses of each proxy."""
    for proxy in PROXIES:
        assert len(stream.outcomes_of(proxy, "right")) > 200
