"""The stack of docker/docker-compose.yml, under a name and on ports of its own."""

import json
import os
import pathlib
import shlex
import signal
import subprocess
import time
import uuid

from harness.nginx import free_port
from known_calls import fetch

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docker"
OVERRIDES = pathlib.Path(__file__).resolve().parent
COMPOSE = shlex.split(os.environ.get("SSZIP_COMPOSE", "docker compose"))
TAG = os.environ.get("TAG", "local")
# seconds for steps that end by themselves
LIMIT = 120
# of containers that tests start without Compose
LABEL = f"sszip-test={uuid.uuid4().hex}"
LOG_LINES = 10_000
PROXIES = ("nginx", "envoy", "wasm")
PORTS = {"node": "NODE_PORT", "nginx": "NGINX_PORT", "envoy": "ENVOY_PORT", "wasm": "WASM_PORT", "nginx-2": "NGINX_2_PORT"}
LOCAL = {
    "nginx": "NGINX_STATUS_PORT",
    "envoy": "ENVOY_STATUS_PORT",
    "nginx-2": "NGINX_2_STATUS_PORT",
    "prometheus": "PROMETHEUS_PORT",
}


def docker(*arguments, check=True, text=None):
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, input=text, timeout=LIMIT, check=False)
    if check and done.returncode:
        raise AssertionError(f"docker {' '.join(arguments)}: {done.stderr or done.stdout}")
    return done


def wait_for(description, condition, seconds=LIMIT):
    """Waits until `condition` returns a true value, and returns it."""
    end = time.monotonic() + seconds
    while True:
        if value := condition():
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{description}: not within {seconds} s")
        time.sleep(0.1)


def save_containers(folder):
    """Writes the log, the state and the configuration of each container of the tests to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for label in (LABEL, *(f"com.docker.compose.project={one}" for one in Stack.projects)):
        listed = docker("ps", "--all", "--filter", f"label={label}", "--format", "{{.ID}} {{.Names}}")
        for line in listed.stdout.splitlines():
            id_, name = line.split()
            save_container(id_, f"{folder}/{name}-{id_}")


def save_container(id_, path):
    pathlib.Path(f"{path}.json").write_text(docker("inspect", id_, check=False).stdout)
    with open(f"{path}.log", "wb") as log:
        command = ["docker", "logs", "--timestamps", "--tail", str(LOG_LINES), id_]
        subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, timeout=LIMIT, check=False)
    # what the entry points have written, of a container that runs
    command = "tail -v -n +1 /tmp/*.conf /tmp/*.yaml /tmp/*.toml 2>/dev/null"
    if text := docker("exec", id_, "bash", "-c", command, check=False).stdout:
        pathlib.Path(f"{path}.conf").write_text(text)


class Stack:
    """One Compose project, which is removed at the end of a `with` block."""

    # names of all projects, also of removed ones
    projects = []

    def __init__(self, *overrides, **environment):
        names = [*PORTS.values(), *LOCAL.values()]
        self.ports = {name: free_port() for name in names}
        self.project = f"sszip-test-{uuid.uuid4().hex[:8]}"
        self.projects.append(self.project)
        self.files = [FOLDER / "docker-compose.yml", *(OVERRIDES / name for name in overrides)]
        # without the machine's own settings
        self.environment = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "DOCKER_HOST")}
        self.environment |= {name: str(port) for name, port in self.ports.items()}
        self.environment |= {"TAG": TAG, "COMPOSE_PROFILES": "replay", **environment}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.compose("down", "--volumes", "--timeout", "5", check=False)

    def compose(self, *arguments, check=True, seconds=LIMIT, **environment):
        command = [*COMPOSE, "--project-name", self.project]
        for file in self.files:
            command += ["--file", str(file)]
        done = subprocess.run(
            [*command, *arguments], env=self.environment | environment, capture_output=True, text=True,
            timeout=seconds, check=False, cwd=FOLDER, stdin=subprocess.DEVNULL,
        )
        if check and done.returncode:
            raise AssertionError(f"compose {' '.join(arguments)}: {done.stderr or done.stdout}\n{self.logs()}")
        return done

    def logs(self):
        return self.compose("logs", "--no-color", "--tail", "40", check=False).stdout

    def up(self, *services, **environment):
        self.compose("up", "--detach", "--no-build", "--wait", "--wait-timeout", str(LIMIT), *services, seconds=2 * LIMIT, **environment)

    def url(self, which):
        return f"http://127.0.0.1:{self.ports[PORTS[which]]}"

    def local(self, which):
        return f"http://127.0.0.1:{self.ports[LOCAL[which]]}"

    def id(self, service):
        return self.compose("ps", "--all", "--quiet", service).stdout.split()[-1]

    def inspect(self, service):
        return json.loads(docker("inspect", self.id(service)).stdout)[0]

    def is_healthy(self, service, since=None):
        """Whether the service is healthy, and was not started at `since`."""
        state = self.inspect(service)["State"]
        return state["Running"] and state.get("Health", {}).get("Status") == "healthy" and state["StartedAt"] != since

    def address(self, service):
        return self.address_of(self.id(service))

    @staticmethod
    def address_of(container):
        networks = json.loads(docker("inspect", container).stdout)[0]["NetworkSettings"]["Networks"]
        return next(iter(networks.values()))["IPAddress"]

    def purge(self):
        assert fetch(self.local("nginx"), "/sszip/purge?everything", body="").status == 200

    def started(self, service):
        return self.inspect(service)["State"]["StartedAt"]

    def kill(self, service):
        """Kills its first process, as the kernel does when memory is exhausted."""
        state = self.inspect(service)["State"]
        try:
            os.kill(state["Pid"], signal.SIGKILL)
        except PermissionError:
            # nor can it be killed from inside; an engine does not restart one that it killed
            docker("kill", self.id(service))
            docker("start", self.id(service))
        wait_for(f"{service} is back", lambda: self.is_healthy(service, state["StartedAt"]))
