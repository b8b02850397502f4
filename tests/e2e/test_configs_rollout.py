"""The Ansible role and the Kubernetes manifest of configs/, read by their programs."""

import json
import os
import re
import subprocess

import pytest
import yaml

from harness import client
from harness.copied_configs import CONFIGS
from harness.nginx import Nginx
from harness.owner import SSZIP_CACHED, wait_until_linked
from harness.rpc import Node, call

pytestmark = pytest.mark.once("the module's part is tried in test_configs.py")

ROLE = CONFIGS / "ansible/sszip"
TEMPLATE = (ROLE / "roles/sszip/templates/site.conf.j2").read_text()
MANIFEST = CONFIGS / "kubernetes/sidecar.yaml"
BLOCK = call("eth_getBlockByHash", '["0x%s",true]' % ("ab" * 32))
RESULT = b'{"hash":"0x%b","x":"%b"}' % (b"ab" * 32, b"0" * 3000)


@pytest.fixture(scope="module")
def programs(cache_directory):
    return cache_directory / "rollout-venv" / "bin"


def run(folder, home, *command):
    environment = {**os.environ, "HOME": str(home), "PATH": f"{command[0].parent}:{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


# Ansible


def test_role_passes_the_linter(programs, tmp_path):
    status, output = run(ROLE, tmp_path, programs / "ansible-lint", "--offline", "--strict", "--profile", "production")
    assert status == 0 and "Passed" in output, output


def rendered_site(programs, tmp_path, **values):
    """The site that the role writes with its defaults and these values."""
    playbook = [
        {
            "hosts": "localhost",
            "connection": "local",
            "gather_facts": False,
            "vars": {"ansible_python_interpreter": "{{ ansible_playbook_python }}"},
            "vars_files": [str(ROLE / "roles/sszip/defaults/main.yml")],
            "tasks": [
                {
                    "ansible.builtin.template": {
                        "src": str(ROLE / "roles/sszip/templates/site.conf.j2"),
                        "dest": str(tmp_path / "site.conf"),
                        "mode": "0644",
                    }
                }
            ],
        }
    ]
    (tmp_path / "render.yml").write_text(yaml.safe_dump(playbook))
    command = [programs / "ansible-playbook", "-i", "localhost,", "-e", json.dumps(values), "render.yml"]
    status, output = run(tmp_path, tmp_path, *command)
    assert status == 0, output
    return (tmp_path / "site.conf").read_text()


@pytest.fixture
def start_site(programs, tmp_path, session_origin):
    """Starts nginx with the site of the role, and the files that the role copies."""
    started = []

    def start(**values):
        site = rendered_site(programs, tmp_path, sszip_node="@origin@", sszip_listen="127.0.0.1:@port@", sszip_head="off", **values)
        shared = (CONFIGS / "nginx/conf.d/sszip.conf").read_text().replace("127.0.0.1:8580", "127.0.0.1:@port_status@")
        snippet = (CONFIGS / "nginx/snippets/sszip-node.conf").read_text()
        own = {"/var/cache/nginx/sszip": "@prefix@/cache", "/var/log/sszip/": "@prefix@/sszip-"}
        for published, ours in own.items():
            shared, site = shared.replace(published, ours), site.replace(published, ours)
        nginx = Nginx("", origin=session_origin)
        snippet = snippet.replace("/var/log/sszip/", f"{nginx.prefix}/sszip-")
        (nginx.prefix / "snippets").mkdir()
        (nginx.prefix / "snippets/sszip-node.conf").write_text(snippet)
        nginx.write(f"{shared}\n{site}")
        started.append(nginx)
        nginx.start()
        wait_until_linked(nginx)
        return nginx

    yield start
    for nginx in started:
        nginx.stop()


def is_hit(response):
    return (response.header("Cache-Status") or "").startswith("sszip; hit")


def test_site_of_the_role_serves_hits(start_site, origin):
    node = Node({"eth_getBlockByHash": RESULT})
    origin.answers(node)
    nginx = start_site()
    responses = [nginx.fetch("/", BLOCK) for _ in range(2)]
    assert [is_hit(response) for response in responses] == [False, True]
    assert json.loads(responses[1].decoded)["result"]["hash"]
    assert client.fetch(nginx.ports["port_status"], "/sszip?format=json").status == 200


def test_site_of_the_role_sends_requests_to_the_node_at_share_zero(start_site, origin):
    node = Node({"eth_getBlockByHash": RESULT})
    origin.answers(node)
    nginx = start_site(sszip_share=0)
    for _ in range(2):
        response = nginx.fetch("/", BLOCK)
        assert response.status == 200 and response.header("Cache-Status") is None
    assert node.count() == 2
    assert [request.target for request in origin.received()] == ["/", "/"]


# Kubernetes


def documents():
    return {document["kind"]: document for document in yaml.safe_load_all(MANIFEST.read_text())}


def test_manifest_is_valid(programs, tmp_path):
    status, output = run(tmp_path, tmp_path, programs / "kubernetes-validate", "--strict", str(MANIFEST))
    assert status == 0, output
    # the commented object, too
    comment = MANIFEST.read_text().split("# ---\n")[1]
    monitor = yaml.safe_load(re.sub(r"^# ?", "", comment, flags=re.M))
    assert monitor["kind"] == "PodMonitor"


def test_containers_of_sszip_are_restricted():
    pod = documents()["StatefulSet"]["spec"]["template"]["spec"]
    containers = {container["name"]: container for container in pod["containers"]}
    for name in ("nginx", "cached"):
        context = containers[name]["securityContext"]
        assert context["runAsNonRoot"] and context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"]
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert {"resources", "livenessProbe"} <= containers[name].keys()
    # the socket is for one user
    assert len({containers[name]["securityContext"]["runAsUser"] for name in ("nginx", "cached")}) == 1
    sockets = [mount for name in ("nginx", "cached") for mount in containers[name]["volumeMounts"] if mount["name"] == "run"]
    assert [mount["mountPath"] for mount in sockets] == ["/run/sszip"] * 2
    # the purges are not reachable from outside of the pod
    ports = {port["containerPort"] for port in containers["nginx"]["ports"]}
    assert ports == {8545, 8580}


def test_daemon_of_the_manifest_accepts_its_configuration(tmp_path):
    (tmp_path / "cached.toml").write_text(documents()["ConfigMap"]["data"]["cached.toml"])
    done = subprocess.run([SSZIP_CACHED, "--check", tmp_path / "cached.toml"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_nginx_of_the_manifest_serves_hits_from_the_daemon(daemon, session_origin, origin):
    origin.answers(Node({"eth_getBlockByHash": RESULT}))
    text = documents()["ConfigMap"]["data"]["nginx.conf"]
    nginx = Nginx("server { listen 127.0.0.1:@port@; }", origin=session_origin)
    main = (nginx.prefix / "nginx.conf").read_text().split("events {")[0]
    nginx.write("server { listen 127.0.0.1:@port_status@; } server { listen 127.0.0.1:@port_purge@; }")
    changes = {
        "load_module modules/ngx_http_sszip_module.so;": re.sub(r"^(pid|error_log|worker_processes) .*\n", "", main, flags=re.M),
        "worker_processes 2;": "worker_processes 1;",
        "pid /tmp/": f"pid {nginx.prefix}/",
        "error_log stderr warn;": f"error_log {nginx.prefix}/error.log notice;",
        "_path /tmp/": f"_path {nginx.prefix}/",
        "unix:/run/sszip/cached.sock": f"unix:{daemon.socket}",
        "server 127.0.0.1:9545;": f"server {origin.address};",
        "listen 8545;": f"listen 127.0.0.1:{nginx.port};",
        "listen 8580;": f"listen 127.0.0.1:{nginx.ports['port_status']};",
        "listen 127.0.0.1:8581;": f"listen 127.0.0.1:{nginx.ports['port_purge']};",
    }
    for published, own in changes.items():
        assert published in text, published
        text = text.replace(published, own)
    assert not re.search(r"[ :]/(run|tmp/[a-z_]+;)", text)
    (nginx.prefix / "nginx.conf").write_text(text)
    nginx.start()
    try:
        wait_until_linked(nginx, daemon)
        post = {"method": "POST", "headers": [("Content-Type", "application/json")], "body": BLOCK}
        assert client.fetch(nginx.port, "/", **post).status == 200
        assert is_hit(client.fetch(nginx.port, "/", **post))
        assert client.fetch(nginx.ports["port_status"], "/health").body == b"nginx\n"
        assert client.fetch(nginx.ports["port_purge"], "/sszip/purge?everything", method="POST").status == 200
        assert not is_hit(client.fetch(nginx.port, "/", **post))
    finally:
        nginx.stop()
