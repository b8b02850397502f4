"""Bodies that decode to hundreds of megabytes: the memory of nginx's worker stays bounded."""

import pytest

from harness import bombs

pytestmark = pytest.mark.bare


def location(path, settings):
    lines = []
    for name, values in {**bombs.SETTINGS, **settings}.items():
        for value in values if isinstance(values, list) else [values]:
            lines.append(f"sszip_{name} {value};")
    return f"location {path} {{ {' '.join(lines)} proxy_pass http://@origin@; }}\n"


CONFIG = f"""
sszip on;
sszip_cache_memory 8m;
proxy_http_version 1.1;
client_max_body_size 16m;
server {{
    listen 127.0.0.1:@port@;
    {"".join(location(*one) for one in bombs.PATHS.items())}
}}
"""


@pytest.fixture(scope="module")
def nginx(start_nginx):
    return start_nginx(CONFIG, workers=1)


@pytest.fixture(scope="module")
def base(nginx, session_origin):
    (worker,) = nginx.workers()
    return bombs.begin(nginx, worker, session_origin)


@pytest.mark.parametrize("bomb", bombs.BOMBS, ids=lambda bomb: bomb.name)
def test_memory_of_the_worker_is_bounded(nginx, origin, base, bomb):
    (worker,) = nginx.workers()
    bombs.run(nginx, worker, origin, bomb, base)
