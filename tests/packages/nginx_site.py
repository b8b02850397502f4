"""A site in nginx of a Debian, of the examples in the package, and clients of it."""

import concurrent.futures
import contextlib
import json
import re
import threading
import time

from chroot import wait_for
from harness import client
from harness.nginx import free_port

EXAMPLES = "/usr/share/doc/libnginx-mod-http-sszip/examples/nginx"
SITE = """
server {{
    listen 127.0.0.1:{port};
    location / {{
        include snippets/sszip-node.conf;
        sszip_cache_namespace test;
        proxy_pass http://127.0.0.1:{node};
    }}
}}
"""
HEADERS = [("Content-Type", "application/json"), ("Accept-Encoding", "gzip")]


def call(method, params):
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


BLOCK = call("eth_getBlockByNumber", ["latest", True])
CALLS = [BLOCK, call("eth_chainId", []), call("eth_getBlockByNumber", ["latest", False])]


def master_of(system):
    """The PID of nginx, or an empty text."""
    with contextlib.suppress(FileNotFoundError):
        return system.read("/run/nginx.pid").strip()
    return ""


def start_nginx(system):
    # by its path, as its unit does: the master executes that name again when it is replaced
    system.run("/usr/sbin/nginx")
    wait_for("nginx runs", lambda: master_of(system))


def stop_nginx(system):
    system.run("/usr/sbin/nginx", "-s", "quit")
    wait_for("nginx has stopped", lambda: not master_of(system))


class NginxSite:
    """nginx of a Debian with the package's settings and one location."""

    def __init__(self, system, node):
        self.system = system
        self.port, self.status_port = free_port(), free_port()
        self._responses = {one: self._result(node.port, one) for one in CALLS}
        settings = system.read(f"{EXAMPLES}/conf.d/sszip.conf")
        assert ":8580;" in settings
        self.files = {
            "/etc/nginx/snippets/sszip-node.conf": system.read(f"{EXAMPLES}/snippets/sszip-node.conf"),
            "/etc/nginx/conf.d/sszip.conf": settings.replace(":8580;", f":{self.status_port};"),
            # after conf.d, whose log format it names
            "/etc/nginx/sites-enabled/site.conf": SITE.format(port=self.port, node=node.port),
        }
        for name, text in self.files.items():
            system.write(name, text)

    def remove_configuration(self):
        for name in self.files:
            self.system.path(name).unlink()

    def use_daemon(self, socket_path):
        """Configures a daemon's store in place of nginx's."""
        name = "/etc/nginx/conf.d/sszip.conf"
        text, count = re.subn(r"^sszip_cache_path .*;$", f"sszip_cache_owner unix:{socket_path};", self.files[name], flags=re.M)
        assert count == 1
        self.system.write(name, text)

    @staticmethod
    def _result(port, body):
        response = client.fetch(port, "/", method="POST", headers=HEADERS, body=body)
        assert response.status == 200, response
        return json.loads(response.decoded)

    def start(self):
        start_nginx(self.system)
        wait_for("the store is open", self.has_store)

    def master(self):
        return master_of(self.system)

    def upgrade_binary(self):
        """Replaces the master as docs/install.md describes."""
        old = self.master()
        self.system.run("bash", "-c", f"kill -USR2 {old}")
        wait_for("a new master runs", lambda: self.master() not in (old, ""))
        self.system.run("bash", "-c", f"kill -QUIT {old}")
        wait_for("the old master has stopped", lambda: not self.system.path("/run/nginx.pid.oldbin").exists())

    def mapped_modules(self):
        """Files of sszip that the master has mapped; a replaced one ends with (deleted)."""
        maps = self.system.run("cat", f"/proc/{self.master()}/maps").stdout
        return set(re.findall(r"/\S+/ngx_http_sszip_module\.so(?: \(deleted\))?", maps))

    def status(self):
        response = client.fetch(self.status_port, "/sszip?format=json")
        assert response.status == 200, response
        return json.loads(response.body)

    def has_store(self):
        owner = self.status()["owner"]
        return owner is not None and "generation" in owner

    def fetch(self, body=BLOCK):
        """A response, which is compared with the node's."""
        response = client.fetch(self.port, "/", method="POST", headers=HEADERS, body=body)
        assert response.status == 200, response
        assert json.loads(response.decoded) == self._responses[body]
        return response

    def fetch_hit(self):
        """A hit, which is the response to the second request if a store is open."""

        def fetch():
            response = self.fetch()
            return response if "; hit" in (response.header("Cache-Status") or "") else None

        return wait_for("a hit", fetch)

    @contextlib.contextmanager
    def under_load(self, clients=8):
        """Sends requests from several clients, each on a connection of its own, during the block;
        then all responses must be right."""
        stopped = threading.Event()

        def run(first):
            count = 0
            while not stopped.is_set():
                self.fetch(CALLS[(first + count) % len(CALLS)])
                count += 1
                time.sleep(0.01)
            return count

        with concurrent.futures.ThreadPoolExecutor(clients) as pool:
            running = [pool.submit(run, number) for number in range(clients)]
            try:
                yield
            finally:
                stopped.set()
        assert all(one.result() > 0 for one in running)
