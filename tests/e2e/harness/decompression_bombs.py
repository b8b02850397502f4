"""Bodies of some hundred kilobytes that decode to 400 megabytes (128 in `make test`), from the node
and from clients, in each coding that sszip decodes: a host's process grows by no more than `memory` and
ROOM, and each client receives a response."""

import functools
import json
import pathlib
import threading
import zlib
from dataclasses import dataclass

from .nginx import peak
from .origin import answer
from .rpc import call
from tiers import times

MEMORY = 64 << 20
# memory of the host: connection buffers, encoders, the hot tier, the allocator's reserve
ROOM = 32 << 20
# longer than both together
LENGTH = times(128, 400) << 20
CLIENTS = 4

SETTINGS = {"cache": "on", "memory": "64m"}
# Settings of each path: where bodies are decoded, and up to which length.
PATHS = {
    # to be stored
    "/short/": {"cache_namespace": "short", "cache_max_entry": "1m"},
    "/long/": {"cache_namespace": "long", "cache_max_entry": "512m", "max_oneshot": "512m"},
    # to be measured, merged or looked up
    "/bounded/": {"cache_namespace": "bounded", "max_answer": ["eth_getCode 512m"], "max_oneshot": "512m"},
    "/policy/": {"cache_namespace": "policy", "method": ["deny debug_*"], "cache_max_request": "64m"},
    # to be passed to a node that takes no codings
    "/decoded/": {"request_decoding": "always", "max_oneshot": "512m"},
    # to be transcoded
    "/eth/": {"ssz": "on", "ssz_preset": "mainnet", "ssz_request": "always", "ssz_max_size": "512m"},
}
JSON = "application/json"
OCTETS = "application/octet-stream"
CONSOLIDATIONS = "/eth/v1/beacon/states/9/pending_consolidations"
REGISTRATIONS = "/eth/v1/validator/register_validator"
ENTRY = b'{"source_index":"1","target_index":"1"}'


@functools.cache
def compressed_body(coding, head, unit, tail):
    """The head, LENGTH bytes of units and the tail."""
    return {"gzip": _gzip, "zstd": _zstd}[coding](head, unit, tail)


def _gzip(head, unit, tail):
    coder = zlib.compressobj(9, wbits=31)
    units = unit * ((1 << 20) // len(unit))
    parts = [coder.compress(head)]
    parts += [coder.compress(units) for _ in range(LENGTH // len(units))]
    return b"".join([*parts, coder.compress(tail), coder.flush()])


def _zstd(head, unit, tail):
    """Blocks that repeat one byte (RFC 8878, 3.1.1.2.3), after a window of 128 KiB."""
    most, raw, repeated = 128 << 10, 0, 1
    (byte,) = unit

    def block(kind, length, body, is_last=False):
        return (length << 3 | kind << 1 | is_last).to_bytes(3, "little") + body

    frame = b"\x28\xb5\x2f\xfd\x00\x38" + block(raw, len(head), head)
    frame += block(repeated, most, bytes([byte])) * (LENGTH // most)
    return frame + block(raw, len(tail), tail, is_last=True)


@dataclass(frozen=True)
class DecompressionBomb:
    """A compressed body of the node, or of the client if `is_request`."""

    name: str
    target: str
    coding: str
    parts: tuple
    # statuses that a client may receive
    statuses: frozenset
    # makes a client's body from its number; None: clients send none
    body: object = None
    headers: tuple = ()
    type: str = JSON
    is_request: bool = False
    # clients receive the body unchanged
    is_whole: bool = False


def get_code(number):
    return call("eth_getCode", json.dumps([f"0x{number:040x}", "0x1"]))


def denied_and_code(number):
    return b"[%b,%b]" % (call("debug_x", id="1"), get_code(number).replace(b'"id":1', b'"id":2'))


def _bombs():
    result = (b'{"jsonrpc":"2.0","id":1,"result":"0x', b"0", b'"}')
    element = (b'[{"jsonrpc":"2.0","id":2,"result":"0x', b"0", b'"}]')
    request = (b'{"jsonrpc":"2.0","id":1,"method":"eth_getCode","params":["0x', b"0", b'"]}')
    entries = (b'{"version":"electra","data":[' + ENTRY, b"," + ENTRY, b"]}")
    zeros = (b"", b"\0", b"")
    refusals = frozenset((400, 413, 415, 503))
    for coding in ("gzip", "zstd"):
        for path in ("/short/", "/long/", "/bounded/"):
            for accept in ("gzip", "identity"):
                yield DecompressionBomb(
                    f"answer {coding} {path} {accept}", path, coding, result, frozenset((200,)),
                    get_code, (("Accept-Encoding", accept),), is_whole=path != "/bounded/",
                )  # fmt: skip
        yield DecompressionBomb(f"batch {coding}", "/policy/", coding, element, frozenset((200,)), denied_and_code)
        yield DecompressionBomb(
            f"json {coding}", CONSOLIDATIONS, coding, entries if coding == "gzip" else result,
            frozenset((200, 406, 502, 503)), headers=(("Accept", OCTETS),),
        )  # fmt: skip
        yield DecompressionBomb(
            f"ssz {coding}", CONSOLIDATIONS, coding, zeros,
            frozenset((200, 406, 502, 503)), headers=(("Accept", JSON),), type=OCTETS,
        )  # fmt: skip
        for path in ("/short/", "/policy/", "/decoded/"):
            yield DecompressionBomb(
                f"request {coding} {path}", path, coding, request, refusals | {200}, is_request=True
            )
        yield DecompressionBomb(
            f"request ssz {coding}", REGISTRATIONS, coding, zeros, refusals | {200},
            type=OCTETS, is_request=True,
        )  # fmt: skip


BOMBS = list(_bombs())


def baseline_memory(host, pid, origin):
    """The initial memory of the process in KiB, after one request."""
    origin.answers(answer(b'{"jsonrpc":"2.0","id":1,"result":"0x"}'))
    with host.connect() as connection:
        headers = [("Content-Type", JSON)]
        connection.exchange("/short/", method="POST", headers=headers, body=get_code(1 << 40))
    return peak(pid)


def run(host, pid, origin, bomb, base):
    """Runs CLIENTS at once, each with its own call."""
    body = compressed_body(bomb.coding, *bomb.parts)
    fields = [("Content-Encoding", bomb.coding)]
    if bomb.is_request:
        origin.answers(answer(b'{"jsonrpc":"2.0","id":1,"result":"0x"}'))
    else:
        fields = [("Eth-Consensus-Version", "electra"), *fields]
        origin.answers(answer(body, type=bomb.type, headers=fields))
    # the peak is measured from here on
    pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")
    failures = []

    def send(number):
        headers = [*bomb.headers]
        target, sent = bomb.target, None
        if bomb.is_request:
            headers += [("Content-Type", bomb.type), ("Content-Encoding", bomb.coding)]
            sent = body
        elif bomb.body:
            headers.append(("Content-Type", JSON))
            sent = bomb.body(number)
        else:
            target += f"?n={number}"
        method = "GET" if sent is None else "POST"
        try:
            with host.connect(timeout=120) as connection:
                response = connection.exchange(target, method=method, headers=headers, body=sent)
            assert response.status in bomb.statuses
            assert not bomb.is_whole or response.body == body
        except Exception as error:  # raised below
            failures.append(repr(error))

    threads = [threading.Thread(target=send, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    grown = (peak(pid) - base) << 10
    print(f"{bomb.name}: {grown / (1 << 20):.1f} MB")
    assert not failures, failures
    assert grown <= MEMORY + ROOM, f"{grown >> 20} MB"
