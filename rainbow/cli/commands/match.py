"""`rainbow match`: one jobspec at a server, or many on files.

On files it shows how many clusters match each jobspec, and why the others do not.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from rainbow.cli.commands.submit import clusters_and_selector, refusals_shown, selector_given
from rainbow.cli.commands.verify import certified_answer, draw_certificates
from rainbow.cli.exit_codes import Exit
from rainbow.cli.input import files
from rainbow.cli.input.job_options import JobCommand, JobSource, check_read
from rainbow.cli.output import printer
from rainbow.cli.output.decisions import draw_explained, draw_match
from rainbow.cli.output.printer import table, words
from rainbow.cli.session import login, with_tokens
from rainbow.errors import NotFound
from rainbow.jobspec import Request, parse_jobspec
from rainbow.text import some

if TYPE_CHECKING:
    from rainbow.client import Client
    from rainbow.graph import Cluster

DEFAULT_BACKEND = "index"


@click.command(cls=JobCommand)
@clusters_and_selector
@click.option(
    "--explain",
    is_flag=True,
    help="Explain the result: what was requested, what each cluster offers, the smallest change that would match.",
)
@click.option(
    "--graph",
    "graphs",
    multiple=True,
    type=files.PATH,
    help="Match without a server, against this graph file or every cluster in this directory. Repeatable.",
)
@click.option("--certificate", is_flag=True, help="Show the rows that prove each yes, and what refutes each no.")
@click.option(
    "--held", type=files.PATH, help="With --graph of one file: what others hold, {vertex: amount, or null for all}."
)
@printer.output_option
@partial(with_tokens, alone_by="graphs")
def match(
    client: Client | None,
    given: JobSource,
    clusters: tuple[str, ...],
    selector: str | None,
    selector_options: Path | None,
    backend: str | None,
    explain: bool,
    graphs: tuple[Path, ...],
    certificate: bool,
    held: Path | None,
    output: str,
) -> None:
    """Show which clusters can run a jobspec and why the others cannot. Submits nothing.

    With --graph no server is asked, and WHAT may be several jobspecs or folders of them.
    """
    draw = draw_explained if explain else draw_match
    if held and client is not None:
        raise click.UsageError("--held needs --graph")
    if client is None:
        if selector or selector_options:
            raise click.UsageError("--selector cannot be used with --graph: selection runs on the server")
        among_files = _named(files.clusters_of(graphs), clusters)
        if len(requests := _requests(given)) > 1:
            swept = sweep(requests, among_files, explain, backend or DEFAULT_BACKEND)
            printer.show(output, swept, lambda console: draw_sweep(console, swept))
            _end(any(row["matched"] for row in swept["jobspecs"]))
        request = next(iter(requests.values()))
        if held and len(among_files) != 1:
            raise click.UsageError("--held needs --graph of one cluster")
        answer: Any = local_answer(request, among_files, explain, backend or DEFAULT_BACKEND)
        if certificate or held:
            answer = certified_answer(request, among_files, held, answer, backend or DEFAULT_BACKEND)
    else:
        jobspec = given.jobspec()
        among = [{"name": one} for one in clusters] or None
        chosen = selector_given(selector, selector_options)
        with refusals_shown(output, given.files):
            how: dict[str, Any] = {
                "explain": explain,
                "certificate": certificate,
                "backend": backend,
                "login": login(),
            }
            answer = client.match(jobspec, chosen, among, **how)
        request = parse_jobspec(jobspec)
    shown = partial(_draw_certified, draw=draw, request=request, answer=answer) if certificate else None
    printer.show(output, answer, shown or (lambda console: draw(console, dict(answer))))
    _end(bool(answer["candidates"]))


def _draw_certified(console: Console, draw: Any, request: Request, answer: Mapping[str, Any]) -> None:
    draw(console, dict(answer))
    draw_certificates(console, request, answer)


def _end(matched: bool) -> None:
    click.get_current_context().exit(Exit.OK if matched else Exit.NO_MATCH)


def _named(clusters: list[Cluster], names: tuple[str, ...]) -> list[Cluster]:
    """Keep the clusters that were named, all if none was."""
    known = {cluster.name for cluster in clusters}
    for name in names:
        if name not in known:
            raise NotFound(f"cluster {name} not found")
    return [cluster for cluster in clusters if not names or cluster.name in names]


def _requests(options: JobSource) -> dict[Path, Request]:
    if paths := options.files:
        result, faults = files.jobspecs_of(paths)
        for fault in faults.values():
            click.echo(f"rainbow: warning: skipped {printer.one_line(str(fault))}", err=True)
        if not result:
            raise click.UsageError("no jobspec found among these files")
        for path, request in result.items() if options.strict else ():
            check_read(request, str(path))
        return result
    return {Path("-"): parse_jobspec(options.jobspec())}


Row = dict[str, Any]


def local_answer(
    request: Request, clusters: Sequence[Cluster], explain: bool, backend: str = DEFAULT_BACKEND
) -> dict[str, Any]:
    """Answer one jobspec as the server does."""
    from rainbow.matching import Budget, backends, shown_explained, verdict_to_json  # who asks a server needs none
    from rainbow.matching import match as match_clusters

    verdicts = match_clusters(request, clusters, backend, budget=Budget(time.thread_time))
    answer = verdict_to_json(request, verdicts)
    if explain:
        answer = shown_explained(request, clusters, verdicts, backends.get(backend), Budget(time.thread_time))
    return {**answer, "warnings": [*answer["warnings"], *_down(clusters)]}


def _down(clusters: Iterable[Cluster]) -> Iterator[str]:
    """Say which clusters' graphs have nodes that are down: matching asks what the whole cluster can hold."""
    for one in clusters:
        entries = zip(one.outline.fields, one.outline.many, strict=True)
        if down := sum(many for fields, many in entries if "unavailable" in fields.metadata):
            yield f"{one.name}: counted {some(down, 'unavailable node')} as if available"


def sweep(
    requests: Mapping[Path, Request], clusters: Sequence[Cluster], explain: bool, backend: str = DEFAULT_BACKEND
) -> dict[str, Any]:
    """Match every jobspec with every cluster; count by jobspec and by folder of jobspecs."""
    rows = [{"jobspec": str(path), **_row(request, clusters, explain, backend)} for path, request in requests.items()]
    folders: dict[str, list[Row]] = {}
    for path, row in zip(requests, rows, strict=True):
        folders.setdefault(str(path.parent), []).append(row)
    return {
        "clusters": len(clusters),
        "jobspecs": rows,
        "folders": [{"folder": folder, **_sum(inside)} for folder, inside in folders.items()],
    }


def _row(request: Request, clusters: Sequence[Cluster], explain: bool, backend: str) -> Row:
    from rainbow.matching import Budget
    from rainbow.matching import match as match_clusters

    verdicts = match_clusters(request, clusters, backend, budget=Budget(time.thread_time))
    refused = {v.cluster: str(v.reason.why) if v.reason else "unknown" for v in verdicts if v.matched is False}
    row = {
        "of": len(clusters),
        "matched": sum(1 for v in verdicts if v.matched),
        "candidates": [v.cluster for v in verdicts if v.matched],
        "refusals": _counts(refused.values()),
        "undecided": sum(1 for v in verdicts if v.matched is None),
    }
    return {**row, "changes": _changes(request, clusters, refused, backend)} if explain else row


def _changes(
    request: Request, clusters: Iterable[Cluster], refused: Mapping[str, str], backend: str
) -> dict[str, int]:
    from rainbow.matching import backends, smallest_change

    chosen = backends.get(backend)
    results = [smallest_change(cluster, request, chosen) for cluster in clusters if cluster.name in refused]
    return _counts(change.text if change else "none found" for change in results)


def _counts(values: Iterable[str]) -> dict[str, int]:
    """Count values, the most frequent first."""
    return dict(sorted(Counter(values).items(), key=lambda item: (-item[1], item[0])))


def _sum(rows: Sequence[Row]) -> Row:
    summed: Row = {"jobspecs": len(rows), "of": sum(row["of"] for row in rows)}
    summed["matched"] = sum(row["matched"] for row in rows)
    summed["undecided"] = sum(row["undecided"] for row in rows)
    for key in ("refusals", "changes"):
        if key in rows[0]:
            summed[key] = _counts(value for row in rows for value, n in row[key].items() for _ in range(n))
    return summed


def draw_sweep(console: Console, swept: Mapping[str, Any]) -> None:
    """Show a line per jobspec, then a line per folder if there are several."""
    _draw(console, ["JOBSPEC"], ["jobspec"], swept["jobspecs"])
    if len(swept["folders"]) > 1:
        console.print()
        _draw(console, ["FOLDER", "JOBSPECS"], ["folder", "jobspecs"], swept["folders"])


def _draw(console: Console, titles: list[str], keys: list[str], rows: Sequence[Row]) -> None:
    titles, keys = [*titles, "MATCH", "OF", "REASON"], [*keys, "matched", "of", "refusals"]
    if any(row["undecided"] for row in rows):
        titles, keys = [*titles, "UNDECIDED"], [*keys, "undecided"]
    if any("changes" in row for row in rows):
        titles, keys = [*titles, "SMALLEST CHANGE"], [*keys, "changes"]
    console.print(table(titles, [[_cell(row[key]) for key in keys] for row in rows]))


def _cell(value: Any) -> Any:
    """Write counts as "core ≤ 2: 48"."""
    if isinstance(value, Mapping):
        return words([f"{key}: {count}" for key, count in value.items()])
    return value
