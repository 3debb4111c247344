"""How long a server takes to be ready over a store with many clusters, and how much memory it then holds."""

from __future__ import annotations

import tempfile
from pathlib import Path

import sqlalchemy as sa

from benchmarks.served import Graph, fill, listed, serving, template
from rainbow.store import open_store
from rainbow.store.schema import summaries

PROMISED = 10.0  # seconds, with 1,000 clusters of 1,000 nodes
FORMS: dict[str, Graph] = {"templates, no two equal": template, "listed, 5,001 vertices each": listed}
ANEW = 50  # clusters whose graphs are read, as at the first start after a release that changes what is kept of them


def starting(counts: tuple[int, ...] = (500, 1_000, 2_000), nodes: int = 1_000) -> None:
    """Print seconds until /readyz answers, their CPU, and megabytes, as the clusters grow."""
    print(f"\nstart with clusters of {nodes} nodes")
    print(f"{'graphs':>40}" + "".join(f"{word:>12}" for word in ("clusters", "ready s", "CPU s", "MB")))
    for form, graph in FORMS.items():
        for clusters in counts:
            _row(form, graph, clusters, nodes, anew=False)
        _row(f"{form}, read anew", graph, ANEW, nodes, anew=True)


def _row(form: str, graph: Graph, clusters: int, nodes: int, *, anew: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"{folder}/rainbow.db"
        fill(url, clusters, nodes, graph)
        if anew:
            _forget_summaries(url)
        with serving(url, Path(folder)) as served:
            cells = (clusters, f"{served.ready:.1f}", f"{served.cpu():.1f}", f"{served.memory():.0f}")
            text = _judged(served.ready) if (clusters, nodes) == (1_000, 1_000) else ""
        print(f"{form:>40}" + "".join(f"{cell:>12}" for cell in cells) + text, flush=True)


def _forget_summaries(url: str) -> None:
    store = open_store(url)
    with store.write() as connection:
        connection.execute(sa.delete(summaries))
    store.close()


def _judged(ready: float) -> str:
    return f"   {'within' if ready <= PROMISED else 'over'} the promised {PROMISED:.0f} s"
