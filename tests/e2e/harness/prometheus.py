"""Debian's Prometheus, which evaluates metrics, queries and rules."""

import json
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

from .nginx import free_port

from harness.guards import GUARD_SECONDS

SCRAPED = """
global: {{ scrape_interval: 250ms, scrape_timeout: 250ms, evaluation_interval: 250ms }}
rule_files: {rules}
scrape_configs:
- job_name: sszip
  metrics_path: {path}
  params: {{ format: [prometheus] }}
  static_configs: [{{ targets: ["127.0.0.1:{port}"] }}]
"""


def promtool(cache_directory, *arguments):
    """The output of a command that must succeed."""
    command = [cache_directory / "prometheus" / "promtool", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Prometheus:
    """A context with a Prometheus that scrapes a port, and evaluates files of rules, four times a second."""

    def __init__(self, cache_directory, port, path, rules=()):
        self.folder = tempfile.TemporaryDirectory(prefix="sszip-prometheus-")
        self.port = free_port()
        config = f"{self.folder.name}/prometheus.yml"
        with open(config, "w") as file:
            file.write(SCRAPED.format(port=port, path=path, rules=json.dumps([str(rule) for rule in rules])))
        self._log = open(f"{self.folder.name}/log", "w+")
        options = {
            "config.file": config,
            "storage.tsdb.path": f"{self.folder.name}/data",
            "web.listen-address": f"127.0.0.1:{self.port}",
        }
        options = [f"--{name}={value}" for name, value in options.items()]
        command = [cache_directory / "prometheus" / "prometheus", *options]
        self.process = subprocess.Popen(command, stderr=self._log, cwd=self.folder.name)

    def __enter__(self):
        until = time.monotonic() + GUARD_SECONDS
        # Prometheus discovers its targets some seconds later
        while not (self._is_ready() and 1 in self.query("up").values()):
            assert self.process.poll() is None and time.monotonic() < until, self._log_end()
            time.sleep(0.1)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(30)
        self._log.close()
        self.folder.cleanup()

    def _log_end(self):
        self._log.seek(0)
        return self._log.read()[-3000:]

    def _get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
            return answer.read()

    def _is_ready(self):
        try:
            return bool(self._get("/-/ready"))
        except OSError:
            return False

    def query(self, query):
        """The values of an instant query, by their labels."""
        try:
            response = json.loads(self._get("/api/v1/query?" + urllib.parse.urlencode({"query": query})))
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{query}: {error.read().decode()}") from error
        rows = response["data"]["result"]
        return {tuple(sorted(row["metric"].items())): float(row["value"][1]) for row in rows}
