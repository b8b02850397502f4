"""A block with blobs, published in SSZ to a node that takes JSON only: how much
longer it takes than sending the node the JSON.
"""

import json
import urllib.request

import wire_values
from stack import MODULE, Coder, Nginx, Node
from wire_values import JSON, PUBLISH, SSZ

# About 2 MB of SSZ.
BLOCK_BYTES, BLOBS = 150_000, 15
DIRECT, PLAIN, OURS = "JSON to the node", "JSON through proxy_pass", "SSZ through sszip"
# A body is in memory, or in a file where that is not enough.
BUFFERED = "client_max_body_size 64m; client_body_buffer_size 8m; "
SSZIP = Coder(
    OURS, f"{BUFFERED} sszip on; sszip_ssz on; sszip_ssz_request always;", "", module=MODULE
)
PROXY = Coder(PLAIN, BUFFERED, "")


def run(client, corpus, work, rounds, say):
    say("publishes")
    files = wire_values.contents(client, corpus, work, BLOCK_BYTES, BLOBS)
    bodies = dict(zip((JSON, SSZ), files, strict=True))
    value = json.loads(bodies[JSON].read_bytes())
    samples = []
    with (
        Node(work, [work / "small"], core=None, options=["--beacon", "json"]) as node,
        Nginx(work, "publish", node.port, {"/": PROXY}, core=None) as plain,
        Nginx(work, "publish ssz", node.port, {"/": SSZIP}, core=None) as ours,
    ):
        rows = [(DIRECT, node, JSON), (PLAIN, plain, JSON), (OURS, ours, SSZ)]
        for turn in range(rounds):
            first = turn % len(rows)
            for name, server, media in rows[first:] + rows[:first]:
                took = publish(client, server, bodies[media], media)
                samples.append({"row": name, "round": turn, "done_us": took / 1e3})
                if turn == 0:
                    verify(name, node, value)
        taken = stats(node)["publishes"][PUBLISH]
    if (taken["json"], taken["ssz"], taken["refused"]) != (len(samples), 0, 0):
        raise SystemExit(f"{len(samples)} publishes, and the node has counted {taken}")
    sizes = {"json": files[0].stat().st_size, "ssz": files[1].stat().st_size}
    return sizes | {"rows": [name for name, _, _ in rows], "samples": samples}


def publish(client, server, body, media):
    request = {"path": PUBLISH, "body": body, "media_type": media}
    request["headers"] = ["Eth-Consensus-Version: deneb"]
    said = client.do(do="fetch", to=f"127.0.0.1:{server.port}", requests=[request])
    if said["status"] != 200:
        raise SystemExit(f"a publish: {said}")
    return said["done_ns"]


def verify(name, node, value):
    """What the node has got is the value."""
    with urllib.request.urlopen(f"http://127.0.0.1:{node.port}/published{PUBLISH}") as reply:
        if reply.headers["Content-Type"] != JSON or json.load(reply) != value:
            raise SystemExit(f"{name}: the node has got something else")


def stats(node):
    with urllib.request.urlopen(f"http://127.0.0.1:{node.port}/stats") as reply:
        return json.load(reply)
