"""Values as the specifications' own code writes them, for tests that run in
another Python: a line of JSON for each fork and type that is named.

answers.py PRESET TYPE...
"""

import json
import sys

import faster  # noqa: F401
import specs
import values

preset, *names = sys.argv[1:]
for fork in specs.FORKS:
    types = specs.of(fork, preset)
    for name in names:
        if name not in types:
            continue
        value = values.value(values.source(fork, preset, name), types[name], values.MODES[0])
        line = {"fork": fork, "type": name, "data": specs.json_of(value), "ssz": value.encode_bytes().hex()}
        print(json.dumps(line))
