"""The cache with its store, compared with a slow and obvious model, over random sequences of
requests, purges, crashes and restarts."""

import contextlib
import json
import os
import pathlib
import random
import signal

import pytest

from harness import client
from harness.guards import GUARD_SECONDS
from harness.nginx import Nginx
from harness.origin import answer
from harness.owner import wait_until_linked
from harness.processes import runs, stop
from harness.rpc import call
from test_store_life import end, kill_manager
from tiers import seeds, times

pytestmark = [
    pytest.mark.carried("what is purged stays purged by the owner's doing; processes that come and go are test_store_life's"),
]

CONFIG = """
sszip on;
sszip_cache on;
sszip_cache_path @prefix@/cache max_size=64m memory=16m;
sszip_cache_memory 2m;
sszip_cache_valid immutable 1h;
sszip_cache_valid unfinalized 1h;
proxy_http_version 1.1;
server {
    listen 127.0.0.1:@port@ reuseport;
    location / { sszip_cache_namespace $arg_chain; proxy_pass http://@origin@; }
    location = /purge { sszip_cache_purge on; }
}
"""
CHAINS = ("a", "b")
METHODS = ("eth_getBlockByNumber", "eth_getBlockReceipts")
BLOCKS = range(6)


class Model:
    """For each call: the oldest version that may be sent, and the version of the node."""

    def __init__(self):
        self.version = 1
        self.floor = {(chain, method, block): 1 for chain in CHAINS for method in METHODS for block in BLOCKS}

    def purged(self, covers):
        for thing in self.floor:
            if covers(*thing):
                self.floor[thing] = self.version

    def judge(self, thing, version):
        assert self.floor[thing] <= version <= self.version, f"{thing}: version {version}, purged up to {self.floor[thing]}, now {self.version}"


def serve(model):
    def node(request):
        calls = json.loads(request.body)
        chain = request.target.partition("chain=")[2][0]
        answers = [one(call, chain) for call in (calls if isinstance(calls, list) else [calls])]
        return answer(json.dumps(answers if isinstance(calls, list) else answers[0]).encode())

    def one(call, chain):
        block = call["params"][0]
        result = {"chain": chain, "method": call["method"], "number": block, "hash": "0x" + "0" * 64, "version": model.version, "rest": "00112233" * 300}
        if call["method"] == "eth_getBlockReceipts":
            result = [{"blockNumber": block, "blockHash": "0x" + "0" * 64, **result}]
        return {"jsonrpc": "2.0", "id": call["id"], "result": result}

    return node


def call_for(method, block, id):
    params = f'["0x{block:x}",true]' if method == "eth_getBlockByNumber" else f'["0x{block:x}"]'
    return call(method, params, id=str(id))


class Run:
    def __init__(self, seed, origin):
        self.dice = random.Random(seed)
        self.model = Model()
        origin.answers(serve(self.model))
        self.nginx = Nginx(CONFIG, origin=origin, workers=2)
        self.nginx.expect("exited on signal 9")
        self.acknowledged = 0

    def request(self):
        chain = self.dice.choice(CHAINS)
        calls = [(self.dice.choice(METHODS), self.dice.choice(BLOCKS)) for _ in range(self.dice.choice([1, 1, 1, 4]))]
        bodies = [call_for(method, block, id) for id, (method, block) in enumerate(calls)]
        body = b"[" + b",".join(bodies) + b"]" if len(bodies) > 1 else bodies[0]
        response = self.nginx.post(f"/?chain={chain}", body, self.dice.choice(["gzip", "identity"]))
        assert response.status == 200
        replies = json.loads(response.decoded)
        replies = replies if isinstance(replies, list) else [replies]
        assert [one["id"] for one in replies] == list(range(len(calls)))
        for one, (method, block) in zip(replies, calls, strict=True):
            result = one["result"][0] if isinstance(one["result"], list) else one["result"]
            assert (result["chain"], result["method"], result["number"]) == (chain, method, f"0x{block:x}")
            self.model.judge((chain, method, block), result["version"])

    def new_version(self):
        self.model.version += 1

    def purge(self):
        chain, method = self.dice.choice(CHAINS), self.dice.choice(METHODS)
        low = self.dice.choice(BLOCKS)
        high = self.dice.randrange(low, len(BLOCKS))
        query, covers = self.dice.choice(
            [
                ("everything", lambda *_: True),
                (f"namespace={chain}", lambda c, m, b: c == chain),
                (f"method={method}", lambda c, m, b: m == method),
                (f"method={method}&namespace={chain}", lambda c, m, b: (c, m) == (chain, method)),
                (f"namespace={chain}&blocks={low}-{high}", lambda c, m, b: c == chain and low <= b <= high),
                (f"namespace={chain}&blocks={low}-{high}", lambda c, m, b: c == chain and low <= b <= high),
            ]
        )
        self.model.version += 1
        response = client.fetch(self.nginx.port, f"/purge?{query}", method="POST")
        if response.status == 200:
            self.acknowledged += 1
            self.model.purged(covers)
        else:
            assert response.status in (502, 503, 504)

    def kill_owner(self):
        kill_manager(self.nginx)

    def kill_worker(self):
        self.nginx.kill(self.dice.choice(self.nginx.workers()))

    def reload(self):
        self.nginx.reload()

    def restart(self):
        end(self.nginx, self.dice.choice([signal.SIGTERM, signal.SIGQUIT]))
        self.nginx.start()

    def kill_all(self):
        """Kills all processes, as a crash of the machine does, except for unsynced writes."""
        master = self.nginx.master
        # so that the master starts no other process meanwhile
        stop(master)
        children = pathlib.Path(f"/proc/{master}/task/{master}/children").read_text().split()
        victims = [master, *map(int, children)]
        for victim in filter(runs, victims):
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        self.nginx.process.wait(GUARD_SECONDS)
        self.nginx.wait_for(lambda: not any(map(runs, victims)), "all to be gone")
        (self.nginx.prefix / "nginx.pid").unlink()
        self.nginx.start()

    def settle(self):
        wait_until_linked(self.nginx)


STEPS = [
    (60, Run.request),
    (6, Run.new_version),
    (8, Run.purge),
    (3, Run.kill_owner),
    (2, Run.kill_worker),
    (2, Run.reload),
    (1, Run.restart),
    (1, Run.kill_all),
    (6, Run.settle),
]


@pytest.mark.parametrize("seed", seeds(1, 8))
def test_responses_equal_the_model_after_random_purges_and_crashes(seed, origin):
    run = Run(seed, origin)
    weights, steps = zip(*STEPS, strict=True)
    done = []
    try:
        run.nginx.start()
        wait_until_linked(run.nginx)
        for step in run.dice.choices(steps, weights, k=times(90, 120)):
            done.append(step.__name__)
            step(run)
    except AssertionError as error:
        raise AssertionError(f"after {done}") from error
    finally:
        run.nginx.stop()
    assert run.acknowledged >= 2
