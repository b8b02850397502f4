"""Split batches against random nodes, through a real proxy: whatever the node's response looks
like, each call has one answer, which is the stored one, the node's or a documented error.

SSZIP_CASES is how many batches are tried on each host, SSZIP_SEED where they begin.
shared-core/tests/split_batches.rs does the same with the core alone."""

import json
import os
import random

from . import decoders, zstd
from .client import Connection
from .origin import answer, gzipped, scattered, whole

CASES = int(os.environ.get("SSZIP_CASES", "100"))
SEED = int(os.environ.get("SSZIP_SEED", "1"))
# What is configured at each path; at the last one the node compresses in a way that is not undone.
PATHS = {
    "/plain/": {},
    "/bounded/": {"max_answer": ["eth_getLogs 1k"]},
    "/small/": {"max_oneshot": "2k"},
    "/coded/": {},
}
SETTINGS = {"cache": "on", "method": ["deny debug_*"]}
BOUND = 1024
STORED = 4
JSON = ("Content-Type", "application/json")
METHODS = {
    "stored": "eth_getBlockByHash",
    "denied": "debug_x",
    "bounded": "eth_getLogs",
    "missing": "eth_x",
}
DENIED = {"code": -32601, "message": "the method does not exist/is not available"}
ERROR = {"code": -32000, "message": "all"}
TOO_LONG = {"code": -32005, "message": "the answer is longer than may be sent"}
SHAPES = [
    *["array"] * 4,
    *("reversed", "short", "more", "null", "object", "error", "text", "html", "empty"),
    *("cut", "twice"),
]


def parsers(cache_directory):
    """JSON of Python, of node and of Go."""
    return [
        lambda text: text,
        decoders.node("parse_json"),
        decoders.go(cache_directory, "parse_json"),
    ]


def call(method, number, id):
    params = [f"0x{number:064x}", True]
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def stored(number, id):
    return {"jsonrpc": "2.0", "id": id, "result": f"stored {number}"}


def prime(host, origin):
    """Stores at each path what the batches find stored: until each is a hit, since a host may not
    have reached its owner yet, and stores in the background."""

    def is_hit(path, body):
        got = post(host, path, body)
        assert got.status == 200
        return "; hit" in got.header("Cache-Status")

    for path in PATHS:
        for number in range(STORED):
            body = call(METHODS["stored"], number, 1)
            origin.answers(answer(json.dumps(stored(number, 1)).encode()))
            host.wait_for(lambda path=path, body=body: is_hit(path, body), f"a hit of {number} at {path}")


def post(host, path, body, accepts="gzip"):
    fields = [JSON] + ([("Accept-Encoding", accepts)] if accepts else [])
    body = json.dumps(body).encode()
    # Envoy takes its time to close one
    with Connection(host.port) as connection:
        return connection.exchange(path, method="POST", headers=fields, body=body)


class Case:
    def __init__(self, seed):
        chance = random.Random(seed)
        self.chance = chance
        self.path = chance.choice(list(PATHS))
        kinds = ["stored", "missing", "denied"]
        if self.path == "/bounded/":
            kinds.append("bounded")
        self.calls = []
        for number in range(chance.randint(1, 5)):
            kind = chance.choice(kinds)
            id = chance.choice([number + 1, f"id {number}"])
            which = chance.randrange(STORED) if kind == "stored" else number
            self.calls.append((kind, which, id, self._answer(number, id)))
        self.shape = chance.choice(SHAPES)
        codings = ["br", "unknown"] if self.path == "/coded/" else [None] * 3 + ["gzip", "x-gzip", "zstd", "cut"]
        self.coding = chance.choice(codings)
        self.status = chance.choice([200] * 5 + [202, 400, 429, 500, 503])
        self.framing = chance.choice(["length", "chunked"])
        self.split = chance.choice([whole, scattered(seed)])
        self.accepts = chance.choice(["gzip", "", "gzip, deflate"])

    def _answer(self, number, id):
        token, chance = f"t{number}", self.chance
        long = "x" * chance.choice([900, 2000, 9000])
        deep = chance.choice([3, 100, 250])
        head = f'"jsonrpc":"2.0","id":{json.dumps(id)}'
        return chance.choice(
            [
                f'{{{head},"result":"{token}"}}',
                f'{{{head},"result":["{token}","{long}"]}}',
                f'{{{head},"error":{{"code":3,"message":"{token}"}}}}',
                f'{{"result":{{"a":["{token}"]}},{head} ,"meta":{{"id":7}}}}',
                f'{{"id":{json.dumps(id)},"error":null,"result":"{token}"}}',
                f'{{{head},"result":{"[" * deep}"{token}"{"]" * deep}}}',
                f'{{{head},"{token}":null}}',
            ]
        )

    def asked(self):
        return [one for one in self.calls if one[0] in ("bounded", "missing")]

    def text(self):
        answers = [text for *_, text in self.asked()]
        array = "[" + " ,\n".join(answers) + "]"
        nulls = [null(text, id) for _, _, id, text in self.asked()]
        return {
            "array": array,
            "reversed": "[" + ",".join(answers[::-1]) + "]",
            "short": "[" + ",".join(answers[:-1]) + "]",
            "more": "[" + ",".join([*answers, '{"id":"nobody","result":1}']) + "]",
            "null": "[" + ",".join(nulls) + "]",
            "object": answers[0] if answers else "{}",
            "error": json.dumps({"jsonrpc": "2.0", "error": ERROR, "id": None}),
            "text": json.dumps(array),
            "html": "<html>\n[1]",
            "empty": "",
            "cut": array[: self.chance.randrange(len(array))],
            "twice": array + array,
        }[self.shape]

    def script(self, text):
        body, fields = text.encode(), []
        if self.coding in ("gzip", "x-gzip"):
            body = gzipped(body)
        elif self.coding == "zstd":
            body = zstd.compress(body)
        elif self.coding == "cut":
            body = gzipped(body)[:-3]
        if self.coding:
            coding = "gzip" if self.coding == "cut" else self.coding
            fields.append(("Content-Encoding", coding))
        return answer(
            body, status=self.status, headers=fields, framing=self.framing, split=self.split
        )


def null(text, id):
    return text.replace(json.dumps(id), "null", 1)


def whole_json(text):
    try:
        return json.loads(text)
    except ValueError:
        return None


def run(host, origin, parsers, seed):
    """One batch. Whether it was split."""
    case = Case(seed)
    text = case.text()
    origin.forget()
    origin.answers(case.script(text))
    batch = [call(METHODS[kind], number, id) for kind, number, id, _ in case.calls]
    got = post(host, case.path, batch, case.accepts)
    requests = origin.received()
    assert len(requests) <= 1, "a call was sent twice"
    asked = json.loads(requests[0].body) if requests else []
    if asked == batch and not any(kind == "bounded" for kind, *_ in case.calls):
        # as it came, or without its coding
        assert got.status == case.status
        return False
    if requests:
        assert got.status in (case.status, 200 if case.status == 202 else case.status)
    body = got.decoded if got.coding == "gzip" else got.body
    if asked == batch and body == text.encode():
        assert len(body) <= BOUND or all(len(said) <= BOUND for *_, said in case.calls)
        return False
    assert got.coding in (None, "gzip")
    is_streamed = case.path == "/small/" and len(text) > 2048 and not case.coding
    if is_streamed and whole_json(text) is None and body.decode().endswith(text[1:].lstrip()):
        # the node's own text, behind what is stored
        return True
    values = [json.loads(parser(body)) for parser in parsers]
    assert values[0] == values[1] == values[2]
    judge(case, values[0], text, bool(requests))
    return True


def judge(case, elements, text, was_asked):
    def at(element):
        places = [place for place, one in enumerate(elements) if one == element]
        assert len(places) <= 1, f"{element} twice"
        return places

    def error(id, error):
        return {"jsonrpc": "2.0", "id": id, "error": error}

    found = []
    is_good = case.coding not in ("cut", "br", "unknown")
    is_array = is_good and isinstance(whole_json(text), list)
    ours = {"code": -32603, "message": "the response of the node has no answer that can be read"}
    if case.status >= 300:
        ours["message"] = f"the node answered with status {case.status}"
    for kind, number, id, said in case.calls:
        if kind == "stored":
            places = at(stored(number, id))
            assert places, f"{id} is lost"
        elif kind == "denied":
            places = at(error(id, DENIED))
            assert places, f"{id} is lost"
        else:
            is_over = kind == "bounded" and len(said) > BOUND
            of_node = at(json.loads(said))
            if case.shape == "null":
                of_node += at(json.loads(null(said, id)))
            assert not (is_over and of_node), f"{id} is too long"
            of_all = at(error(id, ERROR))
            limit = at(error(id, TOO_LONG))
            places = of_node + of_all + limit + at(error(id, ours))
            assert len(places) <= 1, f"{id} has several answers"
            if is_array and case.shape == "short":
                continue
            assert places, f"{id} has no answer"
            if is_array and is_over:
                assert limit
            elif is_array:
                assert of_node, f"{id} is lost"
            elif case.shape == "error" and is_good:
                assert of_all
        found += places
    is_streamed = case.path == "/small/" and len(text) > 2048
    assert is_streamed or found == sorted(found), "another order"
    assert case.shape in ("more", "short") or len(found) == len(elements), "there are others"


def run_all(host, origin, parsers):
    prime(host, origin)
    split = 0
    for number in range(CASES):
        seed = f"{SEED}/{number}"
        try:
            split += run(host, origin, parsers, seed)
        except Exception as error:
            raise AssertionError(f"case {seed}: {vars(Case(seed))}") from error
    print(f"{CASES} batches from seed {SEED}, {split} were split")
    # what is not split proves nothing
    assert split > CASES // 4
