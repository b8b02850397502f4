"""Readers of requests, as in nodes (docs/policy.md): each reader gets the requests that reached
the node, and returns the methods that it would call. The Go reader is Go's own encoding/json;
the rules of the others are written down here. And requests that some of them read in another
way than sszip."""

import base64
import json
import re
import subprocess
import urllib.parse

from harness.decoders import build_go_program
from harness.guards import GUARD_SECONDS


class Go:
    """The reader of geth, op-geth, Nitro, Bor, and of Erigon's GET."""

    def __init__(self, cache):
        program = build_go_program(cache, "calls")
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(self, method, query, headers, body):
        request = {"method": method, "query": query, "body": base64.b64encode(body).decode()}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self):
        self._process.stdin.close()
        self._process.wait(GUARD_SECONDS)
        self._process.stdout.close()


def _objects(value):
    """The calls of a request: itself, or the elements of a batch, nested ones included."""
    if isinstance(value, list):
        return [one for element in value for one in _objects(element)]
    return [value] if isinstance(value, dict) else []


def _methods(text, pairs=dict, is_strict=True):
    """The methods in the first value of a text, if it is valid."""
    try:
        value, end = json.JSONDecoder(object_pairs_hook=pairs, strict=is_strict).raw_decode(text)
    except (ValueError, RecursionError):
        return []
    if is_strict and text[end:].strip(" \t\r\n"):
        return []
    return [one.get("method") for one in _objects(value) if isinstance(one.get("method"), str)]


def nethermind(method, query, headers, body):
    """System.Text.Json: the last of two members; a name is trimmed, and its case may be folded."""
    text = body.decode("utf-8", "replace").lstrip(" \t\r\n\ufeff")
    names = _methods(text)
    return [name.strip().strip("\x85\xa0\u200b\u200d\ufeff\u00ad") for name in names]


def besu(method, query, headers, body):
    """Jackson with all features: the encoding by its zero bytes, comments, single quotes, bytes
    after the first value, the last of two members."""
    encodings = {(0, 0): "utf-32-be", (0, 1): "utf-16-be", (1, 0): "utf-16-le"}
    start = tuple(int(byte != 0) for byte in body[:2])
    text = body.decode(encodings.get(start, "utf-8"), "replace").lstrip("\ufeff")
    text = re.sub(r"/\*.*?\*/|//[^\n]*\n|#[^\n]*\n", "", text, flags=re.DOTALL).lstrip()
    found = _methods(text, is_strict=False)
    if "'" in text:
        found += _methods(text.replace("'", '"'), is_strict=False)
    return found


def reth(method, query, headers, body):
    """serde_json into a structure: a repeated member is an error, unknown ones are ignored."""

    def once(pairs):
        names = [name for name, _ in pairs if name in ("jsonrpc", "id", "method", "params")]
        return {} if len(names) != len(set(names)) else dict(pairs)

    try:
        return _methods(body.decode(), once)
    except UnicodeDecodeError:
        return []


def javascript(method, query, headers, body):
    """Express: the charset of the type, UTF-7 and UTF-16 included; then JSON.parse."""
    charset = re.search(r'charset\s*=\s*"?([\w-]+)', headers.get("content-type") or "", re.IGNORECASE)
    try:
        text = body.decode(charset[1] if charset else "utf-8", "replace")
    except LookupError:
        return []
    return _methods(text.lstrip("\ufeff"))


def form(method, query, headers, body):
    """A gateway that decodes forms by their type, and reads the query of a request without a
    body."""
    found = []
    if (headers.get("content-type") or "").lower().startswith("application/x-www-form-urlencoded"):
        found += _methods(urllib.parse.unquote_plus(body.decode("utf-8", "replace")))
    for name, value in [] if body else urllib.parse.parse_qsl(query):
        if name.lower() == "method":
            found.append(value)
        found += _methods(value)
    return found


def method_members(body):
    """The values of all members `method`, of any case and with blanks, in all texts in a row."""
    text, found = body.decode("utf-8", "replace").lstrip("\ufeff\0 \t\r\n"), []

    def members(pairs):
        found.extend(value for name, value in pairs if name.strip().casefold() == "method")
        return dict(pairs)

    decoder = json.JSONDecoder(object_pairs_hook=members, strict=False)
    while text:
        try:
            _, end = decoder.raw_decode(text)
        except (ValueError, RecursionError):
            break
        text = text[end:].lstrip(" \t\r\n,;")
    return found


def received_methods(origin):
    """The methods that any reader might find in the bodies that the node received."""
    return [method for request in origin.received() for method in method_members(request.body)]


def lenient_json(method, query, headers, body):
    """Everything that Python finds."""
    return [value for value in method_members(body) if isinstance(value, str)]


IN_PYTHON = {
    reader.__name__: reader for reader in (nethermind, besu, reth, javascript, form, lenient_json)
}


def is_denied(method):
    """Whether the rules `deny debug_* eth_sign` match, in any case."""
    folded = method.strip().casefold()
    return folded.startswith("debug_") or folded == "eth_sign"


JSON = "application/json"


def _call(method="debug_x", id="1", more=""):
    return f'{{"jsonrpc":"2.0","id":{id},"method":"{method}"{more}}}'


# reader that finds a denied method; method, query, type and body of the request
READINGS = [
    ("go", "POST", "", JSON, '{"jsonrpc":"2.0","id":1,"METHOD":"debug_x"}'),
    ("go", "POST", "", JSON, '{"jsonrpc":"2.0","id":1,"method":"eth_x","Method":"debug_x"}'),
    ("go", "POST", "", JSON, '{"jsonrpc":"2.0","id":1,"method":"eth_x","method":"debug_x"}'),
    ("go", "POST", "", JSON, '{"jsonrpc":"2.0","id":1,"m\\u0065thod":"debug_x"}'),
    ("go", "POST", "", JSON, _call("d\\u0065bug_x")),
    ("go", "POST", "", JSON, _call() + "}"),
    ("go", "POST", "", JSON, _call(more=',"x":1')),
    ("go", "POST", "", JSON, '{"id":1,"method":"debug_x"}'),
    ("go", "POST", "", JSON, _call(id="null", more=',"x":"\udcff"')),
    ("go", "GET", "method=debug_x&id=1", JSON, ""),
    ("go", "GET", "id=1&%6dethod=debug%5fx", JSON, ""),
    ("nethermind", "POST", "", JSON, _call("debug_x ")),
    ("nethermind", "POST", "", JSON, _call("\u00a0debug_x")),
    ("nethermind", "POST", "", JSON, _call("eth_sign\u2028")),
    ("nethermind", "POST", "", JSON, f"[{_call('eth_x')},{_call('eth_SIGN' + chr(0x3000))}]"),
    ("nethermind", "POST", "", JSON, "\ufeff" + _call()),
    ("besu", "POST", "", JSON, _call().encode("utf-16-be")),
    ("besu", "POST", "", JSON, _call().encode("utf-16-le")),
    ("besu", "POST", "", JSON, _call().encode("utf-32-be")),
    ("besu", "POST", "", JSON, "/* */" + _call()),
    ("besu", "POST", "", JSON, _call().replace('"', "'")),
    ("besu", "POST", "", JSON, _call() + _call("eth_x")),
    ("besu", "POST", "", JSON, _call(more=',"x":NaN')),
    ("reth", "POST", "", JSON, _call("debug\\u005fx")),
    ("reth", "POST", "", JSON, _call(more=',"extra":{}')),
    ("javascript", "POST", "", JSON + "; charset=utf-7", _call("+AGQ-ebug_x")),
    ("javascript", "POST", "", JSON + '; charset="utf-16le"', _call().encode("utf-16-le")),
    ("javascript", "POST", "", JSON, '{"jsonrpc":"2.0","method":"eth_x","method":"debug_x"}'),
    ("form", "POST", "", "application/x-www-form-urlencoded", _call("%64ebug_x")),
    ("form", "POST", "", "application/x-www-form-urlencoded",
     '{"jsonrpc":"2.0","method":"eth_x","id":"%22,%22method%22:%22debug_x"}'),
    ("form", "GET", 'request={"method":"debug_x"}', JSON, ""),
    ("lenient_json", "POST", "", JSON, '{"jsonrpc":"2.0","method ":"debug_x"}'),
    ("lenient_json", "POST", "", JSON, "[[" + _call() + "]]"),
]  # fmt: skip


def encoded(body):
    return body if isinstance(body, bytes) else body.encode("utf-8", "surrogateescape")


def any_request(chance):
    """A request that some node may read in another way: method, query, headers, body."""
    pick = chance.choice
    blanks = [""] * 30 + [" ", "\u00a0", "\u3000", "\x85", "\u2028", "\ufeff", "\u200b", "\t", "\\t", "\\u0020", "\x00", "\x7f"]
    names = ["eth_x", "eth_call", "eth_y", "debug_x", "debug_", "eth_sign", "eth_x", "eth_chainId", "DEBUG_x", "Eth_Sign", "eth_\u017fign", "d\\u0065bug_x",
             "debu\u0261_x", "%64ebug_x", "+AGQ-ebug_x", "eth_signTransaction", "", "null"]  # fmt: skip
    members = ["method", "method", "method", "Method", "METHOD", "m\\u0065thod", "method ", " method", "\u017fmethod",
               "id", "params", "jsonrpc", "calls", "__proto__"]  # fmt: skip

    def name():
        return f'"{pick(blanks)}{pick(names)}{pick(blanks)}"'

    def member():
        value = pick([name, name, name, lambda: pick(["1", "null", "{}", "[]", "true", f"[{call()}]", "NaN", "'x'"])])
        return f'"{pick(members)}"{pick(["", " "])}:{value()}'

    def call():
        if chance.random() < 0.85:
            id = pick(["1", "null", '"a"', '"%22,%22method%22:%22debug_x"', "-0", "{}"])
            more = "".join("," + member() for _ in range(pick([0, 0, 0, 0, 0, 1, 2])))
            version = pick(['"jsonrpc":"2.0",'] * 15 + ['"jsonrpc":"1.0",', ""])
            return f'{{{version}"id":{id},"method":{name()}{more}}}'
        return "{" + ",".join(member() for _ in range(pick([0, 1, 2, 3]))) + "}"

    text = pick([call, call, lambda: "[" + pick([",", ", ", ",,", ""]).join(call() for _ in range(pick([0, 1, 2, 3]))) + "]",
                 lambda: call() + pick(["", "\n", ",", "\0"]) + call(), lambda: "[[" + call() + "]]", lambda: "/**/" + call()])()  # fmt: skip
    body = (pick([""] * 20 + ["\ufeff", " ", "\0", ")]}',"]) + text + pick([""] * 20 + ["}", " ", "//", "\0"]))
    body = body.encode(pick(["utf-8"] * 30 + ["utf-16-le", "utf-16-be", "utf-32-le", "utf-16"]), "replace")
    if chance.random() < 0.1 and body:
        at = chance.randrange(len(body))
        body = body[:at] + bytes([chance.randrange(256)]) + body[at + pick([0, 1]) :]
    kind = pick([JSON] * 16 + ["text/plain", "", "application/json-rpc", "application/x-www-form-urlencoded",
                 "multipart/form-data; boundary=x", "application/json; charset=utf-7",
                 'application/json;charset="utf-16"', "application/json; charset=ISO-8859-1",
                 "application/json; Charset=utf-8"])  # fmt: skip
    method = pick(["POST"] * 10 + ["GET", "GET", "PUT", "DELETE"])
    query = pick([""] * 16 + ["method=debug_x", "id=1&Method=eth_sign", "m%65thod=debug_x", "request=" + urllib.parse.quote(text),
                  "key=1", "debug_x"])  # fmt: skip
    if method == "GET" and chance.random() < 0.7:
        body = b""
    headers = [("Content-Type", kind)] if kind else []
    if chance.random() < 0.03:
        headers.append(("Upgrade", pick(["h2c", "websocket", "TLS/1.0"])))
    return method, query, headers, body


class Readers:
    """All readers."""

    def __init__(self, cache):
        self.all = {"go": Go(cache), **IN_PYTHON}

    def denied(self, request):
        """Readers that find a denied method in a request at the node, with the method."""
        query = request.target.partition("?")[2]
        headers = {"content-type": request.header("Content-Type")}
        return [
            (name, method)
            for name, reader in self.all.items()
            for method in reader(request.method, query, headers, request.body)
            if isinstance(method, str) and is_denied(method)
        ]

    def close(self):
        self.all["go"].close()
