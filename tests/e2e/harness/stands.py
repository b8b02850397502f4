"""A server of a host in front of a chain that a test changes and the store's owner follows."""

import json
import re
import time

from . import client
from .chain import Chain
from .envoy import Envoy, address, cluster, route
from .nginx import Nginx
from .owner import Owner, owner_of, wait_until_linked
from .sandbox import WasmEnvoy

from harness.guards import GUARD_SECONDS

# Long enough that no entry expires: one that is missing was removed.
VALID = ["immutable 1h", "unfinalized 1h", "tip 1h", "nothing 1h"]
# workers of a stand for any host
WORKERS = 5
# A node that lags does so until the test ends that; else the state lasts for two seconds.
LOWER_HEAD_IS_NOT_ACCEPTED = "lower_head_delay=600s"

_CONFIG = """
sszip on;
sszip_cache on;
sszip_cache_path @prefix@/cache max_size=64m memory=32m;
sszip_cache_memory 16m;
sszip_cache_namespace main;
%(more)s
proxy_http_version 1.1;
server {
    listen 127.0.0.1:@port@ reuseport;
    add_header X-Key $sszip_cache_key;
    location / { sszip_cache_head %(head)s; proxy_pass http://%(node)s; }
    location = /purge { sszip_cache_purge on; }
    location = /sszip-status { sszip_status on; }
}
"""


def hit(response):
    return "; hit" in (response.header("Cache-Status") or "")


def cache_key(response):
    """The key in a response to `Cache-Control: only-if-cached`; None if the request has none."""
    found = re.search(r'; key="([0-9a-f]{64})"$', response.header("Cache-Status") or "")
    return found and found[1]


class Stand:
    """An nginx in front of a chain that it follows."""

    def __init__(
        self,
        *arguments,
        head="http://%s interval=100ms",
        workers=2,
        more="",
        methods=(),
        times="",
        settings=None,
        valid=VALID,
    ):
        self.chain = Chain(*arguments)
        head = head % self.chain.address if "%s" in head else head
        more += "".join(f"sszip_cache_valid {lifetime};\n" for lifetime in valid)
        more += "".join(f"sszip_cache_method {method};\n" for method in methods)
        more += "".join(f"sszip_{name} {value};\n" for name, value in (settings or {}).items())
        config = _CONFIG % {"head": head, "node": self.chain.address, "more": more}
        self.nginx = Nginx(config, workers=workers, environment={"SSZIP_TIMES": times})

    def __enter__(self):
        self.nginx.start()
        wait_until_linked(self.nginx)
        self.follows()
        return self

    def __exit__(self, kind, *_):
        try:
            self.nginx.stop()
        finally:
            self.chain.stop()

    @property
    def store_owner(self):
        """A client of the store's owner."""
        return owner_of(self.nginx)

    @property
    def status(self):
        """The owner's status of the chain."""
        (chain,) = self.store_owner.status()["chains"]
        return chain

    def follows(self, state="following", wait_for_workers=True):
        def does():
            status = self.status
            if status["state"] != state:
                return False
            return state != "following" or status["head"] == self.chain.state["served_head"]["number"]

        self.nginx.wait_for(does, f"{state}, and it is {self.status}")
        if wait_for_workers:
            self.wait_for_workers()

    def wait_for_workers(self):
        """Waits until all workers have handled the owner's events: a purge, here of an unused
        key, ends when each has confirmed it, in the order of events."""
        self.store_owner.purge(key="0" * 64)

    def wait_for_final(self, number):
        self.nginx.wait_for(lambda: self.status["final"] == number, f"block {number} to be final")
        self.wait_for_workers()

    def delay(self, method):
        """The node delays its responses to this method."""
        self.chain.do({"hold": {"method": method, "ms": 600_000}})

    def release(self, method):
        self.chain.do({"hold": {"method": method, "ms": 0}})

    def change(self, *commands, state="following", wait_for_workers=True):
        before = self.status["reorgs"]
        self.chain.do(*commands)
        reorgs = [command["reorg"] for command in commands if "reorg" in command]
        # a shorter branch is accepted when it has lasted: see follows()
        if any(reorg["length"] >= reorg["depth"] for reorg in reorgs):
            self.nginx.wait_for(lambda: self.status["reorgs"] > before, "a reorganisation to be seen")
        self.follows(state, wait_for_workers)

    def fetch(self, body, accept="gzip"):
        headers = [("Content-Type", "application/json"), ("Accept-Encoding", accept)]
        response = client.fetch(self.nginx.port, "/", method="POST", headers=headers, body=body)
        assert response.status == 200, response.body
        return response

    def page(self, target):
        response = client.fetch(self.nginx.port, target)
        assert response.status == 200, response.body
        return response

    def result(self, body):
        response = json.loads(self.fetch(body).decoded)
        return response.get("result", response.get("error"))

    def class_of(self, body):
        """The class of the call's entry; None: the response is not stored."""
        owner = self.store_owner
        misses = 0
        until = time.monotonic() + GUARD_SECONDS
        while misses < 20:
            response = self.fetch(body)
            status, fields, _ = owner.request("GET", f"/v1/entries/{response.header('X-Key')}")
            if status == 200:
                return fields["sszip-class"]
            # a worker sends entries to the owner in the background, after the first hit
            misses += not hit(response)
            assert time.monotonic() < until, f"the owner does not receive the response to {body}"
            time.sleep(0.02)
        return None

    def assert_right_results(self, bodies):
        for body, honest in zip(bodies, self.chain.honest(*bodies), strict=True):
            result = self.result(body)
            assert result == honest, f"the answer to {body} is not the node's"


class EnvoyStand(Stand):
    """Envoy's module in front of a chain that it follows."""

    def __init__(
        self,
        *arguments,
        head="http://%s interval=100ms",
        workers=4,
        more="",
        methods=(),
        times="",
        settings=None,
        valid=VALID,
    ):
        assert not more
        self.chain = Chain(*arguments)
        head = head % self.chain.address if "%s" in head else head
        settings = {
            **(settings or {}),
            "cache": True,
            "cache_path": "@prefix@/cache max_size=64m memory=32m",
            "cache_memory": "16m",
            "cache_namespace": "main",
            "cache_head": head,
            **({"cache_valid": list(valid)} if valid else {}),
            **({"cache_method": list(methods)} if methods else {}),
        }
        self.nginx = Envoy(
            [route("/purge", {"cache_purge": True}), route("/")],
            settings=settings,
            workers=workers,
            environment={"SSZIP_TIMES": times},
            clusters=[cluster("node", address(self.chain.port))],
        )
        # log lines about a node that is down, or syncing
        self.nginx.expect("finality unknown")


class SandboxStand(Stand):
    """Sandboxes of Envoy's proxy-wasm filter in front of a chain that their daemon follows."""

    def __init__(self, *arguments, interval, api, workers, settings=None, valid=VALID):
        self.chain = Chain(*arguments)
        url = f"http://{self.chain.address}"
        follows = {"namespace": "main", "url": url, "interval": interval, "api": api}
        self.owner = Owner([follows], max_size="64m", memory="32m")
        self.nginx = WasmEnvoy(
            [route("/purge", {"cache_purge": True}), route("/")],
            owner=self.owner,
            workers=workers,
            settings={
                **(settings or {}),
                "cache": True,
                "cache_namespace": "main",
                **({"cache_valid": list(valid)} if valid else {}),
            },
            clusters=[cluster("node", address(self.chain.port))],
        )
        self.nginx.expect("purge of|owner")

    def __enter__(self):
        try:
            self.owner.start()
            self.nginx.start()
            self.follows()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        try:
            self.nginx.stop()
        finally:
            self.owner.close()
            self.chain.stop()

    @property
    def store_owner(self):
        return self.owner


# of the hosts that own a store
STANDS = {"nginx": Stand, "native": EnvoyStand}


def stand_of_host(host, *arguments, interval, api="execution", settings=None, valid=VALID):
    """A stand whose node is polled at this interval, with these settings in addition, and these
    lifetimes, or with the default ones. Its workers are processes of nginx, threads of Envoy's
    module, or sandboxes that share no memory."""
    options = {"workers": WORKERS, "settings": settings, "valid": valid}
    if host == "wasm":
        return SandboxStand(*arguments, interval=interval, api=api, **options)
    head = f"http://%s interval={interval} api={api}"
    return STANDS[host](*arguments, head=head, **options)
