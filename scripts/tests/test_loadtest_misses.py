"""Misses that a load test calls stored are stored: the methods of its calls, and the check of its servers.

`make test` runs no load test.
"""

import json
import pathlib
import re
import sys
import tempfile
import threading
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
METHOD_TABLE = ROOT / "shared-core/src/jsonrpc/method_table.rs"
PLAUSIBILITY = ROOT / "shared-core/src/jsonrpc/plausible.rs"
sys.path[:0] = [str(ROOT / "loadtest/lib"), str(ROOT / "loadtest/bench")]

import caching  # noqa: E402
import caching_bodies  # noqa: E402
import check  # noqa: E402
import marked_calls  # noqa: E402
from bodies import Library  # noqa: E402
from caches import FRESH, Row, miss_rows  # noqa: E402
from stack import Coder  # noqa: E402

ANSWER = {"jsonrpc": "2.0", "id": 1, "result": "0x" + "12" * 2_000}
OTHER_ANSWER = {"jsonrpc": "2.0", "id": 1, "result": [{"blockHash": "0x" + "34" * 32}]}


class Server:
    """An HTTP server in place of nginx, whose responses have a `Cache-Status` by the times that the same
    request was sent before."""

    def __init__(self, statuses):
        self.statuses, self.requests = statuses, []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                request = self.rfile.read(int(self.headers["Content-Length"]))
                times = outer.requests.count(request)
                outer.requests.append(request)
                text = json.dumps(ANSWER).encode()
                self.send_response(200)
                self.send_header("Cache-Status", outer.statuses[min(times, len(outer.statuses) - 1)])
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.http.server_address[1]
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,))
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


class StoredMethods(unittest.TestCase):
    def test_responses_of_the_methods_are_stored_whatever_block_they_show(self):
        rows = dict(re.findall(r'new_method_table_row\("(\w+)", (.+)\),', METHOD_TABLE.read_text()))
        for method in marked_calls.STORED_METHODS:
            self.assertEqual(rows[method], "Immutable, block_hash_in_param(0), NO_RESULT_BLOCK", method)
            self.assertNotIn(f'"{method}"', PLAUSIBILITY.read_text())

    def test_call_of_a_group_has_a_method_of_its_own(self):
        self.assertGreaterEqual(len(set(marked_calls.STORED_METHODS)), caching.PER_GROUP)
        self.assertGreaterEqual(len(set(marked_calls.STORED_METHODS)), len(marked_calls.SOURCES))


class Calls(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)

    def assert_stored_calls(self, folder, calls, answers):
        """Checks that calls have methods of STORED_METHODS and another block in each request, and that the
        node's folder has their responses."""
        pairs = [json.loads(file.read_text())[0] for file in folder.iterdir()]
        found = {pair["request"]["method"]: pair["response"] for pair in pairs}
        self.assertEqual([found[call.method] for call in calls], answers)
        self.assertEqual([call.method for call in calls], list(marked_calls.STORED_METHODS[: len(calls)]))
        for call in calls:
            first, second = (json.loads(call.request(digits)) for digits in (b"123456789", b"123456790"))
            self.assertEqual((first["method"], first["id"]), (call.method, 123456789))
            self.assertRegex(first["params"][0], "^0x[0-9a-f]{64}$")
            self.assertNotEqual(first["params"], second["params"])

    def test_unique_calls_have_methods_whose_responses_are_stored(self):
        library = Library(self.work / "chosen")
        methods = ["eth_getBlockByHash", "eth_getBlockByHash", "eth_getBlockReceipts", "eth_getLogs"]
        answers = [ANSWER | {"result": f"0x{n}"} for n in range(len(methods))]
        chosen = [
            library.add(f"{n}", {"request": {"id": 1, "method": method, "params": []}, "response": answer}, "30 KB")
            for n, (method, answer) in enumerate(zip(methods, answers, strict=True))
        ]
        batch = {"request": [{"id": 1, "method": "eth_chainId", "params": []}], "response": [ANSWER]}
        chosen.insert(0, library.add("batch", batch, "30 KB"))
        for count, expected in ((4, [answers[0], answers[2], answers[3]]), (1, answers[:1])):
            (group, (folder, calls)), = caching_bodies.unique_calls(chosen, self.work, count).items()
            self.assertEqual(group, "30 KB")
            self.assert_stored_calls(folder, calls, expected)

    def test_calls_of_the_store_have_methods_whose_responses_are_stored(self):
        pairs = [
            ("logs", {"request": {"id": 1, "method": "eth_getLogs", "params": [{}]}, "response": OTHER_ANSWER}),
            ("block", {"request": {"id": 1, "method": "debug_getRawBlock", "params": []}, "response": ANSWER}),
        ]
        folder, calls = marked_calls.stored_calls(pairs, self.work, 3)
        self.assert_stored_calls(folder, calls, [ANSWER, OTHER_ANSWER])


class Verification(unittest.TestCase):
    def setUp(self):
        pause = mock.patch.object(check, "PAUSE_SECONDS", 0)
        pause.start()
        self.addCleanup(pause.stop)

    def verify(self, statuses, directives="sszip on; sszip_cache on;", misses=True):
        """Starts a row's servers, which verifies them, and returns the requests to the row's server."""
        with tempfile.TemporaryDirectory() as work, Server(statuses) as server, Server([""]) as plain:
            library = Library(pathlib.Path(work))
            params = [marked_calls.block_hash()]
            call = marked_calls.written(library, "one", "30 KB", marked_calls.STORED_METHODS[0], params, ANSWER)
            row = Row(Coder("row", directives, "", accept=""), FRESH)
            with mock.patch.object(caching, "Nginx", side_effect=[server, plain]):
                caching.Servers(work, mock.Mock(port=0), [row], [call], misses)
            return server.requests

    def test_repeated_miss_that_is_no_hit_is_an_error(self):
        for status in ("sszip; fwd=miss", "sszip; fwd=uri-miss; detail=x", "", "sszip; hit; ttl=-3", "sszip; hit; ttl=0"):
            with self.assertRaisesRegex(check.WrongAnswer, "row, one: .* not stored"):
                self.verify([status])

    def test_repeated_miss_may_be_stored_some_time_after_its_response(self):
        requests = self.verify(["sszip; fwd=miss"] * 3 + ["sszip; hit; ttl=3600"])
        self.assertEqual(requests.count(requests[-1]), 4)

    def test_rows_without_a_cache_and_hits_are_not_checked(self):
        for arguments in ({"directives": "sszip on;"}, {"misses": False}):
            requests = self.verify(["sszip; fwd=miss"], **arguments)
            self.assertEqual(len(requests), len(set(requests)))

    def test_row_of_misses_has_a_cache_if_its_name_contains_it(self):
        self.assertEqual([row.has_cache for row in miss_rows()], ["cache on" in row.name for row in miss_rows()])
        self.assertIn(True, [row.has_cache for row in miss_rows()])


if __name__ == "__main__":
    unittest.main()
