"""The store as an operator sees it: in the log, in responses to purges, and in other caches of
the same nginx."""

import json
import re
import shutil
import subprocess
import threading
import time

from harness import client
from harness.nginx import MODULE
from harness.origin import answer
from harness.owner import owner_of, wait_until_linked
from harness.rpc import Node, call

CONFIG = """
sszip on;
sszip_cache on;
sszip_cache_path @prefix@/cache max_size=64m memory=16m;
server {
    listen 127.0.0.1:@port@ reuseport;
    location / { sszip_cache_namespace main; proxy_pass http://@origin@; }
    location = /purge { sszip_cache_purge on; }
}
"""


def test_version_and_codec_libraries_are_logged_once(start_nginx):
    nginx = start_nginx(CONFIG.replace("@origin@", "127.0.0.1:1"), workers=3)
    matches = re.findall(r"\[notice\].* sszip (\S+) compresses with (.+)", nginx.error_log())
    assert len(matches) == 1, matches
    version, coders = matches[0]
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert coders.startswith(("ISA-L", "libdeflate"))


def test_owner_library_of_another_build_is_reported(start_nginx, tmp_path):
    module = tmp_path / "module.so"
    shutil.copy(MODULE, module)
    library = tmp_path / "libsszip_owner.so"
    source = tmp_path / "owner.c"
    source.write_text("unsigned sszip_owner_abi(void) { return 1; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    nginx = start_nginx(CONFIG.replace("@origin@", "127.0.0.1:1"), module=module)
    nginx.expect("cache's owner at .* does not respond")
    line = nginx.wait_for(lambda: re.search(r"cannot start the owner of the store: .*", nginx.error_log()), "the complaint")[0]
    wanted = rf'"{library}" is from another build than the module, an older version \(interface 1\), and the module is \d+\.\d+\.\d+ \(interface \d+\); install both'
    assert re.search(wanted, line), line


def test_purge_is_logged_with_its_entries(start_nginx, origin):
    nginx = start_nginx(CONFIG)
    wait_until_linked(nginx)
    origin.answers(Node({"eth_chainId": b'"0x1"'}))
    nginx.post("/", call("eth_chainId"))
    owner = owner_of(nginx)
    nginx.wait_for(lambda: owner.status()["fills"]["kept"] == 1, "the owner to have it")
    for query, status, entries in (("namespace=mian", 200, 0), ("namespace=main", 200, 1), ("blocks=x", 400, None)):
        response = client.fetch(nginx.port, f"/purge?{query}", method="POST")
        assert response.status == status
        line = nginx.wait_for(
            lambda query=query: re.search(rf'.*purge of "{query}": .*', nginx.error_log()), "the line"
        )[0]
        assert "[notice]" in line and f": {status} {{" in line and "client: 127.0.0.1" in line, line
        if entries is not None:
            assert json.loads(response.decoded)["entries"] == entries


def test_purge_without_a_cache_is_a_503(start_nginx):
    off = CONFIG.replace("sszip on;", "").replace("sszip_cache on;", "")
    nginx = start_nginx(off.replace("@origin@", "127.0.0.1:1"))
    response = client.fetch(nginx.port, "/purge?everything", method="POST")
    assert response.status == 503
    assert "no link to a cache's owner" in json.loads(response.decoded)["detail"]


def test_concurrent_purges_are_all_acknowledged(start_nginx, origin):
    """Acknowledgements need connections, and so do lookups. An unacknowledged purge is complete
    when no process may use its memory any more: after all clients have timed out."""
    times = "memory_lease=600s predecessor_lease=0s"
    nginx = start_nginx(CONFIG, workers=2, environment={"SSZIP_TIMES": times})
    wait_until_linked(nginx)
    origin.answers(Node({"eth_chainId": b'"0x1"'}))
    answers = []

    def purge():
        response = client.fetch(nginx.port, "/purge?method=eth_call", method="POST")
        answers.append(response.status)

    threads = [threading.Thread(target=purge) for _ in range(32)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        assert nginx.post("/", call("eth_chainId")).status == 200
    for thread in threads:
        thread.join(60)
    assert answers == [200] * 32


def test_cache_manager_of_proxy_cache_keeps_its_interval(start_nginx, origin, tmp_path):
    """nginx calls the managers of all paths whenever one of them is due."""
    zone = "keys_zone=z:1m manager_files=1 manager_sleep=2s use_temp_path=off"
    cached = "server { listen 127.0.0.1:@port_plain@; location / { proxy_cache z; proxy_cache_valid 1h; proxy_pass http://@origin@; } }"
    http = CONFIG + f"proxy_cache_path {tmp_path}/plain max_size=1 {zone};" + cached
    nginx = start_nginx(http)
    wait_until_linked(nginx)
    origin.answers(answer(b"x" * 5000))
    for n in range(40):
        assert nginx.get(f"/{n}", port="port_plain").status == 200

    def files():
        return sum(path.is_file() for path in (tmp_path / "plain").rglob("*"))

    began = time.monotonic()
    before = files()
    assert before >= 15
    # the owner is due a dozen times in this pause
    time.sleep(3)
    removed = before - files()
    # one every two seconds, and one may have been due at once
    assert removed <= (time.monotonic() - began) / 2 + 2
