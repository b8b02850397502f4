"""The Wasm suite: the filter in a sandbox beside the module, and what it is to have one."""

import time
from dataclasses import replace

import caching_bodies as bodylib
import proxying
from proxying import BEST_SPEED, DEFAULT, OURS, PER_GROUP, PLAIN, Servers, merge
from proxying_stack import Envoy, resident, wasm
from stack import Node

SECTIONS = ["compress", "hit", "sandbox"]
NAME = "part-11-wasm"
WASM = wasm()
COMPRESS = [PLAIN, DEFAULT, BEST_SPEED, OURS, WASM]
# so many are ready within one process
WORKERS = [1, 2, 4]


def hits(known):
    return replace(wasm("Wasm, hits", cache=True, cache_valid=proxying.valid(known)), hits=True)


def run(args, work, library, chosen, say):
    """The sections asked for, by name."""
    quick = args.quick
    rounds = 1 if quick else 3
    calls = bodylib.singles(chosen, library, 1 if quick else PER_GROUP)
    known = {b.method for b in chosen if b.method.startswith("erigon_")}
    out = {}
    with Node(work, [library.pairs]) as node:
        if "compress" in args.only:
            say("compress")
            with Servers(work, node, COMPRESS, calls) as servers:
                out["compress"] = servers.measure(calls, proxying.CONNECTIONS, rounds, say)
        if "hit" in args.only:
            say("hits")
            merged = out["hit"] = {}
            rows = [WASM, hits(known), proxying.hits(known)]
            with Servers(work, node, rows, calls) as servers:
                merge(merged, servers.measure(calls, proxying.CONNECTIONS, rounds, say))
        if "sandbox" in args.only:
            say("sandboxes")
            out["sandbox"] = [sandbox(work, node, row, count) for count in WORKERS for row in (OURS, WASM)]
    return out


def sandbox(work, node, row, workers):
    """What it takes to start one, and to have it."""
    before = time.monotonic()
    with Envoy(work, replace(row, workers=workers), node.port, core=None) as envoy:
        ready = time.monotonic() - before
        # each worker has made its own by then
        time.sleep(1)
        return {
            "row": row.name,
            "workers": workers,
            "ready_s": ready,
            "resident_kb": resident(envoy.worker),
        }
