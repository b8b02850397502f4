"""Plots as SVG for a page, in the page's colours (light and dark), readable on a phone."""

import math
from html import escape

WIDTH = 340
ROW = 30
COLOURS = {"ours": "var(--ours)", "theirs": "var(--theirs)", "control": "var(--control)"}
LINES = ["var(--ours)", "var(--second)", "var(--third)", "var(--theirs)"]


def short(value):
    """Returns a number with three digits."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def bars(title, unit, items):
    """Draws bars. `items` are name, value, kind, and a text after the value."""
    most = max((value for _, value, _, _ in items), default=0) or 1
    room = WIDTH - 86
    parts = []
    for index, (name, value, kind, suffix) in enumerate(items):
        top = 4 + index * ROW
        length = max(1, room * value / most)
        weight = ' font-weight="600"' if kind == "ours" else ""
        parts.append(
            f'<text x="0" y="{top + 10}" class="name"{weight}>{escape(name)}</text>'
            f'<rect x="0" y="{top + 14}" width="{length:.1f}" height="10" rx="2" '
            f'fill="{COLOURS[kind]}"><title>{escape(name)}: {short(value)} {escape(unit)}</title></rect>'
            f'<text x="{length + 5:.1f}" y="{top + 23}" class="value">{short(value)}'
            f"{escape(' ' + suffix if suffix else '')}</text>"
        )
    return figure(title, unit, 8 + len(items) * ROW, "".join(parts))


def figure(title, unit, height, inside):
    return (
        f'<figure><figcaption>{escape(title)}<small>{escape(unit)}</small></figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}, {escape(unit)}">'
        f"{inside}</svg></figure>"
    )


def lines(title, x_unit, y_unit, series, log_x=True, log_y=False):
    """Draws lines. `series` maps names to points; a line whose name ends with "model" is
    dashed."""
    points = [p for of in series.values() for p in of]
    if not points:
        return ""
    left, right, top, height = 46, 18, 10, 190
    x_of = scale([x for x, _ in points], left, WIDTH - right, log_x)
    lowest = [] if log_y else [0]
    y_of = scale([y for _, y in points] + lowest, top + height, top, log_y)
    parts = []
    for value in ticks([y for _, y in points] + lowest, log_y):
        y = y_of(value)
        parts.append(
            f'<line x1="{left}" x2="{WIDTH - right}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
            f'<text x="{left - 4}" y="{y + 3:.1f}" class="tick" text-anchor="end">{si_text(value)}</text>'
        )
    for value in sorted({x for x, _ in points}):
        parts.append(
            f'<text x="{x_of(value):.1f}" y="{top + height + 14}" class="tick" '
            f'text-anchor="middle">{si_text(value)}</text>'
        )
    legend = top + height + 32
    for number, (name, of) in enumerate(series.items()):
        colour = LINES[number % len(LINES)]
        dash = ' stroke-dasharray="4 3"' if name.endswith("model") else ""
        path = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in sorted(of))
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'
        )
        for x, y in of:
            parts.append(
                f'<circle cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="2.6" fill="{colour}">'
                f"<title>{escape(name)}: {short(x)}, {short(y)}</title></circle>"
            )
        at = legend + 16 * number
        parts.append(
            f'<line x1="{left}" x2="{left + 18}" y1="{at - 4}" y2="{at - 4}" stroke="{colour}" '
            f'stroke-width="2"{dash}/><text x="{left + 24}" y="{at}" class="value">{escape(name)}</text>'
        )
    return figure(title, f"{y_unit}, by {x_unit}", legend + 16 * len(series) - 6, "".join(parts))


def si_text(value):
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:.3g}"


def scale(values, low, high, is_log):
    turn = (lambda v: math.log10(max(v, 1e-9))) if is_log else (lambda v: v)
    first, last = turn(min(values)), turn(max(values))
    span = (last - first) or 1
    return lambda value: low + (turn(value) - first) / span * (high - low)


def ticks(values, is_log):
    first, last = min(values), max(values)
    if is_log:
        powers = range(math.ceil(math.log10(first)), math.floor(math.log10(last)) + 1)
        return [10.0**p for p in powers] or [first, last]
    step = 10 ** math.floor(math.log10(last or 1))
    step *= 0.5 if last / step < 2.5 else 1
    return [n * step for n in range(int(last / step) + 1)]
