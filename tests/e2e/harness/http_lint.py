"""REDbot, which checks a resource's HTTP with several requests, and reports good and bad
properties. Run as a program, since its event loop belongs to the process."""

import email.utils
import json
import os
import subprocess
import sys

from .origin import chunked, head

LEVELS = ("bad", "warning")


def lint_messages(requests):
    """The notes on each address, requested with these headers: levels and texts by name."""
    done = subprocess.run(
        [sys.executable, "-m", "harness.http_lint"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def notes_of_level(notes, *levels):
    return {name: text for name, (level, text) in notes.items() if level in levels}


def is_explained(note):
    """Whether the note compares lists in different orders, as a hit may have after a miss."""
    if type(note).__name__ != "VARY_INCONSISTENT":
        return False
    varies = (note.vars[name].lower() for name in ("conneg_vary", "no_conneg_vary"))
    return len({frozenset(one.split(", ")) for one in varies}) == 1


def main():
    import configparser

    import thor
    from redbot.resource import HttpResource

    config = configparser.ConfigParser()
    config.read_dict({"redbot": {"enable_local_access": "True"}})
    requests, results = json.load(sys.stdin), []

    def next_one():
        if len(results) == len(requests):
            return thor.stop()
        address, fields = requests[len(results)]
        resource = HttpResource(config["redbot"])
        resource.set_request(address, headers=[tuple(field) for field in fields])

        def done():
            found = {}
            assert resource.response.complete, (address, resource.fetch_error)
            for note in resource.response.notes:
                for one in (note, *note.subnotes):
                    if is_explained(one):
                        continue
                    found[type(one).__name__] = (one.level.value, str(one.summary))
            results.append(found)
            thor.schedule(0, next_one)

        resource.once("check_done", done)
        resource.check()

    thor.schedule(0, next_one)
    thor.run()
    json.dump(results, sys.stdout)


class Resource:
    """A resource of a good node, with validators and ranges."""

    def __init__(self, body, type, *, fields=(), framing="length", etag=None, ranges=False):
        self.body, self.framing, self.etag, self.ranges = body, framing, etag, ranges
        self.fields = [("Content-Type", type), *fields]

    def __call__(self, request):
        fields = [("Date", email.utils.formatdate(usegmt=True)), *self.fields]
        if self.etag:
            fields.append(("ETag", self.etag))
            etag = (request.header("If-None-Match") or "").replace("W/", "")
            if etag == self.etag.replace("W/", ""):
                return [head(304, [one for one in fields if one[0] != "Content-Type"])]
        body, status = self.body, 200
        if self.ranges:
            fields.append(("Accept-Ranges", "bytes"))
            unit, _, byte_range = (request.header("Range") or "").partition("=")
            if unit == "bytes":
                first, last = (int(number) for number in byte_range.split("-"))
                body, status = body[first : last + 1], 206
                fields.append(("Content-Range", f"bytes {first}-{last}/{len(self.body)}"))
        if self.framing == "length":
            fields.append(("Content-Length", str(len(body))))
            pieces = [body]
        else:
            fields.append(("Transfer-Encoding", "chunked"))
            pieces = chunked([body[at : at + 5000] for at in range(0, len(body), 5000)])
        return [head(status, fields), *([] if request.method == "HEAD" else pieces)]


FRESH = [("Cache-Control", "max-age=60")]
ELECTRA = [("Eth-Consensus-Version", "electra")]
PAGE = b"<!DOCTYPE html><title>a page</title><p>" + b"some text of it, " * 600
VALUE = {"version": "electra", "execution_optimistic": False, "finalized": True}
VALUE = {**VALUE, "data": [{"source_index": "1", "target_index": "515"}] * 600}
VALUE = json.dumps(VALUE).encode()
GENESIS = json.dumps({"data": {"genesis_time": "1606824023", "more": "0x" + "ab" * 3000}}).encode()
JSON, OCTETS = "application/json", "application/octet-stream"
CONSOLIDATIONS = "/eth/v1/beacon/states/7/pending_consolidations"
RESOURCES = {
    "/page": Resource(PAGE, "text/html", fields=FRESH, etag='"one"', ranges=True),
    "/page-in-pieces": Resource(PAGE, "text/html", framing="chunked", etag='W/"two"'),
    "/state.json": Resource(VALUE, JSON, fields=FRESH, etag='"three"'),
    "/not-stored.json": Resource(VALUE, JSON, fields=[("Cache-Control", "no-store")]),
    "/eth/v1/beacon/genesis": Resource(GENESIS, JSON),
    CONSOLIDATIONS: Resource(VALUE, JSON, fields=ELECTRA),
    f"{CONSOLIDATIONS}?in=pieces": Resource(VALUE, JSON, fields=ELECTRA, framing="chunked"),
}
# resources and the headers of their requests
ASKED = [
    *((target, []) for target in RESOURCES),
    *((target, [("Accept", OCTETS)]) for target in RESOURCES if target.startswith(CONSOLIDATIONS)),
]


def node(request):
    return RESOURCES[request.target](request)


# A server may ignore Range (RFC 9110, 14.2): stored responses are sent whole.
EXPLAINED = {"/cached": {"RANGE_FULL", "RANGE_CORRECT"}}


def faults(origin, port, places):
    """Notes that are worse than the node's own; each route is requested twice."""
    # the node has JSON only
    direct = lint_messages([(f"http://{origin.address}{target}", fields) for target, fields in ASKED])
    assert all("CONNEG_GZIP_GOOD" not in one for one in direct), direct
    found = []
    for place in places:
        requests = [(f"http://127.0.0.1:{port}{place}{target}", fields) for target, fields in ASKED]
        for turn, messages in enumerate((lint_messages(requests), lint_messages(requests))):
            for (target, fields), there, here in zip(ASKED, direct, messages, strict=True):
                about = (place, turn, target, fields)
                known = notes_of_level(there, *LEVELS)
                worse = {name: text for name, text in notes_of_level(here, *LEVELS).items() if name not in known}
                lost = {name: text for name, text in notes_of_level(there, "good").items() if name not in here}
                coded = {} if "CONNEG_GZIP_GOOD" in notes_of_level(here, "good") else {"not coded": ""}
                known = EXPLAINED.get(place, ())
                found += [
                    (*about, *one)
                    for one in {**worse, **lost, **coded}.items()
                    if one[0] not in known
                ]
    return found


if __name__ == "__main__":
    main()
