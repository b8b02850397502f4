"""Verification of a server's responses against the node's.

Before the measurement each call is sent to the server several times under different ids, since
a cache serves the second request. The decompressed response must equal the node's response to
the same request, including the id. A server with wrong responses is measured too, and its row
names the errors.
"""

import json
import threading
import time

import http_client

# Maximum number of calls of a workload that are verified.
MOST = 60
TURNS = 3
FIRST_ID = 300_000_000
OTHER = "another answer"


def verify(server, workload, node, coding, moves=False):
    """Returns the right and wrong responses to a workload's calls, their lengths, and how many of
    them were hits of sszip's cache. `node` is the address of the honest node; without one only ids
    are compared. `moves` is set if its chain grows meanwhile."""
    found = {"asked": 0, "hits": 0, "wrong": 0, "kinds": {}, "first": "", "wire": {}, "coding": ""}
    found["exact"] = True
    step = max(1, len(workload.calls) // MOST)
    chosen = list(enumerate(workload.calls))[::step]
    with (
        http_client.Peer(*server.place) as peer,
        http_client.Peer(*(node or ("", 0))) as honest,
    ):
        for index, call in chosen:
            for again in range(TURNS):
                id = FIRST_ID + index * 10 + again
                found["asked"] += 1
                wrong, answer = verify_response(peer, honest if node else None, call, workload, coding, id)
                wrong = None if wrong == OTHER and moves and depends_on_head(call) else wrong
                if wrong:
                    found["wrong"] += 1
                    found["kinds"][wrong] = found["kinds"].get(wrong, 0) + 1
                    found["first"] = found["first"] or f"{call.name}: {wrong}"
                elif answer:
                    found["hits"] += "sszip; hit" in answer.headers.get("cache-status", "")
                    found["wire"][index] = answer.wire
                    if len(answer.decoded()) > 2_000:
                        found["coding"] = found["coding"] or answer.coding
                        found["exact"] &= "content-length" in answer.headers
    return found


def verify_response(peer, honest, call, workload, coding, id):
    """Returns the error of a response, or None, and the response."""
    sent = call.sent(id)
    try:
        answer = peer.fetch(sent, call.path, coding, workload.media)
    except (OSError, http_client.ConnectionLost) as lost:
        peer.close()
        return f"no answer ({type(lost).__name__})", None
    try:
        if answer.status != 200:
            return f"status {answer.status}", answer
        decoded = answer.decoded()
        if honest is None:
            value = json.loads(decoded)
            wanted = json.loads(sent) if sent else None
            return (None if ids(value) == ids(wanted) else "another caller's id"), answer
        reference = honest.fetch(sent, call.path, "", workload.media)
        if is_same_type(answer, reference) and decoded != reference.decoded():
            return difference(decoded, reference.decoded()), answer
    except (ValueError, KeyError) as bad:
        return f"can't be decoded ({type(bad).__name__})", answer
    return None, answer


def is_same_type(answer, reference):
    """SSZ in place of a node's JSON is verified elsewhere (tests/ssz, the wire suite)."""
    return answer.headers.get("content-type") == reference.headers.get("content-type")


def depends_on_head(call):
    """Whether the response may change a moment later because the node's chain grows; the
    section of the head verifies those."""
    return call.body is None or b'"latest"' in call.body or b"eth_blockNumber" in call.body


def difference(decoded, reference):
    value, wanted = json.loads(decoded), json.loads(reference)
    if value == wanted:
        # other order of members, or white space: equivalent JSON
        return None
    if ids(value) != ids(wanted):
        return "another caller's id"
    return OTHER


def ids(value):
    """Returns the ids of a response or a request, in order."""
    if isinstance(value, list):
        return [ids(one) for one in value]
    return value.get("id") if isinstance(value, dict) else None


def expected(found, workload):
    """Returns the mean length of the workload's responses in its order, from the verified
    ones."""
    wire = found["wire"]
    seen = [wire[i] for i in workload.order or range(len(workload.calls)) if i in wire]
    return sum(seen) / len(seen) if seen else 0


class Auditor(threading.Thread):
    """Verifies responses while the server is under load: always the id, the whole response if
    it never changes, and for the head whether it is the chain's."""

    def __init__(self, server, node, calls, coding, pause=0.02, slot_ms=0):
        super().__init__(daemon=True)
        self.server, self.node, self.calls, self.coding = server, node, calls, coding
        self.pause, self.slot_ms = pause, slot_ms
        self.counts = {"asked": 0, "wrong": 0, "stale": 0, "compared": 0}
        self.kinds, self.late = {}, []
        self.is_over = False

    def run(self):
        with (
            http_client.Peer(*self.server.place) as peer,
            http_client.Peer(*self.node) as honest,
        ):
            turn = 0
            while not self.is_over:
                turn += 1
                try:
                    self.look(peer, honest, self.calls[turn % len(self.calls)], turn)
                except (OSError, http_client.ConnectionLost, ValueError, KeyError, TypeError) as lost:
                    self.wrong(f"no answer ({type(lost).__name__})")
                    peer.close()
                    honest.close()
                time.sleep(self.pause)

    def wrong(self, kind):
        self.counts["wrong"] += 1
        self.kinds[kind] = self.kinds.get(kind, 0) + 1

    def look(self, peer, honest, call, turn):
        sent = call.sent(600_000_000 + turn)
        before = self.node_result(honest, sent)
        answer = peer.fetch(sent, "/", self.coding)
        self.counts["asked"] += 1
        if answer.status != 200:
            return self.wrong(f"status {answer.status}")
        decoded = answer.decoded()
        after = self.node_result(honest, sent)
        if ids(json.loads(decoded)) != ids(json.loads(sent)):
            return self.wrong("another caller's id")
        self.counts["compared"] += 1
        if json.loads(decoded) in (before, after):
            return None
        # it may be the response of a moment ago: measure for how long it is sent
        return self.age(peer, honest, call, turn)

    def node_result(self, honest, sent):
        if self.slot_ms:
            return honest.fetch(sent, "/chain/answer").value()
        return honest.fetch(sent).value()

    def age(self, peer, honest, call, turn):
        """Measures for how long a response is sent that is not the chain's. One that is still
        sent after two slots was never the head's, and is wrong."""
        began, limit = time.monotonic(), max(2.0, 2 * self.slot_ms / 1000)
        self.counts["stale"] += 1
        while time.monotonic() - began < limit and not self.is_over:
            sent = call.sent(700_000_000 + turn)
            before = self.node_result(honest, sent)
            value = peer.fetch(sent, "/", self.coding).value()
            if value in (before, self.node_result(honest, sent)):
                self.late.append(time.monotonic() - began)
                return
            time.sleep(0.01)
        if not self.is_over:
            self.wrong(OTHER)

    def end(self):
        self.is_over = True
        self.join(90)
        late = sorted(self.late)
        return self.counts | {
            "kinds": self.kinds,
            "late_ms": 1000 * late[len(late) // 2] if late else 0,
            "latest_ms": 1000 * late[-1] if late else 0,
        }
