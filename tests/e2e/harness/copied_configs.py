"""The configurations that operators copy (configs/nginx), unchanged but for ports, nodes,
certificates and folders, and clients for them."""

import pathlib
import re
import socket
import ssl
import subprocess

from .client import Connection
from .nginx import Nginx, free_port
from .owner import wait_until_linked

CONFIGS = pathlib.Path(__file__).resolve().parents[3] / "configs"
NAMES = ("rpc", "keys", "password", "asked", "beacon", "chains", "cdn", "plans")

# The signer of the certificate is unknown.
_clients = ssl.create_default_context()
_clients.check_hostname = False
_clients.verify_mode = ssl.CERT_NONE


def certificate(folder):
    """A certificate for all names, and its key."""
    key, chain = folder / "key.pem", folder / "chain.pem"
    names = ",".join(f"DNS:{name}.example.org" for name in NAMES)
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=example.org"]
    files = ["-addext", f"subjectAltName={names}", "-keyout", key, "-out", chain]
    subprocess.run([*command, *files], check=True, capture_output=True)
    return chain.read_bytes(), key.read_bytes()


class CopiedConfig:
    """`Copied(certificate, "rpc", nodes={8545: origin.port})`: nginx with these sites, whose
    addresses on this machine are replaced by `nodes`. A path is a site of another folder."""

    def __init__(self, certificate, *sites, nodes, files=None, changes=None, workers=2, main=""):
        chain, key = certificate
        self.tls, self.local = free_port(), free_port()
        ports = {8580: self.local, **nodes}
        changes = {
            "listen 443 ssl http2;": f"listen 127.0.0.1:{self.tls} ssl http2;",
            # relative to nginx.conf, as in /etc/nginx
            "/etc/letsencrypt/live/example.org/": "",
            "/etc/nginx/sszip-": "sszip-",
            "/var/log/sszip/": "sszip-",
            "/var/cache/nginx/sszip": "@prefix@/cache",
            "/run/sszip-engine/": "@prefix@/",
            **(changes or {}),
        }

        def own(path):
            text = re.sub(r"^ *#.*\n", "", path.read_text(), flags=re.M)
            for published, ours in changes.items():
                text = text.replace(published, ours)
            assert not re.search(r"/(etc|var|run)/", text), f"{path} has a folder of this machine's"
            return re.sub(r"127\.0\.0\.1:(?!@)(\d+)", lambda it: f"127.0.0.1:{ports.get(int(it[1]), it[1])}", text)

        folder = CONFIGS / "nginx"
        sites = [folder / f"sites/{site}.conf" if isinstance(site, str) else site for site in sites]
        http = [own(path) for path in (folder / "conf.d/sszip.conf", *sites)]
        snippets = {f"snippets/{path.name}": own(path).encode() for path in (folder / "snippets").iterdir()}
        files = snippets | {"fullchain.pem": chain, "privkey.pem": key} | (files or {})
        self.nginx = Nginx("\n".join(http), workers=workers, files=files, main=main)

    def start(self):
        """Starts nginx; its first requests use the cache."""
        self.nginx.start()
        wait_until_linked(self.nginx)
        return self

    def stop(self):
        self.nginx.stop()

    def connect(self, name, source="127.0.0.1"):
        return Tls(self.tls, f"{name}.example.org", source)

    def fetch(self, name, target="/", body=None, headers=(), method=None, source="127.0.0.1"):
        """One request to the server of that name, over TLS."""
        with self.connect(name, source) as connection:
            return request_through(connection, f"{name}.example.org", target, body, headers, method)

    def lines(self):
        """The lines of the access log."""
        path = self.nginx.prefix / "sszip-access.log"
        return path.read_bytes().splitlines() if path.exists() else []


class Tls(Connection):
    """A connection over TLS, from another address if `source` is set."""

    def __init__(self, port, host, source="127.0.0.1"):
        plain = socket.create_connection(("127.0.0.1", port), 30, (source, 0))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = _clients.wrap_socket(plain, server_hostname=host)
        self.buffer = bytearray()
        self.received = 0


def request_through(connection, host, target="/", body=None, headers=(), method=None):
    """The response to one request; a body is a call's."""
    headers = list(headers)
    if body is not None:
        headers.append(("Content-Type", "application/json"))
    method = method or ("GET" if body is None else "POST")
    return connection.exchange(target, method=method, headers=headers, body=body, host=host)
