"""Values as the specifications' own code writes them, for tests that run in
another Python: a line of JSON for each fork and type that is named.

answers.py [--safe] PRESET TYPE...

--safe: no number is larger than JavaScript can hold.
"""

import json
import sys

import faster  # noqa: F401
import specs
import values

is_safe = sys.argv[1] == "--safe"
preset, *names = sys.argv[1 + is_safe :]
limit = values.SAFE if is_safe else None
for fork in specs.FORKS:
    types = specs.of(fork, preset)
    for name in names:
        if name not in types:
            continue
        value = values.value(values.source(fork, preset, name), types[name], values.MODES[0], number_limit=limit)
        line = {"fork": fork, "type": name, "data": specs.json_of(value), "ssz": value.encode_bytes().hex()}
        print(json.dumps(line))
