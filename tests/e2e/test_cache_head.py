"""sszip_cache_head: the errors of `nginx -t`, and the head sources that the owner
receives."""

import json
import re
import urllib.request

import pytest

from harness.nginx import Nginx
from harness.replay import ReplayNode
from tiers import alternate

PATH = "sszip_cache_path @prefix@/cache max_size=64m memory=32m;"
NODE = "http://127.0.0.1:8545"

HTTP = """
sszip on;
sszip_cache on;
@path@
@http@
server {
    listen 127.0.0.1:@port@;
    @server@
    location / {
        @location@
        proxy_pass http://127.0.0.1:9;
    }
    @locations@
}
"""


def config(location="", *, http="", server="", locations="", path=PATH):
    parts = {"path": path, "http": http, "server": server, "location": location, "locations": locations}
    return re.sub(r"@(path|http|server|location|locations)@", lambda match: parts[match[1]], HTTP)


def nginx_t(*args, **parts):
    nginx = Nginx(config(*args, **parts))
    try:
        status, output = nginx.test()
        return status, output, nginx.prefix, (nginx.prefix / "nginx.conf").read_text().splitlines()
    finally:
        nginx.stop()


def refused(*args, **parts):
    """The one error of `nginx -t`, and the line of the configuration that it names."""
    status, output, prefix, lines = nginx_t(*args, **parts)
    assert status != 0, output
    (complaint,) = [text for text in output.splitlines() if "[emerg]" in text]
    assert "sszip_cache_head" in complaint
    number = re.search(re.escape(f"{prefix}/nginx.conf") + r":(\d+)$", complaint)
    assert number, complaint
    return complaint, lines[int(number[1]) - 1]


def accepted(*args, **parts):
    status, output, *_ = nginx_t(*args, **parts)
    assert status == 0, output


NAMED = "sszip_cache_namespace main;"
URL = "it must be a URL"
BLOCKS = ["http", "server", "location"]
# Invalid parameters, the value that the error names, and its reason.
INVALID = [
    ("127.0.0.1:8545", "127.0.0.1:8545", URL),
    ("node", "node", URL),
    ('""', "", URL),
    ("ftp://node", "ftp://node", URL),
    ("http://node:99999", "http://node:99999", URL),
    ("unix:run/node.sock", "unix:run/node.sock", URL),
    ("http://me:secret@node", "http://...@node", 'set "header=Authorization: Basic ..." instead'),
    (f"{NODE} interval=5", "interval=5", "from 100ms to 1h"),
    (f"{NODE} interval=99ms", "interval=99ms", "from 100ms to 1h"),
    (f"{NODE} interval=2h", "interval=2h", "from 100ms to 1h"),
    (f"{NODE} finality=safe", "finality=safe", '"finality=tag" or "finality=depth:N"'),
    (f"{NODE} finality=depth:0", "finality=depth:0", "where N is a number from 1 to 1000000"),
    (f"{NODE} api=engine", "api=engine", '"api=execution" or "api=beacon"'),
    ("ws://node api=beacon", "api=beacon", 'used with an "http://", an "https://" or a "unix:" URL'),
    (f"{NODE} header=secret", "header=...", '"header=NAME:VALUE"'),
    (f'{NODE} "header=A b: secret"', "header=A b:...", '"header=NAME:VALUE"'),
    (f'{NODE} "header=A:secret\r\nB: c"', "header=A:...", "printable ASCII"),
    (f"{NODE} header=Authorization:Bearer secret", "...", "in quotes"),
    (f"{NODE} header=Host:a header=Connection:secret", "header=Connection:...", "does not describe the connection"),
    (f"{NODE} namespace=", "namespace=", '"namespace=NAME"'),
    (f"{NODE} max=1", "max=1", '"interval=TIME", "finality=tag|depth:N", "api=execution|beacon"'),
]
VALID = [
    "off",
    NODE,
    "https://node.example/v3/key",
    "wss://node.example/ws interval=100ms",
    "unix:/run/node.sock:/rpc finality=depth:64",
    "http://[::1]:5052 api=beacon interval=1h",
    f'{NODE} "header=Authorization: Bearer a.b.c" header=X-A:b namespace=main finality=tag api=execution',
]


class TestWords:
    @pytest.mark.parametrize("where, invalid", alternate(BLOCKS, INVALID), ids=str)
    def test_invalid_parameter_is_rejected_without_its_secret(self, where, invalid):
        words, reported, reason = invalid
        complaint, line = refused(**{"location": NAMED, where: f"{NAMED} sszip_cache_head {words};"})
        assert f'"sszip_cache_head" directive has an invalid value "{reported}": it must be' in complaint
        assert reason in complaint
        assert "secret" not in complaint
        assert "sszip_cache_head" in line or line.endswith('B: c";')

    @pytest.mark.parametrize("name", ["interval=1s", "finality=tag", "api=execution", "namespace=a"])
    def test_duplicate_parameter_is_rejected(self, name):
        complaint, _ = refused(f"{NAMED} sszip_cache_head {NODE} {name} {name};")
        assert f'has the parameter "{name.split("=")[0]}=" twice' in complaint

    def test_missing_certificate_file_is_rejected(self):
        complaint, _ = refused(f"{NAMED} sszip_cache_head https://node ca=no/such.pem;")
        assert re.search(r'cannot read the certificates in "/\S+/no/such.pem" \(2: No such', complaint)

    def test_certificate_file_is_rejected_without_tls(self):
        nginx = Nginx(config(f"{NAMED} sszip_cache_head {NODE} ca=@prefix@/ca.pem;"), files={"ca.pem": b"-"})
        try:
            status, output = nginx.test()
        finally:
            nginx.stop()
        assert status != 0
        assert 'used with an "https://" or a "wss://" URL' in output

    @pytest.mark.parametrize(
        "first, second",
        [
            (NODE, "http://other"),
            (f"{NODE} namespace=a", "http://other namespace=a"),
            ("off", NODE),
            (NODE, "off"),
        ],
    )
    def test_duplicate_directive_is_rejected(self, first, second):
        complaint, _ = refused(f"{NAMED}\n sszip_cache_head {first};\n sszip_cache_head {second};")
        assert '"sszip_cache_head" directive is duplicate' in complaint

    def test_directive_without_arguments_is_rejected(self):
        complaint, _ = refused(f"{NAMED} sszip_cache_head;")
        assert "invalid number of arguments" in complaint

    @pytest.mark.parametrize("where, words", alternate(BLOCKS, VALID))
    def test_valid_parameters_are_accepted(self, where, words):
        accepted(**{"location": NAMED, where: f"{NAMED} sszip_cache_head {words};"})


class TestNamespaces:
    @pytest.mark.parametrize("where", ["http", "server", "location"])
    def test_location_without_a_namespace_is_rejected(self, where):
        complaint, line = refused(**{where: f"sszip_cache_head {NODE};"})
        assert 'in location "/" needs a named namespace: set "sszip_cache_namespace"' in complaint
        assert '"namespace=NAME"' in complaint
        assert "sszip_cache_head" in line

    def test_empty_namespace_is_rejected(self):
        complaint, _ = refused(f'sszip_cache_namespace ""; sszip_cache_head {NODE};')
        assert "needs a namespace whose name is UTF-8 without control characters and not empty" in complaint

    def test_namespace_with_variables_is_rejected(self):
        complaint, line = refused(f"sszip_cache_namespace chain-$arg_chain; sszip_cache_head {NODE};")
        assert "needs a namespace that is the same for all requests" in complaint
        assert '"sszip_cache_namespace" has variables: add "namespace=NAME"' in complaint
        assert "sszip_cache_head" in line

    def test_second_head_of_a_namespace_is_rejected(self):
        complaint, line = refused(
            f"{NAMED}\n sszip_cache_head http://one/secret;",
            locations=f"location /b {{ {NAMED}\n sszip_cache_head http://two/secret;\n proxy_pass http://127.0.0.1:9; }}",
        )
        places = r'"http://two" \(\S+/nginx.conf:(\d+)\), but it follows "http://one" \(\S+/nginx.conf:(\d+)\)'
        found = re.search(rf'in location "/b" sets a second node for the namespace "main": {places}', complaint)
        assert found and int(found[1]) > int(found[2]), complaint
        assert "http://two" in line
        assert "secret" not in complaint

    def test_same_node_with_other_parameters_is_rejected(self):
        other = f"location /b {{ {NAMED} sszip_cache_head {NODE} interval=2s; proxy_pass http://127.0.0.1:9; }}"
        complaint, _ = refused(f"{NAMED} sszip_cache_head {NODE};", locations=other)
        assert 'sets a second node for the namespace "main"' in complaint

    def test_heads_of_two_namespaces_are_accepted(self):
        accepted(f"sszip_cache_namespace $arg_chain; sszip_cache_head {NODE} namespace=a; sszip_cache_head http://b namespace=b;")

    @pytest.mark.parametrize("nothing", ["sszip_cache off;", "sszip off;", "sszip_cache_head off;"])
    def test_location_without_cache_or_head_needs_no_namespace(self, nothing):
        accepted(NAMED, http=f"sszip_cache_head {NODE};", locations=f"location /b {{ {nothing} proxy_pass http://127.0.0.1:9; }}")

    def test_location_without_upstream_needs_no_namespace(self):
        locations = "location /files { root /tmp; } location = /purge { sszip_cache_purge on; } location /r { return 204; }"
        accepted(NAMED, http=f"sszip_cache_head {NODE};", locations=locations)


class TestStore:
    @pytest.mark.parametrize("where", ["http", "server", "location"])
    def test_head_is_rejected_without_a_store(self, where):
        complaint, line = refused(path="", **{"location": NAMED, where: f"{NAMED} sszip_cache_head {NODE};"})
        assert '"sszip_cache_head" needs "sszip_cache_path" in ' in complaint
        assert "sszip_cache_head" in line

    def test_head_is_rejected_with_the_daemon(self):
        complaint, line = refused(f"{NAMED} sszip_cache_head {NODE};", path="sszip_cache_owner unix:@prefix@/s;")
        assert 'with "sszip_cache_owner" the daemon follows the chain' in complaint
        assert "[[head]] of cached.toml" in complaint
        assert "sszip_cache_head" in line

    def test_head_is_rejected_without_a_store_when_the_cache_is_off(self):
        complaint, _ = refused(f"sszip_cache off; sszip_cache_head {NODE};", path="")
        assert '"sszip_cache_head" needs "sszip_cache_path"' in complaint

    def test_off_is_accepted_without_a_store(self):
        accepted("sszip_cache_head off;", path="")

    def test_head_may_precede_the_store(self):
        nginx = Nginx(config(NAMED, path="", http=f"sszip_cache_head {NODE};") + PATH)
        try:
            status, output = nginx.test()
        finally:
            nginx.stop()
        assert status == 0, output


def follows(nginx):
    """The head sources that the owners have logged, in order."""
    return re.findall(r"\[notice\].* sszip: follows (.*)$", nginx.error_log(), re.M)


def wait_until_serving(nginx, times=1):
    nginx.wait_for(lambda: nginx.error_log().count("sszip: serving on") >= times, "the owner")


class TestOwner:
    SECRET = "header=Authorization: Bearer top-secret"

    @pytest.mark.parametrize("single", [False, True])
    def test_owner_follows_each_head_once(self, start_nginx, single):
        http = config(
            NAMED,
            http=f'sszip_cache_head {NODE}/v3/top-secret "{self.SECRET}";',
            locations=f"""
                location /again {{ {NAMED} proxy_pass http://127.0.0.1:9; location /again/in {{ proxy_pass http://127.0.0.1:9; }} }}
                location /beacon {{
                    sszip_cache_namespace "the beacon";
                    sszip_cache_head unix:@prefix@/node.sock:/api api=beacon;
                    proxy_pass http://127.0.0.1:9;
                }}
                location /not {{ sszip_cache_namespace other; sszip_cache_head off; proxy_pass http://127.0.0.1:9; }}
                location /many {{
                    sszip_cache_namespace $arg_chain;
                    sszip_cache_head https://a.example:8545/top-secret namespace=a ca=ca.pem;
                    sszip_cache_head wss://b.example/?key=top-secret namespace=b;
                    proxy_pass http://127.0.0.1:9;
                }}
            """,
        )
        options = {"main": "master_process off;", "single": True} if single else {}
        nginx = start_nginx(http, files={"ca.pem": b"-"}, **options)
        wait_until_serving(nginx)
        nginx.wait_for(lambda: len(follows(nginx)) >= 4, "its heads")
        assert sorted(follows(nginx)) == [
            "a at https://a.example:8545",
            "b at wss://b.example",
            f"main at {NODE}",
            f"the beacon at unix:{nginx.prefix}/node.sock",
        ]
        assert "top-secret" not in nginx.error_log()

    def test_owner_follows_the_new_heads_after_a_reload(self, start_nginx):
        nginx = start_nginx(config(NAMED, http=f"sszip_cache_head {NODE};"))
        wait_until_serving(nginx)
        nginx.wait_for(lambda: follows(nginx) == [f"main at {NODE}"], "its head")
        nginx.write(config(NAMED, http="sszip_cache_head http://other:1 interval=5s;"))
        nginx.reload()
        wait_until_serving(nginx, 2)
        nginx.wait_for(lambda: follows(nginx) == [f"main at {NODE}", "main at http://other:1"], "its new head")
        nginx.write(config(NAMED, http="sszip_cache_head off;"))
        nginx.reload()
        wait_until_serving(nginx, 3)
        assert len(follows(nginx)) == 2

    def test_owner_follows_no_head_without_the_directive(self, start_nginx):
        nginx = start_nginx(config(NAMED))
        wait_until_serving(nginx)
        assert follows(nginx) == []


class TestFollowing:
    @pytest.fixture
    def node(self):
        node = ReplayNode("--chain")
        yield node
        node.stop()

    def send_command(self, node, **command):
        url = f"http://127.0.0.1:{node.port}/chain"
        request = urllib.request.Request(url, json.dumps(command).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=30):
            pass

    def test_cache_manager_follows_and_its_successor_knows_the_chain(self, start_nginx, node):
        head = f"sszip_cache_head http://127.0.0.1:{node.port} interval=100ms"
        nginx = start_nginx(config(NAMED, http=f"{head};"))
        read_log = nginx.error_log
        nginx.wait_for(lambda: "sszip: main: follows the chain: head 200, final" in read_log(), "the chain")
        nginx.write(config(NAMED, http=f"{head} finality=depth:12;"))
        nginx.reload()
        nginx.wait_for(lambda: "main: follows the chain: head 200, final 188" in read_log(), "the depth")
        self.send_command(node, syncing=True)
        nginx.wait_for(lambda: "main: the node is syncing" in read_log(), "its syncing")
        # the chain's identity is in the store
        self.send_command(node, replace={"seed": 5, "chain_id": 7})
        nginx.wait_for(lambda: "main: the node has another chain (chain 7" in read_log(), "the other chain")
        nginx.reload()
        nginx.wait_for(lambda: read_log().count("main: the node has another chain (chain 7") == 2, "it again")
        assert "[alert]" not in read_log()
