"""Targets of the comparison, and their measurements."""

from figures import Figures, ms, share, times

OURS = ("sszip-nginx", "sszip-envoy", "sszip-wasm")
CACHES, PROXYD, VARNISH = 10, 15, 5
SPARED, MISS, BYTES, P99, GROWTH = 0.8, 5, 1.1, 5, 1.1


def goals(results):
    """Returns rows of target, measurement and result; `met` is None if the figures do not
    decide."""
    names = {row["key"]: row["name"] for row in results["rows"]}
    sections = results["sections"]
    of = []
    if head := sections.get("head"):
        of += moving(Figures(head), names, results)
    for name in ("cold-30", "cold-246"):
        if name in sections:
            of += misses(Figures(sections[name]), names, name)
    if batch := sections.get("batch"):
        of += batches(Figures(batch), names)
    of += erigon(results, names)
    if results["quick"]:
        of = [row | {"met": None} for row in of]
    return of


def mine(names):
    return [key for key in OURS if key in names]


def moving(figures, names, results):
    for key in mine(names):
        for peer, least in (
            ("proxy-cache", CACHES), ("proxy-cache-ids", CACHES), ("proxyd", PROXYD), ("varnish", VARNISH),
            ("blutgang", None),
        ):
            if peer not in names:
                if peer == "proxyd" and key == "sszip-nginx":
                    yield {
                        "target": f"the mix, with a moving head: {PROXYD}x proxyd's requests/s per core",
                        "measured": "proxyd could not be had", "met": None,
                    }
                continue
            ratio = figures.ratio(key, peer, "per_core")
            right = figures.right(peer)
            yield {
                "target": f"{names[key]}: the mix, with a moving head: "
                + (f"at least {least}x the requests/s per core of {names[peer]}" if least
                   else f"beside {names[peer]} (no target)"),
                "measured": times(ratio) + ("" if right == "yes" else f" ({names[peer]}: {right})"),
                "met": None if least is None or ratio is None else ratio >= least,
            }
        reached = figures.mid(key, "asked")
        yield {
            "target": f"{names[key]}: ... the node has at least {SPARED:.0%} fewer requests",
            "measured": f"{share(reached)} of them reached it",
            "met": None if reached is None else reached <= 1 - SPARED,
        }
        first, last = figures.mid(key, "first_kb"), figures.mid(key, "resident_kb")
        if first and last:
            yield {
                "target": f"{names[key]}: ... resident memory flat (at most {GROWTH:g}x)",
                "measured": f"{first / 1024:.0f} MB, then {last / 1024:.0f} MB",
                "met": last <= GROWTH * first,
            }
        yield {
            "target": f"{names[key]}: ... every answer right",
            "measured": figures.right(key),
            "met": figures.right(key) == "yes" and not figures.failed(key),
        }


def misses(figures, names, name):
    peer = "nginx-gzip-6"
    if peer not in names:
        return
    for key in mine(names):
        ratio, size = figures.ratio(key, peer, "per_core"), figures.ratio(key, peer, "wire")
        yield {
            "target": f"{names[key]}: misses of {name.split('-')[1]} KB: at least {MISS}x the requests/s "
            f"per core of gzip 6 at no more than {BYTES:g}x its bytes",
            "measured": f"{times(ratio)} at {size:.2f}x" if ratio and size else "-",
            "met": None if ratio is None else ratio >= MISS and size <= BYTES,
        }


def batches(figures, names):
    peer = "nginx-gzip-1"
    if peer not in names:
        return
    for key in mine(names):
        size = figures.ratio(key, peer, "wire")
        yield {
            "target": f"{names[key]}: batches of small calls: at most {BYTES:g}x the bytes of gzip 1",
            "measured": "-" if size is None else f"{size:.2f}x",
            "met": None if size is None else size <= BYTES,
        }


def erigon(results, names):
    for section in results["rates"]:
        if not section["title"].startswith("Erigon"):
            continue
        figures = Figures(section)
        for key in mine(names):
            p99, success = figures.mid(key, "p99"), figures.mid(key, "success")
            right = figures.right(key)
            yield {
                "target": f"{names[key]}: {section['rate']:,.0f} blocks a second: every answer right, "
                f"99th percentile below {P99} ms",
                "measured": f"{ms(p99)} ms, {share(success)} answered, right: {right}",
                "met": None if p99 is None else p99 < P99 and right == "yes" and success > 0.999,
            }
