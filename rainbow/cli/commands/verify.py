"""`rainbow verify`, and what `rainbow match --certificate` shows: certificates and refutations, without a server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rainbow.certificate.document import names_of, read_certificate, read_held
from rainbow.certificate.refutation import read_refutations
from rainbow.cli.exit_codes import Exit
from rainbow.cli.input import files
from rainbow.cli.output.decisions import draw_rows
from rainbow.errors import InputError, RainbowError
from rainbow.jobspec import parse_jobspec
from rainbow.text import some

if TYPE_CHECKING:
    from rich.console import Console

    from rainbow.certificate.document import Certificate
    from rainbow.certificate.refutation import Refutation
    from rainbow.graph import Cluster
    from rainbow.jobspec import Request

MOST_BYTES = 64 * 10**6
UNREADABLE, NOT_CHECKED = 2, 3


@click.command()
@click.argument("answer", type=files.PATH)
@click.argument("file", type=files.PATH)
@click.option("--graph", required=True, type=files.PATH, help="The cluster's graph file.")
@click.option("--held", type=files.PATH, help="What others hold: a JSON mapping {vertex: amount, or null for all}.")
@click.option("--task", type=click.IntRange(min=0), help="The task that it is of, where tasks start by themselves.")
def verify(answer: Path, file: Path, graph: Path, held: Path | None, task: int | None) -> None:
    """Check that a printed answer is right: ANSWER is JSON of `match --certificate` or `job certificate`.

    FILE is the jobspec.

    Exits with 0 if it is verified, 1 if it is refused, 2 if it cannot be read, 3 if it says nothing to check.
    Asks no server.
    """
    try:
        if answer.stat().st_size > MOST_BYTES:
            raise InputError(f"{answer} is larger than {MOST_BYTES // 10**6} MB")
        cluster, request = one_cluster((graph,)), _part(parse_jobspec(files.text_of(file)), task)
        certificate, claims = _claims(files.json_of(answer), cluster)
        others = held_of(held, cluster)
    except (RainbowError, RecursionError) as fault:
        click.echo(f"rainbow: {fault}", err=True)
        click.get_current_context().exit(UNREADABLE)
    if certificate is None and claims is None:
        click.echo("not checked: the answer has no certificate for this cluster, and no refutation")
        click.get_current_context().exit(NOT_CHECKED)
    faults, unchecked, text = _checked(request, cluster, certificate, claims or [], others)
    for row in faults:
        click.echo(f"refused: {row}")
    for row in () if faults else unchecked:
        click.echo(f"not checked: {row}")
    if not faults and not unchecked:
        click.echo(f"verified: {text}")
    click.get_current_context().exit(Exit.ERROR if faults else NOT_CHECKED if unchecked else Exit.OK)


def _checked(
    request: Request,
    cluster: Cluster,
    certificate: Certificate | None,
    claims: list[Refutation],
    held: Mapping[str, int | None],
) -> tuple[list[str], list[str], str]:
    """Check a yes or a no: faults, what could not be checked, and what is verified."""
    from rainbow.matching import faults_of, faults_of_refutations

    if certificate is None:
        faults, unchecked = faults_of_refutations(request, cluster, claims, held)
        return faults, unchecked, f"it does not fit ({some(len(claims), 'variant')})"
    slots = sum(row.how == "at" for row in certificate.rows)
    faults = faults_of(request, cluster, certificate, held)
    return faults, [], f"{some(slots, 'slot')}, {some(len(certificate.rows), 'row')}"


def _part(request: Request, task: int | None) -> Request:
    """Return what the tasks ask for that start together with one; of a job that starts as one, all of it."""
    from rainbow.scheduling.gangs import gangs

    parts = gangs(request) if task is not None else ()
    result = next((gang.request for gang in parts if any(one.index == task for one in gang.tasks)), None)
    if task is not None and result is None:
        raise InputError(f"the jobspec has no task {task}")
    return result or request


def one_cluster(graphs: tuple[Path, ...]) -> Cluster:
    """Return the only cluster of some paths; what others hold is of one graph."""
    clusters = files.clusters_of(graphs)
    if len(clusters) != 1:
        raise InputError(f"expected one graph file, got {len(clusters)} clusters")
    return clusters[0]


def held_of(path: Path | None, cluster: Cluster) -> dict[str, int | None]:
    """Read what others hold of a cluster."""
    return read_held(files.json_of(path), cluster) if path else {}


def _claims(document: Any, cluster: Cluster) -> tuple[Certificate | None, list[Refutation] | None]:
    """Return what an answer of `match` says of a cluster, or the document itself as a certificate."""
    if not isinstance(document, Mapping) or "sha256" in document:
        return None, None
    if "candidates" not in document:
        return read_certificate(document), None
    for key, part in (("candidates", "certificate"), ("refusals", "refutation")):
        own = document.get(key)
        for one in own if isinstance(own, list) else ():
            if isinstance(one, Mapping) and one.get("cluster") in (cluster.name, None) and part in one:
                if key == "candidates":
                    return read_certificate(one[part]), None
                return None, read_refutations(one[part])
    return None, None


def certified_answer(
    request: Request, clusters: list[Cluster], held: Path | None, answer: dict[str, Any], backend: str
) -> dict[str, Any]:
    """Add certificates and refutations to an answer; with what others hold, of what is taken beside it."""
    from rainbow.matching import certified, match, take_beside

    if held is None:
        takes = {verdict.cluster: verdict.take for verdict in match(request, clusters, backend) if verdict.matched}
        return certified(request, clusters, answer, takes)
    (cluster,) = clusters
    others = held_of(held, cluster)
    return certified(request, clusters, answer, {cluster.name: take_beside(request, cluster, others)}, held=others)


def draw_certificates(console: Console, request: Request, answer: Mapping[str, Any]) -> None:
    """Draw the rows of every candidate's certificate, and what refutes each other cluster."""
    for one in answer["candidates"]:
        if "certificate" in one:
            said = read_certificate(one["certificate"])
            draw_rows(console, said, names_of(request.variants[said.variant]))
    for one in answer["refusals"]:
        for claim in read_refutations(one.get("refutation", [])):
            console.print(f"refuted by  {claim}", soft_wrap=True)
