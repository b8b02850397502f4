"""Every decoder of real clients reads gzip members and zstd frames that the core splices from stored
streams and blocks, for any id, size and encoder.

No server is involved: an example of the core writes the members, the frames and their decoded
contents into a directory."""

import http.server
import json
import os
import pathlib
import subprocess
import threading

import pytest

from harness import decoders
from harness.client import gunzip
from tiers import times

pytestmark = pytest.mark.once("no server runs: the core's example writes the members")

ROOT = pathlib.Path(__file__).resolve().parents[2]
CORPUS = ROOT.parent / "shared" / "corpus" / "execution"
SPLICES = os.environ.get("SSZIP_SPLICES", "")


def splice(directory, *results):
    assert pathlib.Path(SPLICES).is_file(), f"SSZIP_SPLICES: there is no {SPLICES} (make examples)"
    subprocess.run([SPLICES, directory, *results], check=True)
    return sorted(directory.glob("*.gz"))


@pytest.fixture(scope="module")
def members(tmp_path_factory):
    return splice(tmp_path_factory.mktemp("splices"))


def check(members, decode):
    assert members
    for member in members:
        assert decode(member.read_bytes()) == member.with_suffix(".plain").read_bytes(), member.name


def test_members_cover_ids_sizes_levels_and_batches(members):
    """The members include all kinds of id, results from 100 bytes to 20 MB, and batches."""
    names = {member.stem for member in members}
    kinds = {name.rsplit("Result-", 1)[1] for name in names if name.startswith("2000-")}
    assert kinds >= {"number", "fraction", "above-2-53", "null", "string", "empty", "escapes", "unicode", "long"}
    for size in (100, 2000, 32768, 300000, 3000000, 20000000):
        for place in ("BeforeResult", "AfterResult"):
            assert f"{size}-1-{place}-long" in names
            assert f"{size}-6-{place}-long" in names
    assert {"batch-1", "batch-2", "batch-10", "batch-small"} <= names


def test_decoders_read_spliced_members(members, decode):
    check(members, decode)


def test_decoders_read_spliced_frames(members, decode_sized_zstd):
    """Each has the content size in its header."""
    frames = sorted(members[0].parent.glob("*.zst"))
    assert {frame.stem for frame in frames} >= {member.stem for member in members}
    check(frames, decode_sized_zstd)


def test_decoders_read_members_of_recorded_responses(tmp_path, decoder_processes):
    if not CORPUS.is_dir():
        pytest.skip("no ../shared/corpus beside the clone")
    results = []
    for path in sorted(CORPUS.rglob("test_*.json")):
        for n, call in enumerate(json.loads(path.read_bytes())):
            # a batch has a list of responses
            response = call["response"]
            result = response["result"] if "result" in response else response
            result = json.dumps(result, separators=(",", ":")).encode()
            if len(result) >= 1024:
                results.append(tmp_path / f"{path.parent.name}-{path.stem}-{n}.json")
                results[-1].write_bytes(result)
    # some of each size, not all of the small ones
    results = sorted(results, key=lambda path: path.stat().st_size)[:: times(21, 7)]
    directory = tmp_path / "members"
    directory.mkdir()
    members = splice(directory, *results)
    for decode in (gunzip, *decoder_processes.values()):
        check(members, decode)


@pytest.fixture(scope="module")
def served(members):
    """The members' directory, served with their content coding."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=members[0].parent)

        def end_headers(self):
            self.send_header("Content-Encoding", "gzip")
            super().end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_curl_decodes_spliced_members(members, served):
    for member in members:
        done = subprocess.run(
            ["curl", "-sS", "--fail", "--compressed", f"{served}/{member.name}"],
            capture_output=True,
        )
        assert done.returncode == 0, (member.name, done.stderr)
        assert done.stdout == member.with_suffix(".plain").read_bytes(), member.name


def test_decoders_detect_damage(members, decoder_processes):
    """The decoders of this file reject a damaged member."""
    for place in (-6, -1, 20):
        coded = bytearray(next(member for member in members if member.stem == "batch-10").read_bytes())
        coded[place] ^= 1
        for decode in (decoders.gzip_command, *decoder_processes.values()):
            with pytest.raises(decoders.DecoderError):
                decode(bytes(coded))
