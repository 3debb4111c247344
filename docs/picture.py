"""The picture of the README: `python docs/picture.py` writes docs/rainbow.svg.

What it says of the three example clusters is what `rainbow.match` and `rainbow.select` answer.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import rainbow  # noqa: E402 - the checkout that this file is in
from rainbow.cli.demo import examples  # noqa: E402

JOBSPEC = "reader-and-writer.yaml"
CHEAPEST = {"priorities": [{"priority": 1, "steps": [{"sort_ascending": "cost_per_node_hour"}, {"select": "first"}]}]}
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2933 } .small { font-size: 11px; fill: #52606d }
.head { font-weight: 600 } .box { fill: #f5f7fa; stroke: #9aa5b1 } .line { stroke: #9aa5b1; fill: none }
.no { fill: #c53030 } .can { fill: #9aa5b1 } .yes { fill: #2f855a } .busy { fill: #cbd2d9 }
@media (prefers-color-scheme: dark) {
text { fill: #e4e7eb } .small { fill: #cbd2d9 } .box { fill: #1f2933; stroke: #7b8794 } .busy { fill: #52606d } }
"""
VERDICT = {"no": "does not match", "can": "matches", "yes": "selected"}
ROW, TOP = 84, 62  # height of a cluster's row, and where the first one begins
ARROW = '<path class="line" d="M {} {} h {} m -6 -4 l 6 4 l -6 4"/>'


def answers() -> tuple[list[tuple[str, int, str, str]], str]:
    """Return (cluster, its nodes, class of its color, what is said of it) for each, and the chosen cluster."""
    clusters, states = [], {}
    for one in examples.clusters():
        clusters.append(rainbow.read_cluster(one.graph, name=one.name))
        states[one.name] = one.state
    job = rainbow.parse_jobspec((examples.JOBSPECS / JOBSPEC).read_text())
    verdicts = rainbow.match(job, clusters)
    chosen = rainbow.select(job, verdicts, states, selector="constraint", options=CHEAPEST).cluster or ""
    rows = []
    for verdict, cluster in zip(verdicts, clusters, strict=True):
        color = "no" if not verdict.matched else "yes" if verdict.cluster == chosen else "can"
        price = f"costs {states[verdict.cluster]['cost_per_node_hour']} per node-hour"
        said = verdict.reason.text if verdict.reason else f"fits {verdict.fits} times; {price}"
        rows.append((verdict.cluster, len(cluster.workers), color, said))
    return rows, chosen


def text(x: int, y: int, words: str, kind: str = "") -> str:
    """Return a line of text."""
    return f'<text x="{x}" y="{y}" class="{kind}">{escape(words)}</text>'


def drawn_cluster(row: int, name: str, nodes: int, color: str, said: str) -> Iterator[str]:
    """Draw a cluster as a tree of its nodes, with what matching said of it."""
    y = TOP + row * ROW
    yield f'<rect class="box" x="200" y="{y}" width="412" height="{ROW - 12}" rx="6"/>'
    shown = min(nodes, 8)
    for k in range(shown):
        x = 216 + 18 * k
        yield f'<path class="line" d="M {209 + 9 * shown} {y + 14} L {x} {y + 32}"/>'
        yield f'<rect class="{color}" x="{x - 5}" y="{y + 30}" width="10" height="10" rx="2"/>'
    yield f'<circle class="{color}" cx="{209 + 9 * shown}" cy="{y + 13}" r="6"/>'
    yield text(360, y + 24, f"{name}, {nodes} nodes: {VERDICT[color]}", "head")
    yield text(210, y + 62, said, "small")
    yield ARROW.format(160, y + 36, 38)


def timeline(chosen: str, row: int) -> Iterator[str]:
    """Draw the nodes of the chosen cluster over time with the job's two tasks; other jobs' bars are made up."""
    y = TOP + row * ROW
    yield ARROW.format(612, y + 36, 36)
    yield text(652, 52, f"3. start its tasks on {chosen}", "head")
    for k, busy in enumerate((0, 96, 60, 120)):
        line = 84 + 46 * k
        yield text(652, line + 16, f"{chosen}{k}", "small")
        yield f'<path class="line" d="M 712 {line + 24} h 152"/>'
        if busy:
            yield f'<rect class="busy" x="712" y="{line}" width="{busy}" height="22" rx="3"/>'
    for k, name in enumerate(("4 readers", "1 writer")):
        yield f'<rect class="yes" x="712" y="{80 + 14 * k}" width="110" height="13" rx="3"/>'
        yield f'<text x="718" y="{90 + 14 * k}" style="font-size: 10px; fill: #fff">{name}</text>'
    yield text(712, 282, "now", "small") + text(830, 282, "time →", "small")


def picture() -> str:
    """Return the SVG."""
    rows, chosen = answers()
    parts = [
        text(20, 52, "A jobspec", "head"),
        text(200, 52, "1. match every cluster", "head"),
        text(400, 52, "2. select one: here the cheapest", "head"),
        '<rect class="box" x="16" y="110" width="144" height="128" rx="6"/>',
        *(
            text(28, 134 + 20 * k, words)
            for k, words in enumerate(("one node with", "4 × 1 core, 4 GB", "1 × 6 cores, 24 GB"))
        ),
        text(28, 206, "(reader-and-", "small"),
        text(28, 222, "writer.yaml)", "small"),
    ]
    for k, row in enumerate(rows):
        parts += drawn_cluster(k, *row)
        if row[0] == chosen:
            parts += timeline(chosen, k)
    parts.append(text(16, 24, "Which cluster should run this job, and when does each task start there?", "head"))
    body = "\n".join(parts)
    label = "A jobspec is matched against three clusters, one is selected, its tasks start there"
    size = 'viewBox="0 0 880 320" width="880" height="320"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}">\n'
        f"<style>{STYLE}</style>\n{body}\n</svg>\n"
    )


if __name__ == "__main__":
    (HERE / "rainbow.svg").write_text(picture(), encoding="utf-8")
