"""Values that the specifications' own code writes, for tests that run in another Python: a line
of JSON for each fork, and each type that is named, or all types.

specified_values.py [--safe] [--forks=FORK,...] PRESET [TYPE...]

--safe: no number is larger than JavaScript can represent.
"""

import json
import sys

import faster  # noqa: F401
import specs
import values

arguments = sys.argv[1:]
limit, forks = None, specs.FORKS
while arguments[0].startswith("--"):
    option, _, value = arguments.pop(0).partition("=")
    if option == "--safe":
        limit = values.SAFE
    else:
        forks = value.split(",")
preset, *names = arguments
for fork in forks:
    types = specs.types_of(fork, preset)
    for name in names or types:
        if name not in types:
            continue
        value = values.value(values.source(fork, preset, name), types[name], values.MODES[0], number_limit=limit)
        line = {
            "fork": fork,
            "type": name,
            "data": specs.json_of(value),
            "ssz": value.encode_bytes().hex(),
            "root": f"0x{bytes(value.hash_tree_root()).hex()}",
        }
        print(json.dumps(line))
