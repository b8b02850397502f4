"""Large answers through Envoy, as the wire suite asks for them: plain, and as SSZ."""

from dataclasses import replace

import wire_large
import wire_values
from proxying_stack import PLAIN, Envoy, sszip
from wire_large import DIRECT, Row
from wire_values import SSZ

MEGABYTES = [100, 300]
OURS = sszip("sszip", ssz=True, ssz_max_size="2048m", memory="4096m")
PROXY = "Envoy, no filter"
ROWS = [
    Row(DIRECT, None),
    Row(PROXY, PLAIN),
    Row("sszip, JSON", OURS),
    Row("sszip, JSON, gzip", OURS, accept="gzip"),
    Row(wire_large.SSZ_ROW, OURS, SSZ),
    Row(f"{wire_large.SSZ_ROW}, gzip", OURS, SSZ, "gzip"),
]


def start(work, row, upstream):
    return Envoy(work, replace(row.coder, name=row.name), upstream, core=None)


def run(work, quick, say):
    client = wire_values.Client(work, quick, say)
    small = work / "small" / f"{wire_large.VERSION[1:]}.json"
    small.parent.mkdir(parents=True)
    small.write_text('{"data":{"version":"node/v1"}}')
    out = []
    for megabytes in [8] if quick else MEGABYTES:
        for coupled in (False, True):
            body = wire_values.witness(work, megabytes, coupled=coupled)
            rounds = 1 if quick else 5
            out.append(wire_large.run(client, work, body, rounds, say, ROWS, start))
            wire_large.forget(body)
    return out
