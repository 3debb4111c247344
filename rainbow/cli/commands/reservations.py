"""`rainbow reserve`: create, maintenance, list, show, delete, reopen."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from rainbow.cli.input.files import text_of
from rainbow.cli.input.job_options import moment, some_duration
from rainbow.cli.output import printer
from rainbow.cli.session import login, with_secret, with_tokens
from rainbow.client import Client

START = "Start time, as 2030-01-31T12:00:00Z, or local without Z."


@click.group()
def reserve() -> None:
    """Manage advance reservations and maintenance: create, maintenance, list, show, delete, reopen.

    A job runs in it that names it: attributes.system.reservation of its jobspec.
    """


@reserve.command()
@click.argument("file", required=False, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--cluster", required=True)
@click.option("-N", "-n", "--nodes", type=click.IntRange(1), help="Nodes.")
@click.option("-c", "--cores", type=click.IntRange(1), help="Cores per node.")
@click.option("-g", "--gpus", type=click.IntRange(1), help="GPUs per node.")
@click.option(
    "--start",
    callback=moment,
    help=f"{START} Default: as early as possible.",
)
@click.option("--end", callback=moment, help="End time; alternative to --duration.")
@click.option(
    "-t",
    "--duration",
    metavar="DURATION",
    callback=some_duration,
    help="Duration: seconds, or 10m, 2h, 1d, HH:MM:SS.",
)
@click.option(
    "--user",
    "--requestor",
    "requestor",
    help="Owner of the reservation; your login by default, where the token allows it.",
)
@click.option(
    "--for",
    "requestors",
    multiple=True,
    help="User who may also use the reservation; * for everyone. Repeatable.",
)
@click.option("--name", help="Name of the reservation.")
@printer.output_option
@with_tokens
def create(
    client: Client,
    file: Path | None,
    cluster: str,
    nodes: int | None,
    cores: int | None,
    gpus: int | None,
    requestors: tuple[str, ...],
    output: str,
    **times_and_names: Any,
) -> None:
    """Create a reservation for the resources of a jobspec FILE (- for stdin), or for -n/-c/-g."""
    if (file is None) == (nodes is None and cores is None and gpus is None):
        raise click.UsageError("missing resources: give a jobspec FILE (- for stdin), or -n, -c or -g")
    _check_times(**times_and_names)
    made = client.reserve(
        cluster,
        text_of(file) if file else _jobspec(nodes, cores, gpus),
        requestors=requestors or None,
        login=None if times_and_names["requestor"] else login(),
        **times_and_names,
    )
    printer.show(output, made, _facts(made))


def _check_times(start: str | None, end: str | None, duration: float | None, **_: Any) -> None:
    if (end is None) == (duration is None) or (end and not start):
        raise click.UsageError("give either -t, or --start and --end")


def _jobspec(nodes: int | None, cores: int | None, gpus: int | None) -> dict[str, Any]:
    from rainbow.jobspec import jobspec_of

    return jobspec_of(("true",), nodes=nodes or 0, cores=cores or 1, gpus=gpus or 0, duration=0.0)


@reserve.command()
@click.argument("workers")
@click.option("--cluster", required=True)
@click.option("--start", callback=moment, help=f"{START} Default: now.")
@click.option("--end", callback=moment, help="End time; alternative to --duration.")
@click.option(
    "-t",
    "--duration",
    metavar="DURATION",
    callback=some_duration,
    help="Duration: seconds, or 10m, 2h, 1d, HH:MM:SS.",
)
@click.option("--name", help="Name of the maintenance.")
@click.option(
    "--at-begin",
    type=click.Choice(["requeue", "cancel"]),
    help="Requeue tasks, or cancel jobs, that still run there at the start. Default: they run on.",
)
@click.option("--preview", is_flag=True, help="List what is in the way, and make nothing.")
@printer.output_option
@with_secret
def maintenance(client: Client, cluster: str, workers: str, output: str, **options: Any) -> None:
    """Keep WORKERS (a hostlist) free of jobs for a time; list what must end or moves."""
    _check_times(**options)
    made = client.maintain(cluster, workers, **options)
    printer.show(output, made, _facts(made))
    if options["preview"] and output in printer.DRAWN:
        click.echo("preview: nothing was changed")


@reserve.command(name="list")
@click.option("--cluster", required=True)
@click.option("--over", is_flag=True, help="Include reservations that have ended.")
@printer.output_option
@with_tokens
def list_reservations(client: Client, cluster: str, over: bool, output: str) -> None:
    """List the reservations of a cluster that you may see."""
    results = client.reservations(cluster, over=over)
    titles = ["ID", "NAME", "STATE", "USER", "FOR", "START", "END", "KEEPS"]
    table = printer.table(titles, map(_row, results))
    printer.show(output, results, table)


def _row(one: dict[str, Any]) -> list[Any]:
    anybody = "anybody" if one["requestors"] is None else one["requestors"] or "maintenance"
    times = [printer.when(one["start"]), printer.when(one["end"])]
    held = printer.held(one, one.get("units"))
    return [one["id"], one["name"], one["state"], one["requestor"], anybody, *times, held]


def _facts(one: Mapping[str, Any]) -> printer.Facts:
    """Return a reservation as a list of names and values, amounts in words."""
    shown = {key: value for key, value in one.items() if key != "units"}
    return printer.facts({**shown, "placement": printer.held(one, one.get("units"))})


@reserve.command()
@click.argument("reservation_id")
@click.option("--cluster", required=True)
@printer.output_option
@partial(with_tokens, and_secret=True)
def show(client: Client, reservation_id: str, cluster: str, output: str) -> None:
    """Show one; with what is in its way, if you may delete it."""
    result = client.reservation(cluster, reservation_id)
    printer.show(output, result, _facts(result))


@reserve.command()
@click.argument("reservation_id")
@click.option("--cluster", required=True)
@with_tokens
def delete(client: Client, reservation_id: str, cluster: str) -> None:
    """Delete a reservation. Jobs that use it are stopped."""
    client.delete_reservation(cluster, reservation_id)


@reserve.command()
@click.argument("reservation_id")
@click.option("--cluster", required=True)
@with_secret
def reopen(client: Client, reservation_id: str, cluster: str) -> None:
    """End a maintenance now: jobs start on its workers again."""
    client.delete_reservation(cluster, reservation_id)
