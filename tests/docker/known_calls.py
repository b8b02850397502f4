"""Calls with known results, sent once or continuously, and compared."""

import dataclasses
import gzip
import http.client
import itertools
import json
import random
import threading
import time
import urllib.parse

ADDRESS = "0xdac17f958d2ee523a2206206994597c13d831ec7"
HEAD = 0x1500000
# calls for which the replay node's sample has responses of 40 bytes to 1.5 MB
CALLS = [
    ("eth_chainId", []),
    ("eth_blockNumber", []),
    ("eth_getBalance", [ADDRESS, "latest"]),
    ("eth_getBlockByNumber", ["latest", True]),
    *(("eth_getBlockByNumber", [hex(HEAD - back), True]) for back in (1, 3, 4, 5)),
    ("eth_getBlockReceipts", [hex(HEAD - 1)]),
    ("eth_getBlockReceipts", [hex(HEAD - 7)]),
]


class ProxyError(Exception):
    """There was no response, or it was truncated, or it is an error of the proxy."""


@dataclasses.dataclass
class Answer:
    status: int
    fields: dict
    body: bytes
    raw: bytes

    def json(self):
        return json.loads(self.body)


def fetch(url, path="/", body=None, **headers):
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    try:
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("POST" if body is not None else "GET", path, body, fields)
        answer = connection.getresponse()
        raw = answer.read()
        fields = {name.lower(): value for name, value in answer.getheaders()}
    except (OSError, http.client.HTTPException) as error:
        raise ProxyError(f"{type(error).__name__}: {error}") from None
    finally:
        connection.close()
    body = gzip.decompress(raw) if fields.get("content-encoding") == "gzip" else raw
    return Answer(answer.status, fields, body, raw)


def call(method, params, id_=1):
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


def send_call(url, request, coding="identity"):
    return fetch(url, "/", json.dumps(request), Content_Type="application/json", Accept_Encoding=coding)


@dataclasses.dataclass
class Outcome:
    at: float
    proxy: str
    # "right", "failed" or "wrong"
    verdict: str
    why: str = ""


class Stream:
    """A steady stream of checked requests to all proxies, one after another for each."""

    PAUSE = 0.02

    def __init__(self, stack, proxies):
        self.stack, self.proxies = stack, proxies
        self.known = [(method, params, send_call(stack.url("node"), call(method, params)).json()["result"]) for method, params in CALLS]
        self.outcomes = []
        self.over = threading.Event()
        self.ids = itertools.count(1)
        self.threads = [threading.Thread(target=self.run, args=(proxy,), daemon=True) for proxy in proxies]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join(60)

    def run(self, proxy):
        dice = random.Random(proxy)
        url = self.stack.url(proxy)
        while not self.over.wait(self.PAUSE):
            coding = dice.choice(["gzip", "identity"])
            rows = dice.sample(self.known, dice.choice([1, 1, 1, 3]))
            request = [call(method, params, next(self.ids)) for method, params, _ in rows]
            wanted = [{"jsonrpc": "2.0", "id": one["id"], "result": row[2]} for one, row in zip(request, rows, strict=True)]
            if len(rows) == 1:
                request, wanted = request[0], wanted[0]
            began = time.monotonic()
            self.outcomes.append(Outcome(began, proxy, *self.judge(url, request, wanted, coding)))

    @staticmethod
    def judge(url, request, wanted, coding):
        try:
            answer = send_call(url, request, coding)
        except ProxyError as error:
            return "failed", str(error)
        except (OSError, EOFError) as error:
            return "wrong", f"no gzip: {error}"
        if answer.status != 200:
            return "failed", f"{answer.status} {answer.body[:100]}"
        try:
            if answer.json() == wanted:
                return ("right",)
        except ValueError:
            pass
        return "wrong", f"{request} is answered {answer.body[:200]}"

    def outcomes_of(self, proxy, verdict, since=0.0):
        return [one for one in list(self.outcomes) if one.proxy == proxy and one.verdict == verdict and one.at >= since]

    def has_responses(self, count=10, since=None):
        """Whether each proxy has given `count` right responses since then."""
        return all(len(self.outcomes_of(proxy, "right", since or 0.0)) >= count for proxy in self.proxies)
