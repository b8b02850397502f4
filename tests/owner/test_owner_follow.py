"""The owner follows nodes whose chains grow, reorganise and fail."""

import http.server
import json
import threading

import pytest

from daemon import NAMESPACE
from frames import PREFACE, Connection, Session, applied, frame, hello, lookup, show_block
from node import Node
from tiers import times


NAME = "mainnet"
BLOCKS = times(100, 200)
HOWS = {
    "http": {},
    "unix": {},
    "ws": {},
    "beacon": {"api": "beacon"},
    "depth": {"finality": "depth:40"},
}


@pytest.fixture
def start_node(tmp_path):
    nodes = []

    def start(*options):
        nodes.append(Node(tmp_path, *options))
        return nodes[-1]

    yield start
    for node in nodes:
        node.stop()


def head(node, how="http", **more):
    scheme = how if how in ("http", "unix", "ws") else "http"
    return {"namespace": NAME, "url": node.url(scheme), "interval": "100ms"} | HOWS[how] | more


def chains(daemon):
    return {chain["name"]: chain for chain in daemon.status()["chains"]}


def wait_for(daemon, name=NAME, **wanted):
    """Waits until the status of the chain has these values."""

    def chain():
        found = chains(daemon)[name]
        return all(found[field] == value for field, value in wanted.items()) and found

    return daemon.wait_for(chain, f"{wanted}")


def height(block, how):
    return block["slot"] if how == "beacon" else block["number"]


@pytest.fixture
def followed(start_node, start_daemon):
    """A node and a daemon that follows it."""
    node = start_node()
    daemon = start_daemon(heads=[head(node)])
    wait_for(daemon, state="following", head=200, final=node.chain()["finalized"]["number"])
    return node, daemon


def test_nodes_of_all_kinds_are_followed(start_node, start_daemon):
    options = ["--chain-slot-ms", "25", "--chain-reorgs", "0.15", "--chain-missed", "0.1"]
    node = start_node("--seed", "3", *options)
    heads = [head(node, how) | {"namespace": how} for how in HOWS]
    before = node.chain()["head"]
    daemon = start_daemon(heads=heads)
    generation = daemon.generation

    def have_seen_many_blocks():
        followed = chains(daemon)
        return all(
            followed[how]["reorgs"] > 3 and (followed[how]["head"] or 0) > height(before, how) + BLOCKS for how in HOWS
        )

    daemon.wait_for(have_seen_many_blocks, "each chain to grow")
    node.change({"stall": True})
    state = node.change({"extend": 1})
    for how in HOWS:
        last = state["finalized"]
        if how == "depth":
            wait_for(daemon, how, state="following", head=state["head"]["number"])
            assert chains(daemon)[how]["final"] >= state["head"]["number"] - 45
            continue
        chain = wait_for(
            daemon, how, state="following", head=height(state["head"], how), final=height(last, how)
        )
        assert chain["error"] is None
    # no final block was replaced
    assert daemon.generation == generation
    assert "was replaced" not in daemon.log_text()
    # one line per change of state, not per poll
    assert daemon.log_text().count("follows the chain") < 3 * len(HOWS)


def test_replaced_final_blocks_are_purged(followed, join):
    node, daemon = followed
    node.change({"extend": 1})
    wait_for(daemon, head=201)
    node.change({"extend": 9})
    wait_for(daemon, head=210)
    node.change({"finalize": 206})
    wait_for(daemon, final=206)
    a = join(daemon, "a")
    for block in (203, 204, 206):
        a.store(block, namespace=namespace(daemon), method="eth_getBlockByNumber", block=block)
        assert a.lookup(block).name == "found"
    generation = daemon.generation
    node.change({"reorg": {"depth": 7, "length": 9}})
    wait_for(daemon, state="following", head=212, final=206)
    assert daemon.generation == generation + 1
    assert "finalized block 206 was replaced" in daemon.log_text()
    assert [daemon.get(block).status for block in (203, 204, 206)] == [200, 404, 404]


def namespace(daemon):
    return chains(daemon)[NAME]["namespace"]


def test_finality_is_unknown_while_the_node_syncs_or_fails(followed):
    node, daemon = followed
    generation = daemon.generation
    for trouble, state, passes in [
        ({"syncing": True}, "syncing", {"syncing": False}),
        ({"finality": False}, "following", {"finality": True}),
        ({"unfinalize": 10}, "following", {"finalize": 192}),
        ({"down": True}, "unreachable", {"down": False}),
        ({"down": "close"}, "unreachable", {"down": False}),
    ]:
        node.change(trouble)
        wait_for(daemon, state=state, final=None)
        after = node.change(passes)
        wait_for(daemon, state="following", head=200, final=after["finalized"]["number"])
    assert daemon.generation == generation


def test_lagging_node_loses_finality_until_its_head_lasts(followed):
    node, daemon = followed
    last = node.chain()["finalized"]["number"]
    node.change({"lag": 3})
    # the lower head lasts
    wait_for(daemon, state="following", head=197, final=last)
    # a state of two seconds, in which the status might not be read
    assert "the node is behind 200; finality unknown" in daemon.log_text()
    node.change({"lag": 0})
    wait_for(daemon, state="following", head=200, final=last)
    node.change({"rollback": 5}, {"extend": 2})
    wait_for(daemon, state="following", head=197, final=last)
    assert chains(daemon)[NAME]["reorgs"] == 1


def test_wrong_chain_is_rejected_until_the_namespace_is_purged(followed):
    node, daemon = followed
    node.change({"replace": {"seed": 9, "chain_id": 5}})
    wait_for(daemon, state="wrong-chain", final=None)
    assert daemon.log_text().count("another chain (chain 5, ") == 1
    assert daemon.purge(namespace=namespace(daemon)).status == 200
    state = node.chain()
    wait_for(daemon, state="following", head=state["head"]["number"])
    # the namespace has this chain from now on
    node.change({"replace": {"seed": 9, "chain_id": 6}})
    wait_for(daemon, state="wrong-chain")


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_recorded_mark_and_identity_are_checked_after_a_restart(followed, join, end):
    node, daemon = followed
    last = node.chain()["finalized"]["number"]
    # a mark is flushed together with later writes
    a = join(daemon, "a")
    for _ in range(2):
        a.store(1, namespace=namespace(daemon), block=last)
    # the store works in the background
    daemon.wait_for(lambda: daemon.status()["stores"]["done"] >= 1, "the entry to be stored")
    assert daemon.purge(namespace=NAMESPACE).status == 200
    before = daemon.generation
    getattr(daemon, end)()
    node.change({"rollback": 200 - last + 3}, {"extend": 160}, {"finalize": 220})
    daemon.start()
    wait_for(daemon, state="following", final=220)
    assert f"finalized block {last} was replaced" in daemon.log_text()
    assert daemon.generation == before + 1
    assert daemon.get(1).status == 404
    # another chain is detected, too
    getattr(daemon, end)()
    node.change({"replace": {"seed": 7, "chain_id": 1}})
    daemon.start()
    wait_for(daemon, state="wrong-chain", final=None)


def test_unreachable_node_is_logged_once(start_daemon):
    head = {"namespace": NAME, "url": "http://127.0.0.1:1/secret"}
    daemon = start_daemon(heads=[head | {"interval": "100ms"}])
    chain = wait_for(daemon, state="unreachable", head=None, final=None)
    assert "refused" in chain["error"]
    assert daemon.log_text().count("cannot follow the node: ") == 1
    assert "secret" not in daemon.log_text()


HOSTILE = "x\x1b[31m\n2026/11/25 00:00:00 [alert] 1#1: a line of the node's own\x85\u2028\u202e"


class Hostile(http.server.BaseHTTPRequestHandler):
    """A node whose error messages imitate lines of the log."""

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        calls = request if isinstance(request, list) else [request]
        error = {"code": -1, "message": HOSTILE}
        responses = [{"jsonrpc": "2.0", "id": call["id"], "error": error} for call in calls]
        body = json.dumps(responses if isinstance(request, list) else responses[0]).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def test_error_of_a_node_stays_one_line_of_the_log(start_daemon):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hostile)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/"
        daemon = start_daemon(heads=[{"namespace": NAME, "url": url, "interval": "100ms"}])
        daemon.wait_for(lambda: "a line of the node's own" in daemon.log_text(), "the error of the node")
    finally:
        server.shutdown()
        server.server_close()
    text = daemon.log_text()
    assert not [line for line in text.split("\n") if line.startswith("2026/11/25")]
    assert not [letter for letter in text if letter != "\n" and not letter.isprintable()]


def test_sessions_receive_chain_states_before_all_replies(followed):
    node, daemon = followed
    a, b = Session(daemon, "a"), Session(daemon, "b")
    first = [one.name for one in a.received]
    assert first[0] == "chain" and a.lease.after == 1
    state = json.loads(a.next("chain").body)
    assert state["head"] == 200 and state["known"]
    assert b.next("chain").number == 1
    node.change({"extend": 1})
    event = b.next("chain")
    assert (event.number, event.namespace) == (2, namespace(daemon))
    assert json.loads(event.body)["head"] == 201
    # a block that a response of a has shown
    a.send(show_block(202, namespace=namespace(daemon)))
    while not (shown := json.loads(b.next("chain").body)["shown"]):
        pass
    assert [block["height"] for block in shown] == [202]
    # an entry that shows a newer head
    fields = {"class": "tip", "namespace": namespace(daemon), "epoch": state["epoch"], "height": 203}
    a.store(7, generation=daemon.generation, **fields)
    while json.loads(b.next("chain").body)["seen"] != 203:
        pass
    # a lookup in the frame of the first message
    names = ["refused"]
    while names == ["refused"]:  # on a busy machine, as in Session
        early = Connection(daemon, PREFACE + frame(hello("c", next(Session.attempts)), lookup(1, 9)))
        names = [one.name for one in early.receive_frame()]
    assert names == ["welcome", "chain", "send_lease", "missing"]
    # the epochs of an owner after this one are higher
    daemon.stop()
    daemon.start()
    later = Session(daemon, "a")
    assert json.loads(later.next("chain").body)["epoch"] > state["epoch"]
    for session in (a, b, early, later):
        session.close()


def test_chain_state_stays_short(start_node, start_daemon, join):
    node = start_node("--seed", "3", "--chain-slot-ms", "25", "--chain-reorgs", "0.3")
    daemon = start_daemon(heads=[head(node)])
    wait_for(daemon, state="following")
    until = node.chain()["head"]["number"] + 150
    session, longest, height = join(daemon, "a"), 0, 0
    while height <= until:
        event = session.next("chain")
        session.send(applied(event.number, 0))
        longest = max(longest, len(event.body))
        height = json.loads(event.body)["head"] or 0
    assert 500 < longest < 2_048
