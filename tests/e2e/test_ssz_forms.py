"""One resource in two formats: a conversion is purged with its source, expires with it, and is
never sent when a newer response differs. A conversion of JSON is stored only with the root
that was requested."""

import itertools
import json
import random
import subprocess
import time

import pytest

from harness.chain import Chain
from harness.client import fetch
from harness.guards import GUARD_SECONDS
from harness.origin import answer
from harness.owner import owner_of, wait_until_linked
from harness.spec_vectors import values as specified_values
from test_ssz import EITHER, ELECTRA, JSON, OCTETS, SSZIP, VALUE

pytestmark = pytest.mark.carried("which of two entries holds is the core's to say")

# Long enough that no entry expires: one that is missing was removed.
SERVER = """
proxy_http_version 1.1;
sszip on;
sszip_ssz on;
sszip_ssz_preset mainnet;
sszip_cache on;
sszip_cache_valid unfinalized 1h;
sszip_cache_valid tip 1h;
sszip_cache_valid immutable 1h;
%s
server {
    listen 127.0.0.1:@port@;
    location / {
        sszip_cache_namespace $arg_run;
        add_header X-Key $sszip_cache_key;
        proxy_pass http://@origin@;
    }
    location /roots/ {
        sszip_ssz_preset minimal;
        sszip_cache_namespace $arg_run;
        proxy_pass http://@origin@/;
    }
    location /brief/ {
        sszip_cache_valid tip 10ms;
        sszip_cache_namespace $arg_run;
        proxy_pass http://@origin@/;
    }
    location /updated/ {
        sszip_cache_valid tip 1ms;
        sszip_cache_use_stale updating error;
        sszip_cache_background_update on;
        sszip_cache_namespace $arg_run;
        proxy_pass http://@origin@/;
    }
    %s
}
"""
STORE = "sszip_cache_path @prefix@/cache max_size=64m memory=32m;"
PURGE = "location = /purge { sszip_cache_purge on; }"

MOVING = "/eth/v1/beacon/states/head/pending_consolidations"
FORMS = [OCTETS, JSON]

_runs = itertools.count(1)


@pytest.fixture(scope="module", params=["memory", "store"])
def nginx(request, start_nginx):
    store, purge = (STORE, PURGE) if request.param == "store" else ("", "")
    nginx = start_nginx(SERVER % (store, purge))
    if store:
        wait_until_linked(nginx)
    return nginx


@pytest.fixture(scope="module")
def stored(start_nginx):
    nginx = start_nginx(SERVER % (STORE, PURGE))
    wait_until_linked(nginx)
    return nginx


class Node:
    """A node whose one value has a number, `state`; it responds in JSON, or in the requested
    format."""

    def __init__(self, origin, *, has_ssz=False, is_final=False):
        self.state, self.request_count = 1, 0
        self.has_ssz = has_ssz
        self.value = VALUE if is_final else VALUE.replace(b'"finalized":true', b'"finalized":false')
        origin.answers(self)

    def __call__(self, request):
        self.request_count += 1
        if self.has_ssz and request.header("Accept").startswith("application/octet-stream"):
            body, type_ = ssz(self.state), "application/octet-stream"
            # SSZ has no field for finality
            return answer(body, type=type_, headers=[*ELECTRA, ("Cache-Control", "max-age=3600")])
        return answer(self.value % json_of(self.state), headers=ELECTRA)


def json_of(state):
    return b'{"source_index":"%d","target_index":"515"}' % state


def ssz(state):
    return state.to_bytes(8, "little") + (515).to_bytes(8, "little")


def state_of(response):
    """The state that a response contains, in either format."""
    assert response.status == 200, response.body
    if response.header("Content-Type") == "application/octet-stream":
        return int.from_bytes(response.decoded[:8], "little")
    return int(json.loads(response.decoded)["data"][0]["source_index"])


def is_hit(response):
    return "; hit" in (response.header("Cache-Status") or "")


class Target:
    """A target of its own, without stored responses."""

    def __init__(self, nginx, path, prefix=""):
        self.nginx, self.run = nginx, f"run{next(_runs)}"
        self.target = f"{prefix}{path}?run={self.run}"

    def get(self, accept, *more):
        response = fetch(self.nginx.port, self.target, headers=[accept, *more])
        assert response.status == 200, response.body
        return response

    def states(self, *accepts):
        return [state_of(self.get(accept)) for accept in accepts]


@pytest.mark.parametrize("first, second", [(OCTETS, JSON), (JSON, OCTETS)], ids=["ssz first", "json first"])
@pytest.mark.parametrize("has_ssz", [False, True], ids=["a JSON-only node", "a node with both"])
def test_entry_is_invalidated_when_its_other_format_is_replaced(nginx, origin, first, second, has_ssz):
    node = Node(origin, has_ssz=has_ssz)
    place = Target(nginx, MOVING)
    assert place.states(first, first) == [1, 1]
    node.state = 2
    # the entry is older, and still fresh
    assert place.states(first) == [1]
    assert place.states(second, first) == [2, 2]
    assert all(is_hit(place.get(accept)) for accept in FORMS)


@pytest.mark.parametrize("has_ssz", [False, True], ids=["a JSON-only node", "a node with both"])
def test_equal_formats_are_stored_together(nginx, origin, has_ssz):
    node = Node(origin, has_ssz=has_ssz)
    place = Target(nginx, MOVING)
    for accept in (OCTETS, JSON, EITHER, JSON, OCTETS, JSON):
        assert place.states(accept) == [1]
    assert node.request_count == 2


def test_final_entry_is_kept_when_the_other_format_differs(nginx, origin):
    node = Node(origin, is_final=True)
    place = Target(nginx, "/eth/v1/beacon/states/9/pending_consolidations")
    assert place.states(OCTETS) == [1]
    # a wrong node must not remove a final entry
    node.state = 2
    assert place.states(JSON, OCTETS, JSON) == [2, 1, 2]
    assert node.request_count == 2


@pytest.mark.parametrize("prefix", ["/brief", "/updated"])
def test_state_never_goes_back_for_a_client(nginx, origin, prefix):
    """Fresh, stale and updated in the background, in random order."""
    node = Node(origin)
    place = Target(nginx, MOVING, prefix)
    chance = random.Random(3)
    seen, hits, turns = 0, 0, 0
    until = time.monotonic() + GUARD_SECONDS
    # a busy machine has fewer hits, because entries expire meanwhile
    while turns < 600 or hits <= 10:
        assert time.monotonic() < until, f"{hits} hits of {turns}"
        turns += 1
        if chance.random() < 0.2:
            node.state += 1
        if chance.random() < 0.1:
            time.sleep(0.004)
        response = place.get(chance.choice([OCTETS, EITHER, JSON]))
        state = state_of(response)
        hits += is_hit(response) or "fwd=stale" in response.header("Cache-Status")
        assert state >= seen
        seen = state
    assert node.state > 50 and hits < turns - 10


def test_replaced_entry_is_not_sent_when_the_owner_still_has_it(stored, origin):
    node = Node(origin)
    place = Target(stored, MOVING)
    assert place.states(OCTETS) == [1]
    key = place.get(OCTETS).header("X-Key")
    owner = owner_of(stored)
    stored.wait_for(lambda: owner.request("GET", f"/v1/entries/{key}")[0] == 200, "the owner to have it")
    node.state = 2
    assert place.states(JSON) == [2]
    # the worker has dropped the entry, the owner still has it
    assert owner.request("GET", f"/v1/entries/{key}")[0] == 200
    assert place.states(OCTETS, OCTETS, JSON) == [2, 2, 2]
    assert node.request_count == 3


@pytest.mark.parametrize("query", ["everything", "namespace=@run@", "blocks=0-99&namespace=@run@", "key=@ssz@", "key=@json@"])
@pytest.mark.parametrize("is_final", [False, True], ids=["in memory", "final"])
def test_purge_removes_both_formats(stored, origin, query, is_final):
    node = Node(origin, is_final=is_final)
    place = Target(stored, "/eth/v1/beacon/states/9/pending_consolidations")
    keys = {}
    for _ in range(3):
        for name, accept in (("ssz", OCTETS), ("json", JSON)):
            response = place.get(accept)
            keys[name] = response.header("X-Key")
    assert node.request_count == 2 and keys["ssz"] != keys["json"]
    owner = owner_of(stored)
    for key in keys.values():
        stored.wait_for(lambda key=key: owner.request("GET", f"/v1/entries/{key}")[0] == 200, "the owner to have it")
    node.state = 2
    assert place.states(OCTETS, JSON) == [1, 1]
    query = query.replace("@run@", place.run)
    for name, key in keys.items():
        query = query.replace(f"@{name}@", key)
    response = fetch(stored.port, f"/purge?{query}", method="POST")
    assert response.status == 200, response.body
    if "key" in query:
        assert json.loads(response.body)["entries"] == 2
    for key in keys.values():
        assert owner.request("GET", f"/v1/entries/{key}")[0] == 404
    assert place.states(OCTETS, JSON) == [2, 2]


def test_delete_invalidates_both_formats(nginx, origin):
    node = Node(origin)
    place = Target(nginx, MOVING)
    assert place.states(OCTETS, JSON) == [1, 1]
    node.state = 2
    origin.answers(answer(b""), MOVING)
    assert fetch(nginx.port, place.target, method="DELETE").status == 200
    origin.answers(node, MOVING)
    assert place.states(OCTETS, JSON) == [2, 2]


def test_both_formats_expire_with_the_head_and_at_a_reorganisation(start_nginx, origin):
    chain = Chain()
    try:
        head = f"{STORE} sszip_cache_head http://{chain.address} api=beacon interval=100ms;"
        nginx = start_nginx(SERVER.replace("$arg_run", "main") % (head, PURGE))
        wait_until_linked(nginx)
        owner = owner_of(nginx)

        def wait_until_followed(reorgs):
            head = chain.state["served_head"]["number"]

            def is_followed():
                (status,) = owner.status()["chains"]
                return (status["state"], status["head"], status["reorgs"]) == ("following", head, reorgs)

            nginx.wait_for(is_followed, "the chain to be followed")

        wait_until_followed(reorgs=0)
        node = Node(origin)
        young = chain.state["served_head"]["number"] - 1
        head_of, named = (Target(nginx, f"/eth/v1/beacon/states/{id}/pending_consolidations") for id in ("head", young))
        for place in (head_of, named):
            assert place.states(OCTETS, JSON, OCTETS, JSON) == [1] * 4
        assert node.request_count == 4
        changes = [({"extend": 1}, [head_of]), ({"reorg": {"depth": 4, "length": 4}}, [head_of, named])]
        for reorgs, (command, ended) in enumerate(changes):
            before = node.state
            node.state += 1
            chain.do(command)
            # after the reorganisation the head has the same number
            wait_until_followed(reorgs)
            # the worker confirms a purge, here of an unused key, after earlier events
            owner.purge(key="0" * 64)
            for place in (head_of, named):
                expected = node.state if place in ended else before
                assert place.states(OCTETS, JSON) == [expected] * 2, (command, place.target)
    finally:
        chain.stop()


# The route of each type, and the part of the value that has the root.
ROOTED = {
    "SignedBeaconBlock": ("/eth/v2/beacon/blocks/", "message"),
    "SignedBlindedBeaconBlock": ("/eth/v1/beacon/blinded_blocks/", "message"),
    "BeaconState": ("/eth/v2/debug/beacon/states/", ""),
    "LightClientBootstrap": ("/eth/v1/beacon/light_client/bootstrap/", "header.beacon"),
}


@pytest.fixture(scope="module")
def rooted(cache_directory):
    return specified_values(cache_directory, "specified_values.py", "minimal", *ROOTED)


@pytest.mark.parametrize("is_in_head", [True, False], ids=["head", "envelope"])
def test_response_with_another_root_than_requested_is_not_stored(stored, origin, rooted, is_in_head):
    checked = 0
    for value in rooted:
        path, part = ROOTED[value["type"]]
        if value["type"] == "SignedBlindedBeaconBlock" and (not is_in_head or value["fork"] in ("gloas", "heze")):
            continue
        octets = bytes.fromhex(value["ssz"])
        command = [SSZIP, "root", "--type", value["type"], "--fork", value["fork"], "--preset", "minimal", "--select", part]
        root = subprocess.run(command, input=octets, capture_output=True, check=True).stdout.decode().strip()
        body = {"version": value["fork"], "execution_optimistic": False, "finalized": True, "data": value["data"]}
        fields = [("Eth-Consensus-Version", value["fork"])] if is_in_head else []
        origin.answers(answer(json.dumps(body).encode(), headers=[*fields, ("Cache-Control", "max-age=3600")]))
        wrong = "0x" + "ab" * 32
        for id, is_right in ((root, True), (root.upper().replace("X", "x"), True), (wrong, False), ("7", True)):
            place = Target(stored, path + id, "/roots")
            for turn in range(2):
                response = place.get(OCTETS)
                about = value["fork"], value["type"], id, response.headers
                assert response.body == octets, about
                assert is_hit(response) == (is_right and turn == 1), about
                assert ("detail=ssz-root" in response.header("Cache-Status")) == (not is_right), about
        checked += 1
    assert checked > 15


def test_ssz_of_the_node_is_stored_when_it_has_the_requested_root(stored, origin, rooted):
    """The node's bytes are sent unchanged."""
    value = next(value for value in rooted if (value["type"], value["fork"]) == ("SignedBeaconBlock", "electra"))
    octets = bytes.fromhex(value["ssz"])
    command = [SSZIP, "root", "--type", value["type"], "--fork", "electra", "--preset", "minimal", "--select", "message"]
    root = subprocess.run(command, input=octets, capture_output=True, check=True).stdout.decode().strip()
    path = ROOTED["SignedBeaconBlock"][0]
    wrong = "0x" + "ab" * 32
    for id, body, is_right in (
        (root, octets, True),
        ("7", octets, True),
        (wrong, octets, False),
        ("7", octets[:-1], False),
        (root, octets + b"x", False),
        ("7", b"", False),
    ):
        origin.answers(answer(body, type="application/octet-stream", headers=[*ELECTRA, ("Cache-Control", "max-age=3600")]))
        place = Target(stored, path + id, "/roots")
        for turn in range(3):
            response = place.get(OCTETS)
            assert response.body == body
            assert is_hit(response) == (is_right and turn > 0), (id, len(body), response.headers)


def root_of(value):
    part = ROOTED[value["type"]][1]
    command = [SSZIP, "root", "--type", value["type"], "--fork", value["fork"], "--preset", "minimal", "--select", part]
    done = subprocess.run(command, input=bytes.fromhex(value["ssz"]), capture_output=True, check=True)
    return done.stdout.decode().strip()


@pytest.mark.parametrize(
    "names_fork, accept",
    [(True, OCTETS), (False, OCTETS), (True, JSON)],
    ids=["SSZ", "SSZ of no fork", "JSON"],
)
def test_ssz_of_the_node_is_compared_with_the_root_in_either_format(stored, origin, rooted, names_fork, accept):
    """The fork that no header names is the one whose root is requested; such a value is not
    available as JSON."""
    checked = 0
    for value in rooted:
        if value["type"] == "SignedBlindedBeaconBlock" and value["fork"] in ("gloas", "heze"):
            continue
        fields = [("Cache-Control", "max-age=3600")]
        if names_fork:
            fields.append(("Eth-Consensus-Version", value["fork"]))
        octets = bytes.fromhex(value["ssz"])
        origin.answers(answer(octets, type="application/octet-stream", headers=fields))
        bodies = set()
        for id, is_right in ((root_of(value), True), ("0x" + "cd" * 32, False), ("9", True)):
            place = Target(stored, f"{ROOTED[value['type']][0]}{id}", "/roots")
            for turn in range(3):
                response = place.get(accept)
                about = value["fork"], value["type"], id, response.headers
                assert response.status == 200, about
                assert is_hit(response) == (is_right and turn > 0), about
                if accept == JSON:
                    # a conversion is compared before it is sent
                    assert ("detail=ssz-root" in response.header("Cache-Status")) == (not is_right), about
                bodies.add(response.body)
        # it is sent in either case
        (body,) = bodies
        if accept == OCTETS:
            assert body == octets
        else:
            assert json.loads(body)["version"] == value["fork"]
        checked += 1
    assert checked > 15
