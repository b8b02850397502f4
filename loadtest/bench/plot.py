"""The comparisons as pictures."""

from statistics import median

from matplotlib import pyplot

OURS, THEIRS = "#1b7f5c", "#8a8f98"
# Text stays text and ids do not change from run to run, so diffs are small.
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "sszip"}


def draw(data, path):
    """Requests per second by coder and group."""
    groups = list(data["groups"])
    figure, axes = grid(len(groups))
    for axis, group in zip(axes, groups, strict=True):
        coders = [c for c in data["coders"] if c != "pass-through"]
        values, sizes = [], []
        for coder in coders:
            rows = [
                r for r in data["summary"] if (r["group"], r["coder"]) == (group, coder)
            ]
            values.append(median(r["rps"] for r in rows))
            sizes.append(median(r["bytes_ratio"] for r in rows))
        labels = [f"{v:,.0f}/s, {s:.2f}x bytes" for v, s in zip(values, sizes, strict=True)]
        chart(axis, f"{group} bodies", coders, values, labels)
        axis.set_xlabel("requests per second, one worker", fontsize=8)
    save(figure, path)


def bars(charts, unit, path):
    """Charts of a title, names and values, side by side."""
    figure, axes = grid(len(charts))
    for axis, (title, names, values) in zip(axes, charts, strict=True):
        chart(axis, title, names, values, [f"{v:,.0f}" for v in values])
        axis.set_xlabel(unit, fontsize=8)
    save(figure, path)


def grid(columns):
    pyplot.switch_backend("svg")
    pyplot.rcParams.update(STYLE)
    figure, axes = pyplot.subplots(1, columns, figsize=(5.2 * columns, 3.6), squeeze=False)
    return figure, axes[0]


def chart(axis, title, names, values, labels):
    colours = [OURS if n.startswith("sszip") else THEIRS for n in names]
    drawn = axis.barh(names, values, color=colours)
    axis.bar_label(drawn, labels, padding=4, fontsize=8)
    axis.invert_yaxis()
    axis.set_xlim(0, max(values) * 1.45)
    axis.set_title(title, fontsize=10)
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)


def save(figure, path):
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
