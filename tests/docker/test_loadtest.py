"""`docker compose run loadtest` prints tables, and writes the report."""

import html
import json
import os

NODE = "node"
PROXIES = ["sszip in nginx", "sszip in Envoy", "sszip in Envoy (Wasm)"]


def test_loadtest_prints_tables_and_writes_a_report(stack, tmp_path):
    tmp_path.chmod(0o755)
    user = f"{os.getuid()}:{os.getgid()}"
    done = stack.compose("run", "--rm", "loadtest", LOADTEST_USER=user, LOADTEST_SECONDS="1", REPORT=str(tmp_path))
    report = json.loads((tmp_path / "loadtest.json").read_text())
    markdown, page = ((tmp_path / f"loadtest.{kind}").read_text() for kind in ("md", "html"))
    assert set(report["sections"]) == {"block-30", "block-246", "mix", "batch", "identity", "ssz"}
    for section in report["sections"].values():
        assert section["title"] in done.stdout and f"## {section['title']}" in markdown
        assert html.escape(section["title"]) in page
        assert {one["row"] for one in section["samples"]} == {NODE, *PROXIES}
        for one in section["samples"]:
            assert one["requests"] > 0 and one["errors"] == one["statuses"] == 0, one
            # the node's own count of requests
            assert one["asked"] >= 1 if one["row"] == NODE else one["asked"] <= 1, one
        for name in (NODE, *PROXIES):
            verified = section["verified"][name]
            assert verified["asked"] > 0 and verified["wrong"] == 0
            assert f"| {name} |" in markdown or f"| **{name}** |" in markdown
    # most requests through proxies were hits; the number depends on the machine
    warm = report["sections"]["block-246"]["samples"]
    assert sum(one["asked"] for one in warm if one["row"] in PROXIES) < len(PROXIES)


def test_invalid_node_url_is_reported(stack, tmp_path):
    tmp_path.chmod(0o755)
    user = f"{os.getuid()}:{os.getgid()}"
    done = stack.compose("run", "--rm", "--no-deps", "loadtest", check=False, LOADTEST_USER=user,
                         NODE_URL="ftp://node", REPORT=str(tmp_path))
    assert done.returncode != 0
    assert "'ftp://node' is not http[s]://HOST[:PORT][/PATH]" in done.stderr
