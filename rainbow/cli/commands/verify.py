"""`rainbow verify`, and what `rainbow match --certificate` shows: certificates on files, without a server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rainbow.certificate.document import read_certificate, read_held, written
from rainbow.cli.exit_codes import Exit
from rainbow.cli.input import files
from rainbow.cli.output.printer import table
from rainbow.errors import InputError, RainbowError
from rainbow.jobspec import parse_jobspec

if TYPE_CHECKING:
    from rich.console import Console

    from rainbow.certificate.document import Certificate
    from rainbow.graph import Cluster
    from rainbow.jobspec import Request

MOST_BYTES = 64 * 10**6
UNREADABLE, NOT_CHECKED = 2, 3


@click.command()
@click.argument("answer", type=files.PATH)
@click.argument("file", type=files.PATH)
@click.option("--graph", required=True, type=files.PATH, help="The cluster's graph file.")
@click.option("--held", type=files.PATH, help="What others hold: a JSON mapping {vertex: amount, or null for all}.")
def verify(answer: Path, file: Path, graph: Path, held: Path | None) -> None:
    """Check that a printed answer is right: ANSWER is JSON of `rainbow match --certificate`, FILE the jobspec.

    Exits with 0 if it is verified, 1 if it is refused, 2 if it cannot be read, 3 if it says nothing to check.
    Asks no server.
    """
    from rainbow.matching import faults_of

    try:
        if answer.stat().st_size > MOST_BYTES:
            raise InputError(f"{answer} is larger than {MOST_BYTES // 10**6} MB")
        cluster, request = one_cluster((graph,)), parse_jobspec(files.text_of(file))
        certificate = _certificate(files.json_of(answer), cluster)
        others = held_of(held, cluster)
    except (RainbowError, RecursionError) as fault:
        click.echo(f"rainbow: {fault}", err=True)
        click.get_current_context().exit(UNREADABLE)
    if certificate is None:
        click.echo("not checked: the answer has no certificate for this cluster")
        click.get_current_context().exit(NOT_CHECKED)
    faults = faults_of(request, cluster, certificate, others)
    for row in faults:
        click.echo(f"refused: {row}")
    if not faults:
        slots = sum(row.how == "at" for row in certificate.rows)
        click.echo(f"verified: {slots} slots, {len(certificate.rows)} rows")
    click.get_current_context().exit(Exit.ERROR if faults else Exit.OK)


def one_cluster(graphs: tuple[Path, ...]) -> Cluster:
    """Return the only cluster of some paths; what others hold is of one graph."""
    clusters = files.clusters_of(graphs)
    if len(clusters) != 1:
        raise InputError(f"expected one graph file, got {len(clusters)} clusters")
    return clusters[0]


def held_of(path: Path | None, cluster: Cluster) -> dict[str, int | None]:
    """Read what others hold of a cluster."""
    return read_held(files.json_of(path), cluster) if path else {}


def _certificate(document: Any, cluster: Cluster) -> Certificate | None:
    """Return the certificate of a cluster in an answer of `match`, or the document itself as one."""
    if not (isinstance(document, Mapping) and "candidates" in document):
        return read_certificate(document)
    own = document["candidates"]
    for one in own if isinstance(own, list) else ():
        if isinstance(one, Mapping) and one.get("cluster") in (cluster.name, None) and one.get("certificate"):
            return read_certificate(one["certificate"])
    return None


def certified_answer(
    request: Request, clusters: list[Cluster], held: Path | None, answer: dict[str, Any], backend: str
) -> dict[str, Any]:
    """Add certificates to an answer; with what others hold, of what is taken beside it."""
    from rainbow.matching import match, take_beside

    if held is None:
        takes = {verdict.cluster: verdict.take for verdict in match(request, clusters, backend) if verdict.matched}
    else:
        (cluster,) = clusters
        takes = {cluster.name: take_beside(request, cluster, held_of(held, cluster))}
    candidates = []
    for one in answer["candidates"]:
        if (take := takes.get(one["cluster"])) is not None:
            candidates.append({**one, "certificate": written(take.certificate())})
        else:
            text = "it fits on the empty cluster, not beside what others hold"
            answer["refusals"].append({"cluster": one["cluster"], "reason": "not-free", "text": text})
    return {**answer, "candidates": candidates}


def draw_certificates(console: Console, request: Request, answer: Mapping[str, Any]) -> None:
    """Draw the rows of every candidate's certificate."""
    for one in answer["candidates"]:
        if "certificate" not in one:
            continue
        said = read_certificate(one["certificate"])
        names = [part for tree in request.variants[said.variant] for part in tree.walk()]
        cells = []
        for n, row in enumerate(said.rows):
            part = names[row.request]
            called = f"slot {part.label}".strip() if part.is_slot else part.type
            wanted = f" × {part.count.min}" if part.count.min > 1 and not part.is_slot else ""
            below = "-" if row.up < 0 else str(row.up)
            vertex = "-" if row.vertex is None else row.vertex or "outside"
            cells.append([str(n), below, f"{called}{wanted}", row.how, vertex, str(row.amount or "")])
        console.print(table(["ROW", "BELOW", "REQUEST", "HOW", "VERTEX", "AMOUNT"], cells))
