"""The comparison as a picture: requests per second by coder and group."""

from statistics import median

from matplotlib import pyplot

OURS, THEIRS = "#1b7f5c", "#8a8f98"
# Text stays text and ids do not change from run to run, so diffs are small.
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "sszip"}


def draw(data, path):
    pyplot.switch_backend("svg")
    pyplot.rcParams.update(STYLE)
    groups = list(data["groups"])
    figure, axes = pyplot.subplots(1, len(groups), figsize=(5.2 * len(groups), 3.6), squeeze=False)
    for axis, group in zip(axes[0], groups, strict=True):
        coders = [c for c in data["coders"] if c != "pass-through"]
        values, sizes = [], []
        for coder in coders:
            rows = [
                r for r in data["summary"] if (r["group"], r["coder"]) == (group, coder)
            ]
            values.append(median(r["rps"] for r in rows))
            sizes.append(median(r["bytes_ratio"] for r in rows))
        colours = [OURS if c.startswith("sszip") else THEIRS for c in coders]
        bars = axis.barh(coders, values, color=colours)
        labels = [f"{v:,.0f}/s, {s:.2f}x bytes" for v, s in zip(values, sizes, strict=True)]
        axis.bar_label(bars, labels, padding=4, fontsize=8)
        axis.invert_yaxis()
        axis.set_xlim(0, max(values) * 1.45)
        axis.set_title(f"{group} bodies", fontsize=10)
        axis.set_xlabel("requests per second, one worker", fontsize=8)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
