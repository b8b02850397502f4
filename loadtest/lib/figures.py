"""Medians over rounds, ratios within a round, and the correctness of responses."""

from statistics import median

# Maximum ratio of the mean length of responses under load to the verified length.
LONGER = 1.5


class Figures:
    """Samples of a section."""

    def __init__(self, section):
        self.section = section
        self.by = {}
        for one in section["samples"]:
            self.by.setdefault(one["row"], {})[one["round"]] = one
        self.keys = list(self.by)

    def mid(self, key, value):
        of = [one[value] for one in self.by.get(key, {}).values() if value in one]
        of = [one for one in of if one is not None]
        return median(of) if of else None

    def most(self, key, value):
        of = [one[value] for one in self.by.get(key, {}).values() if one.get(value) is not None]
        return max(of) if of else None

    def total(self, key, value):
        return sum(one.get(value, 0) for one in self.by.get(key, {}).values())

    def ratio(self, key, other, value):
        """Returns the median ratio within the same rounds; None if one of the two has no
        value."""
        mine, theirs = self.by.get(key, {}), self.by.get(other, {})
        of = [
            mine[turn][value] / theirs[turn][value]
            for turn in mine
            if turn in theirs and mine[turn].get(value) and theirs[turn].get(value)
        ]
        return median(of) if of else None

    def failed(self, key):
        reasons = [one["failed"] for one in self.by.get(key, {}).values() if "failed" in one]
        return reasons[0] if reasons else ""

    def right(self, key):
        """Returns `yes`, or the errors before the load and under it."""
        problems = []
        before = self.section["verified"].get(key)
        if before and before["wrong"]:
            kinds = ", ".join(sorted(before["kinds"]))
            problems.append(f"{before['wrong']} of {before['asked']}: {kinds}")
        if count := self.total(key, "wrong"):
            problems.append(f"{count:g} under load")
        if count := self.total(key, "lost"):
            problems.append(f"{count:g} had no answer")
        if count := self.total(key, "statuses"):
            problems.append(f"{count:g} errors of HTTP under load")
        if count := self.total(key, "errors"):
            problems.append(f"{count:g} connections failed")
        audits = [one["audit"] for one in self.by.get(key, {}).values() if "audit" in one]
        if count := sum(audit["wrong"] for audit in audits):
            kinds = sorted({kind for audit in audits for kind in audit["kinds"]})
            checked = sum(audit["asked"] for audit in audits)
            problems.append(f"{count} of {checked} under load: {', '.join(kinds)}")
        expected = before["expected"] if before else 0
        wire = self.mid(key, "wire")
        # among few responses, some that wrk has received in part count much
        enough = 8 * self.section["connections"] < (self.mid(key, "requests") or 0)
        if expected and enough and not before["wrong"] and wire > LONGER * expected:
            problems.append(f"{wire:,.0f} bytes under load, {expected:,.0f} before")
        return "no: " + "; ".join(problems) if problems else "yes"


def ms(value):
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def number(value, digits=0):
    return "-" if value is None else f"{value:,.{digits}f}"


def share(value):
    return "-" if value is None else f"{100 * value:.1f} %" if value < 0.995 else f"{100 * value:.0f} %"


def megabytes(kb):
    return "-" if kb is None else f"{kb / 1024:,.0f}"


def times(value):
    return "-" if value is None else f"{value:.1f}x" if value < 100 else f"{value:,.0f}x"
