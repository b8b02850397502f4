"""Durations of the test files, so that the longest begin first.

tests/durations.json has seconds of one worker for each file above SHORTEST, recorded by
`SSZIP_RECORD_DURATIONS=1 make test`."""

import collections
import json
import os
import pathlib

from xdist.scheduler import LoadFileScheduling

RECORDED = pathlib.Path(__file__).with_name("durations.json")
SHORTEST = 2.0  # seconds; shorter files are not recorded
SECONDS_PER_TEST = 0.05  # of files that are not recorded
# Files whose tests share no server: workers share the tests.
SHARED_FILES = {
    "fleet/test_fleet_cluster_faults.py",
    "fleet/test_fleet_faults.py",
    "fleet/test_fleet_sentinel.py",
    "fleet/test_fleet_sharing.py",
    "fleet/test_fleet_start.py",
    "fleet/test_fleet_tls.py",
    "fleet/test_fleet_valkey.py",
    "fleet/test_fleet_views.py",
    "owner/test_owner_follow.py",
    "owner/test_owner_store.py",
}


class LongestFirst(LoadFileScheduling):
    """Assigns files to workers, the longest first: none that begins late delays the others."""

    def __init__(self, config, log=None):
        super().__init__(config, log)
        self._recorded = recorded()

    def _assign_work_unit(self, node):
        longest = max(self.workqueue, key=self._seconds)
        self.workqueue.move_to_end(longest, last=False)
        super()._assign_work_unit(node)

    def _split_scope(self, nodeid):
        file = super()._split_scope(nodeid)
        return nodeid if file in SHARED_FILES else file

    def _seconds(self, file):
        seconds = self._recorded.get(file.partition("::")[0])
        return seconds or SECONDS_PER_TEST * len(self.workqueue[file])


def recorded():
    return json.loads(RECORDED.read_text()) if RECORDED.exists() else {}


class Recorder:
    """Adds up the durations of each file's test phases, and writes them where configured."""

    def __init__(self):
        self._seconds = collections.Counter()

    def add(self, report):
        self._seconds[report.nodeid.partition("::")[0]] += report.duration

    def write(self):
        if not os.environ.get("SSZIP_RECORD_DURATIONS"):
            return
        known = {file: s for file, s in recorded().items() if file not in self._seconds}
        known |= {file: round(s, 1) for file, s in self._seconds.items() if s >= SHORTEST}
        text = json.dumps(dict(sorted(known.items())), indent=1)
        RECORDED.write_text(f"{text}\n")
