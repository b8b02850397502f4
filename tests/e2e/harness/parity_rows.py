"""The rows of the parity table on an Envoy: a route, or a host name, for each set of
settings that they use."""

import itertools

from . import response_checks, sequences
from .envoy import route

# The host measures the window's time; the table limits its bytes.
_HOLD = {"hold": "64k 60s"}
_runs = itertools.count(1)


class Cases:
    def __init__(self, cases):
        self.places = {}
        for case in cases:
            self.places.setdefault(_of(case), f"/config-{len(self.places)}/")

    def routes(self):
        return [route(path, {**_HOLD, **dict(config)}) for config, path in self.places.items()]

    def run(self, envoy, origin, case, division):
        origin.answers(case.script(division(case)))
        response = response_checks.exchange(envoy, self.places[_of(case)], case)
        response_checks.check_response(case, response, origin)
        return response


class Sequences:
    """Runs of sequences with a host name each, so that entries of one run are not hits of
    another."""

    def __init__(self, rows):
        self.names = {}
        for row in rows:
            self.names.setdefault(_of(row), f"config-{len(self.names)}.test")

    def hosts(self):
        settings = {"cache": "on", "ssz_preset": "mainnet", **_HOLD}
        return [
            {
                "name": name,
                "domains": [f"*.{name}"],
                "routes": [route("/", {**settings, **dict(config)})],
            }
            for config, name in self.names.items()
        ]

    def run(self, envoy, origin, row, division):
        name = f"run-{next(_runs)}.{self.names[_of(row)]}"
        return sequences.run(envoy, origin, row, division, name)


def _of(row):
    return tuple(sorted(row.config.items()))
