"""`docker compose run loadtest` prints a table, and writes the report."""

import json
import os


def test_the_table_and_the_report(stack, tmp_path):
    tmp_path.chmod(0o755)
    user = f"{os.getuid()}:{os.getgid()}"
    done = stack.compose("run", "--rm", "loadtest", LOADTEST_USER=user, LOADTEST_SECONDS="1", REPORT=str(tmp_path))
    lines = done.stdout.splitlines()
    heads = lines[0].split("  ")
    assert heads[-1].strip() == "wrong"
    report = json.loads((tmp_path / "loadtest.json").read_text())
    names = ["node", "nginx", "Envoy, module", "Envoy, sandbox"]
    assert [(row["target"], row["coding"]) for row in report["rows"]] == [(name, coding) for name in names for coding in ("gzip", "identity")]
    for row in report["rows"]:
        assert row["requests"] > 0 and row["errors"] == 0 and row["wrong"] == 0
        assert row["at_node"] == 1 if row["target"] == "node" else row["at_node"] <= 1
        assert any(line.startswith(row["target"]) and row["coding"] in line for line in lines)
        assert f"| {row['target']} | {row['coding']} |" in (tmp_path / "loadtest.md").read_text()
    # of those through proxies some were hits; how many goes by how fast the machine is
    proxied = [row for row in report["rows"] if row["target"] != "node"]
    assert sum(row["at_node"] * row["requests"] for row in proxied) < sum(row["requests"] for row in proxied)
