"""Split batches against random nodes, on nginx."""

import pytest

from harness import split_batches

pytestmark = pytest.mark.carried("the core decides what becomes of a batch")


def location(path, settings):
    lines = []
    for name, values in {**split_batches.SETTINGS, **settings}.items():
        for value in values if isinstance(values, list) else [values]:
            lines.append(f"sszip_{name} {value};")
    return f"location {path} {{ {' '.join(lines)} proxy_pass http://@origin@; }}"


LOCATIONS = "\n".join(location(*one) for one in split_batches.PATHS.items())
CONFIG = f"""
proxy_http_version 1.1;
sszip on;
server {{
    listen 127.0.0.1:@port@;
    {LOCATIONS}
}}
"""


def test_each_call_has_one_answer_whatever_the_node_sends(start_nginx, origin, cache_directory):
    nginx = start_nginx(CONFIG, workers=1)
    split_batches.run_all(nginx, origin, split_batches.parsers(cache_directory))
