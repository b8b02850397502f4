"""An HTML page in one file, without external resources."""

import re
from html import escape

STYLE = """
:root { color-scheme: light dark; --bg: #fff; --ink: #1c2024; --soft: #5c6670; --line: #d9dee3;
  --panel: #f5f7f8; --ours: #12795a; --theirs: #8b949e; --control: #c3c9cf; --second: #b4561f;
  --third: #4b63c4; --bad: #b3261e; --good: #12795a; }
@media (prefers-color-scheme: dark) { :root { --bg: #14171a; --ink: #e6e9ec; --soft: #9aa4ae;
  --line: #343b42; --panel: #1c2125; --ours: #3fc495; --theirs: #78828c; --control: #4a535c;
  --second: #f0954f; --third: #90a4f4; --bad: #ff8a80; --good: #3fc495; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1120px; padding: 16px; background: var(--bg); color: var(--ink);
  font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .4em 0; }
h2 { font-size: 1.2rem; margin: 2em 0 .4em; border-top: 1px solid var(--line); padding-top: 1em; }
p { max-width: 72ch; } small, .soft { color: var(--soft); }
nav { columns: 260px; margin: 1em 0; } nav a { display: block; } a { color: var(--ours); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(300px, 100%), 1fr));
  gap: 20px; align-items: start; margin: 12px 0; }
figure { margin: 0; max-width: 560px; background: var(--panel); border-radius: 8px; padding: 12px; }
figcaption { font-weight: 600; margin-bottom: 6px; } figcaption small { display: block;
  font-weight: 400; }
svg { width: 100%; max-width: 480px; height: auto; display: block; }
svg text { fill: var(--ink); font-size: 11px; font-family: inherit; }
svg .value, svg .tick { fill: var(--soft); font-size: 10px; } svg .grid { stroke: var(--line); }
.table { overflow-x: auto; margin: 12px 0; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 4px 9px; border-bottom: 1px solid var(--line);
  white-space: nowrap; overflow-wrap: normal; }
th { color: var(--soft); font-weight: 600; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: var(--bg);
  white-space: normal; min-width: 104px; }
th.text, td.text { text-align: left; white-space: normal; min-width: 104px; }
@media (min-width: 720px) { td:first-child { min-width: 180px; } }
tr.ours td { font-weight: 600; } .bad { color: var(--bad); } .good { color: var(--good); }
details { margin: 8px 0; } summary { cursor: pointer; }
code { font-size: .92em; } pre { background: var(--panel); padding: 12px; border-radius: 8px; overflow-x: auto; font-size: 12px;
  overflow-wrap: normal; }
"""


def page(title, parts):
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n{body}\n</body>\n</html>\n"
    )


def heading(text, name):
    return f'<h2 id="{escape(name)}">{escape(text)}</h2>'


def paragraph(text):
    return f"<p>{words(text)}</p>"


def words(text):
    """Converts text with names in backticks to HTML."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))


def links(of):
    """Returns links to the parts of the page, from their names and titles."""
    return "<nav>" + "".join(f'<a href="#{escape(n)}">{escape(t)}</a>' for n, t in of) + "</nav>"


def plots(of):
    return '<div class="plots">' + "".join(of) + "</div>"


def table(header, rows, ours=(), text=()):
    """Renders a table. `rows` are lists of cells, `ours` are the numbers of highlighted rows,
    `text` are the columns with words."""
    heads = (
        f"<th{' class=text' if n in text else ''}>{escape(str(cell))}</th>"
        for n, cell in enumerate(header)
    )
    lines = [f"<tr>{''.join(heads)}</tr>"]
    for number, row in enumerate(rows):
        cells = []
        for column, cell in enumerate(row):
            css = ["text"] if column in text else []
            css += ["bad"] if str(cell).startswith("no:") or cell == "not met" else []
            css += ["good"] if str(cell) in ("yes", "met") else []
            name = f' class="{" ".join(css)}"' if css else ""
            cells.append(f"<td{name}>{words(str(cell))}</td>")
        lines.append(f"<tr{' class=ours' if number in ours else ''}>{''.join(cells)}</tr>")
    return f'<div class="table"><table>{"".join(lines)}</table></div>'


def folded(title, text):
    return f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>"


def markdown(header, rows):
    lines = ["| " + " | ".join(map(str, header)) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(str(c).replace("|", "\\|") for c in row) + " |" for row in rows]
    return "\n".join(lines)
