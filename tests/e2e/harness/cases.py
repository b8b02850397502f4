"""The parity table (tests/cases), read with its defaults filled in."""

import os
import pathlib
import tomllib
from dataclasses import dataclass

from . import bodies
from .origin import CLOSE, answer, encoded

DIRECTORY = pathlib.Path(__file__).resolve().parents[2] / "cases"
_KNOWN = {
    "case": {"name", "why", "hosts", "config", "request", "response", "expect"},
    "request": {"method", "version", "headers"},
    "response": {"status", "headers", "body", "framing", "coding", "cut_at"},
    "expect": {
        "mode",
        "status",
        "coding",
        "length",
        "headers",
        "absent",
        "upstream",
        "upstream_absent",
    },
}


@dataclass
class Case:
    name: str
    config: dict
    request: dict
    response: dict
    expect: dict

    @property
    def plain(self):
        """The node's body before compression."""
        return bodies.generate(self.response["body"])

    @property
    def sent(self):
        """The node's body as it is sent."""
        coding = self.response.get("coding")
        return encoded(self.plain, coding) if coding else self.plain

    @property
    def streamed_coding(self):
        """The coding of a body that is compressed as a stream, because its length is unknown."""
        accept = ", ".join(v for k, v in self.request["headers"] if k.lower() == "accept-encoding")
        if self.expect["coding"] != "identity":
            return self.expect["coding"]
        return "zstd" if self.config.get("zstd") == "on" and "zstd" in accept else "gzip"

    @property
    def is_encoded_by_node(self):
        codings = [v for k, v in self.response["headers"] if k.lower() == "content-encoding"]
        return bool(self.response.get("coding")) or any(coding != "identity" for coding in codings)

    @property
    def refuses_identity(self):
        accept = [v for k, v in self.request["headers"] if k.lower() == "accept-encoding"]
        return any(member in ", ".join(accept) for member in ("identity;q=0", "*;q=0"))

    @property
    def has_body(self):
        return self.request["method"] != "HEAD" and self.response["status"] not in (204, 304)

    def script(self, division):
        """The node's response, cut into pieces by `division(head, rest)`."""
        steps = answer(
            self.plain,
            status=self.response["status"],
            headers=[tuple(line) for line in self.response["headers"]],
            type=None,
            framing=self.response["framing"],
            coding=self.response.get("coding"),
            cut_at=self.response.get("cut_at"),
            method=self.request["method"],
        )
        pieces = [step for step in steps if step is not CLOSE]
        return division(pieces[0], b"".join(pieces[1:])) + [step for step in steps if step is CLOSE]


def _fill(raw):
    for part, known in _KNOWN.items():
        section = raw if part == "case" else raw.get(part, {})
        if unknown := set(section) - known:
            raise ValueError(f"{raw.get('name')}: {part} has {unknown}")
    response = {
        "status": 200,
        "headers": [["Content-Type", "application/json"]],
        "body": "json:30000",
        **raw.get("response", {}),
    }
    response.setdefault("framing", "none" if response["status"] in (204, 304) else "length")
    return Case(
        raw["name"],
        raw.get("config", {}),
        {
            "method": "GET",
            "version": "1.1",
            "headers": [["Accept-Encoding", "gzip"]],
            **raw.get("request", {}),
        },
        response,
        {
            "coding": "identity",
            "length": "exact",
            "status": response["status"],
            **raw.get("expect", {}),
        },
    )


def load(host):
    cases = []
    for path in sorted(DIRECTORY.glob("*.toml")):
        with open(path, "rb") as file:
            table = tomllib.load(file).get("case", [])
        cases += [_fill(raw) for raw in table if host in raw.get("hosts", [host])]
    names = [case.name for case in cases]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"named twice: {twice}")
    return [case for case in cases if is_wanted(case.name)]


def is_wanted(name):
    """Whether SSZIP_ROW (see `make row`) wants this row: it has all its words, or there is none."""
    words = os.environ.get("SSZIP_ROW", "").lower().split()
    return all(word in name.lower() for word in words)
