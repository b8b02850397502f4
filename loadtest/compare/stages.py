"""Servers in front of one node, all of them running, and measured in turn.

Rounds are interleaved: each workload goes through all servers, each time beginning with
another one, before the next round; ratios are computed within a round.
"""

import http_client
import response_checks
import wrk_runs
import servers
from stack import LOAD_CORE, Node


class Stage:
    """A node and a server per row. A server that does not start is omitted and reported."""

    def __init__(self, work, name, ground, rows, log, slot_ms=0, core=0):
        self.work, self.log, self.rows = work / name, log, []
        self.work.mkdir(parents=True)
        # nginx's worker may run as another user and must reach its folders
        self.work.chmod(0o755)
        self.node = Node(self.work, ground.folders, LOAD_CORE, ground.options)
        self.servers, self.absent, self.files = {}, {}, {}
        stage = servers.Stage(self.work, self.node.port, slot_ms, core)
        try:
            for row in rows:
                try:
                    self.servers[row.key] = servers.start(row, stage)
                    self.rows.append(row)
                except (SystemExit, OSError) as failed:
                    self.absent[row.key] = str(failed)[-500:]
                    log(f"{row.name} did not start and is skipped: {str(failed)[-200:]}")
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in self.servers.values():
            server.close()
        self.node.__exit__()

    def configs(self):
        return {key: server.config for key, server in self.servers.items()}

    def complaints(self):
        logs = {key: server.complaints() for key, server in self.servers.items()}
        return {key: text[-2000:] for key, text in logs.items() if text}

    def file(self, workload, row):
        """Returns the file for wrk, in the row's coding if the workload is compressed."""
        coding = coding_of(workload, row)
        key = workload.name, coding
        if key not in self.files:
            self.files[key] = self.work / f"{workload.name}-{coding or 'identity'}.calls"
            workload.write(self.files[key], coding)
        return self.files[key]

    def verify(self, workload):
        """Returns for each row the right and wrong responses before there is load."""
        found = {}
        for row in self.rows:
            server = self.servers[row.key]
            found[row.key] = response_checks.verify(
                server, workload, http_client.local_address(self.node.port), coding_of(workload, row)
            )
            found[row.key]["expected"] = response_checks.expected(found[row.key], workload)
            if found[row.key]["wrong"]:
                self.log(f"{row.name}, {workload.name}: {wrong_text(found[row.key])}")
        return found

    def closed(self, workload, rounds, seconds, warm=1, before=None):
        """Returns a section with all results of a workload. `before` is called in place of
        each measurement."""
        self.log(workload.title)
        verified = self.verify(workload)
        if warm:
            for row in (row for row in self.rows if row.keeps):
                attempt(lambda row=row: self.point(row, workload, warm, 0), self.log, row)
        samples = []
        for turn in range(rounds):
            first = turn % len(self.rows)
            for row in self.rows[first:] + self.rows[:first]:
                point = attempt(
                    lambda row=row, turn=turn: (before or self.point)(row, workload, seconds, turn),
                    self.log, row,
                )
                samples.append({"row": row.key, "round": turn} | point)
        return section(workload, verified, samples)

    def point(self, row, workload, seconds, turn):
        return wrk_runs.measure_closed_loop(
            self.servers[row.key], workload, self.file(workload, row), seconds,
            http_client.local_address(self.node.port), 997 * turn,
        )


def section(workload, verified, samples):
    return {
        "title": workload.title,
        "note": workload.note,
        "connections": workload.connections,
        "calls": len(workload.calls),
        "verified": verified,
        "samples": samples,
    }


def attempt(measured, log, row):
    """Returns a measurement, or the reason of its failure, so that the others continue."""
    try:
        return measured()
    except (wrk_runs.LoadError, OSError) as failed:
        log(f"{row.name}: measurement failed: {failed}")
        return {"failed": str(failed)}


def coding_of(workload, row):
    return row.coding or "gzip" if workload.coding else ""


def wrong_text(found):
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(found["kinds"].items()))
    return f"{found['wrong']} of {found['asked']} responses were wrong: {kinds}"
