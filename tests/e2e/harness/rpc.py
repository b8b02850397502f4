"""A node with JSON-RPC: it responds by method, with the id of the call, and counts its
calls."""

import json
import re
import threading

from .origin import answer

from harness.guards import GUARD_SECONDS


class Node:
    """`origin.answers(node)`. `results[method]` is the raw JSON of the result, or a callable of
    the params; `members` is the order of a response's members."""

    def __init__(self, results, members=("jsonrpc", "id", "result"), newline=b"\n", **options):
        self.results = results
        self.members = members
        self.newline = newline
        self.options = options
        self.gates = {}
        self.reverses = False
        self.received_calls = []
        self._lock = threading.Lock()

    def count(self, method=None):
        with self._lock:
            return len([call for call in self.received_calls if method in (None, call["method"])])

    def __call__(self, request):
        calls = json.loads(request.body)
        with self._lock:
            self.received_calls += calls if isinstance(calls, list) else [calls]
        if isinstance(calls, list):
            answers = [self.body(call, None) for call in calls if "id" in call]
            body = b"[" + b",".join(answers[::-1] if self.reverses else answers) + b"]"
        else:
            if gate := self.gates.get(calls["method"]):
                gate.wait(GUARD_SECONDS)
            # the id in its original notation, not in Python's
            raw = re.search(rb'"id"\s*:\s*("(?:[^"\\]|\\.)*"|[^,}\s]+)', request.body)
            body = self.body(calls, raw and raw[1])
        return answer(body + self.newline, **self.options)

    def body(self, call, raw_id):
        result = self.results.get(call["method"])
        if callable(result):
            result = result(call.get("params"))
        raw_id = raw_id if raw_id is not None else json.dumps(call["id"]).encode()
        values = {"jsonrpc": b'"2.0"', "id": raw_id}
        if result is None:
            values["error"] = b'{"code":-32601,"message":"the method does not exist"}'
        else:
            values["result"] = result
        members = [name if name in values else "error" for name in self.members]
        return (
            b"{" + b",".join(b'"%b":%b' % (name.encode(), values[name]) for name in members) + b"}"
        )


def call(method, params="[]", id="1"):
    return b'{"jsonrpc":"2.0","id":%b,"method":"%b","params":%b}' % (
        id.encode(),
        method.encode(),
        params.encode(),
    )
