"""How long a server takes to be ready over a store with many clusters, and how much memory it then holds."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.served import Graph, fill, listed, serving, template

PROMISED = 10.0  # seconds, with 1,000 clusters of 1,000 nodes
FORMS: dict[str, Graph] = {"templates, no two equal": template, "listed, 5,001 vertices each": listed}


def starting(counts: tuple[int, ...] = (500, 1_000, 2_000), nodes: int = 1_000) -> None:
    """Print seconds until /readyz answers, their CPU, and megabytes, as the clusters grow."""
    print(f"\nstart with clusters of {nodes} nodes")
    print(f"{'graphs':>30}" + "".join(f"{word:>14}" for word in ("clusters", "again", "ready s", "CPU s", "MB")))
    for form, graph in FORMS.items():
        for clusters in counts:
            with tempfile.TemporaryDirectory() as folder:
                url = f"{folder}/rainbow.db"
                fill(url, clusters, nodes, graph)
                for again in ("first", "second"):
                    with serving(url, Path(folder)) as served:
                        cells = (
                            clusters,
                            again,
                            f"{served.ready:.1f}",
                            f"{served.cpu():.1f}",
                            f"{served.memory():.0f}",
                        )
                        told = _judged(clusters, served.ready) if nodes == 1_000 else ""
                    print(f"{form:>30}" + "".join(f"{cell:>14}" for cell in cells) + told, flush=True)


def _judged(clusters: int, ready: float) -> str:
    if clusters != 1_000:
        return ""
    return f"   {'within' if ready <= PROMISED else 'over'} the promised {PROMISED:.0f} s"
