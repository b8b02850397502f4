"""Entries of an owner whose status, headers or length are invalid: on each host they are
misses, and counted."""

import itertools
import struct

import pytest

from harness import client
from harness.envoy import Envoy, route
from harness.nginx import Nginx
from harness.origin import answer
from harness.owner import wait_until_linked
from harness.rpc import call
from harness.sandbox import WasmEnvoy
from harness.status import read_status

NGINX = """
sszip on;
sszip_cache on;
sszip_cache_owner unix:%s;
sszip_cache_namespace main;
sszip_cache_valid immutable 1h;
proxy_http_version 1.1;
server {
    listen 127.0.0.1:@port@;
    add_header X-Key $sszip_cache_key always;
    location / { proxy_pass http://@origin@; }
    location = /status { sszip_status on; }
}
"""
SETTINGS = {"cache": True, "cache_namespace": "main", "cache_valid": "immutable 1h"}
# magic, length and flags precede an entry's head, which begins with the status
HEAD = 9
STATUS = b"\xc8\x01"
# headers of the stored response, as long as the forged ones
FIELDS = [
    ("X-Ten-Long", "value of mine"),
    ("X-Fourteen-Let", "12345678"),
    ("X-Seventeen-Lette", "identity"),
]
_numbers = itertools.count(1)


def number(value):
    """The number in the entries' encoding (LEB128)."""
    low, high = value & 0x7F, value >> 7
    return bytes([low | 0x80, high]) if high else bytes([low])


def forge_status(status):
    def forge(entry):
        (length,) = struct.unpack("<I", entry[4:8])
        assert entry[HEAD : HEAD + 2] == STATUS
        made = number(status)
        head = entry[:4] + struct.pack("<I", length + len(made) - 2) + entry[8:HEAD]
        return head + made + entry[HEAD + 2 :]

    return forge


def replaced(old, new):
    assert len(old) == len(new)

    def forge(entry):
        assert entry.lower().count(old.lower()) == 1
        at = entry.lower().index(old.lower())
        return entry[:at] + new + entry[at + len(old) :]

    return forge


def cut(entry):
    (length,) = struct.unpack("<I", entry[4:8])
    # the head alone, with the length of the decompressed body
    return entry[: HEAD + length]


FORGED = {
    **{str(status): forge_status(status) for status in (0, 100, 101, 103, 199, 204, 206, 304, 600, 999, 1224)},
    "a line feed in a value": replaced(b"value of mine", b"v\r\nX-Evil: 12"),
    "a zero in a value": replaced(b"value of mine", b"value\0of mine"),
    "a name that is none": replaced(b"x-ten-long", b"x ten long"),
    "Set-Cookie": replaced(b"x-ten-long", b"set-cookie"),
    "Connection": replaced(b"x-ten-long", b"connection"),
    "Content-Length": replaced(b"x-fourteen-let", b"content-length"),
    "Transfer-Encoding": replaced(b"x-seventeen-lette", b"transfer-encoding"),
    "no payload": cut,
}  # fmt: skip
# entries of calls have none of these headers
OF_FIELDS = [name for name, forge in FORGED.items() if forge.__qualname__.startswith("replaced")]


@pytest.fixture(scope="module")
def writer(daemon, session_origin):
    """An nginx that stores the entries to be forged, and returns their keys."""
    nginx = Nginx(NGINX % daemon.socket, origin=session_origin)
    nginx.owner = daemon
    nginx.start()
    wait_until_linked(nginx)
    yield nginx
    nginx.stop()


@pytest.fixture(scope="module", params=["nginx", "native", "wasm"])
def host(request, daemon, session_origin):
    if request.param == "nginx":
        host = Nginx(NGINX % daemon.socket, origin=session_origin)
        host.owner = daemon
    elif request.param == "native":
        settings = {**SETTINGS, "cache_owner": f"unix:{daemon.socket}"}
        host = Envoy([route("/")], origin=session_origin, settings=settings)
        host.owner = daemon
    else:
        host = WasmEnvoy([route("/")], origin=session_origin, owner=daemon, settings=SETTINGS)
    host.kind = request.param
    host.start()
    if host.kind != "wasm":
        wait_until_linked(host)
    yield host
    host.stop()


def invalid(host):
    """The number of entries that the host has counted as invalid."""
    if host.kind == "nginx":
        return entries_refused(read_status(host))
    return sum(host.stats(r"owner\.invalid_entries$").values())


def entries_refused(report):
    """The number, at any depth of the report."""
    if isinstance(report, dict):
        if "invalid_entries" in report:
            return report["invalid_entries"]
        found = [entries_refused(value) for value in report.values()]
        return next((value for value in found if value is not None), None)
    return None


def send(server, target, body):
    method = "GET" if body is None else "POST"
    headers = [] if body is None else [("Content-Type", "application/json")]
    with client.Connection(server.port) as connection:
        return connection.exchange(target, method=method, headers=headers, body=body)


class Stored:
    """An entry of the daemon that no host under test has requested."""

    def __init__(self, writer, origin, daemon, is_call):
        unique = next(_numbers)
        self.daemon = daemon
        if is_call:
            self.target, self.body = "/", call("eth_getBlockByHash", f'["0x{unique:064x}",true]')
            self.answer = b'{"jsonrpc":"2.0","id":1,"result":"0x%b"}' % (b"ab" * 2000)
            fields = []
        else:
            self.target, self.body = f"/{unique}", None
            self.answer = b'{"number":%d,"text":"%b"}' % (unique, b"ab" * 2000)
            fields = [("Cache-Control", "max-age=3600"), *FIELDS]
        origin.answers(answer(self.answer, headers=fields))
        self.key = send(writer, self.target, self.body).header("X-Key")
        writer.wait_for(lambda: self._get()[0] == 200, "the entry")
        _, self.fields, self.entry = self._get()

    def _get(self):
        return self.daemon.request("GET", f"/v1/entries/{self.key}")

    def put(self, entry):
        fields = {
            "sszip-generation": self.fields["sszip-generation"],
            "sszip-fresh": "3600000",
            "sszip-class": self.fields["sszip-class"],
            "sszip-namespace": "00" * 16,
        }
        status, _, body = self.daemon.request("PUT", f"/v1/entries/{self.key}", entry, fields)
        assert status == 201, body


CASES = [(name, False) for name in FORGED] + [(name, True) for name in FORGED if name not in OF_FIELDS]


@pytest.mark.parametrize("name, is_call", CASES, ids=lambda value: str(value))
def test_invalid_entry_is_a_miss_and_counted(host, writer, origin, daemon, name, is_call):
    stored = Stored(writer, origin, daemon, is_call)
    stored.put(FORGED[name](stored.entry))
    before = invalid(host)
    response = send(host, stored.target, stored.body)
    assert response.status == 200
    assert response.decoded == stored.answer
    assert "hit" not in response.header("Cache-Status")
    assert response.header("X-Evil") is None and response.header("Set-Cookie") is None
    host.wait_for(lambda: invalid(host) == before + 1, "it to be counted")


@pytest.mark.parametrize("is_call", [False, True])
def test_unchanged_entry_is_a_hit(host, writer, origin, daemon, is_call):
    stored = Stored(writer, origin, daemon, is_call)
    stored.put(stored.entry)
    before = invalid(host)
    origin.answers(answer(b"nobody asks", status=599))
    # a late lookup is repeated: the node's 599 is not stored
    host.wait_for(lambda: send(host, stored.target, stored.body).decoded == stored.answer, "a hit")
    assert "; hit" in send(host, stored.target, stored.body).header("Cache-Status")
    assert invalid(host) == before
