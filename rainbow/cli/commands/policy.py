"""`rainbow policy`: check, test, diff."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from rainbow.cli.exit_codes import Exit
from rainbow.cli.input import settings_file
from rainbow.cli.input.files import json_of, naming, text_of
from rainbow.cli.output import printer
from rainbow.cli.session import with_tokens
from rainbow.client import Client
from rainbow.errors import InputError, PolicyError, SelectionError
from rainbow.jobspec.yaml_reader import Limits, load
from rainbow.scheduling import policies
from rainbow.selection.cases import CaseOutcome, read_trials, run
from rainbow.selection.replay import SelectorRules, compare, read_recorded, written
from rainbow.text import some

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group()
def policy() -> None:
    """Check scheduling-policy settings; test and compare selection rules."""


def rules_of(path: Path) -> SelectorRules:
    """Read the selector and its options from a server's configuration."""
    from rainbow.service.core.settings import read_config  # the service is slow to load, and needed here only

    with naming(path):
        read = read_config(path)
    # a file of a cluster's policy is, as a server's configuration, all defaults
    for warning in (one for one in read.warnings if one.startswith("ignored ")):
        click.echo(f"rainbow: warning: {path}: {printer.one_line(warning)}", err=True)
    return SelectorRules(read.selector, read.selector_options)


# ── check ──


@policy.command()
@click.argument("file", type=FILE)
@click.option("--policy", "name", help="Policy whose settings FILE contains, if FILE does not name it.")
@printer.output_option
def check(file: Path, name: str | None, output: str) -> None:
    """Say whether FILE (YAML or JSON) has settings of a scheduling policy, and where they are wrong.

    FILE holds the settings alone, as `rainbow scheduler set --settings` takes them, or {policy, settings}.
    """
    options = settings_file.read(file, name)
    if options.policy is None:
        raise PolicyError(
            f"{file} does not name its policy: pass --policy NAME or add `policy: NAME` to the file", pointer=""
        )
    named, chosen = options.policy, policies.get(options.policy)
    with options.located():
        try:
            checked = chosen.check(options.settings)
        except PolicyError as fault:
            fault.pointer = f"{settings_file.SETTINGS}{fault.pointer or ''}"
            raise
    shown = {"policy": named, "settings": dict(checked)}
    printer.show(output, shown, printer.facts({"policy": named, **checked}))


# ── test ──


@policy.command()
@click.argument("file", type=FILE)
@click.option("--config", type=FILE, help="Server configuration to use instead of the one FILE names.")
@printer.output_option
def test(file: Path, config: Path | None, output: str) -> None:
    """Run the selection test cases in FILE (YAML). Exits 1 if a case fails."""
    outcomes = [run(trial) for trial in _trials(file, config)]
    shown = [_shown(outcome) for outcome in outcomes]
    printer.show(output, {"cases": shown}, lambda console: _draw_outcomes(console, outcomes))
    click.get_current_context().exit(Exit.ERROR if any(outcome.faults for outcome in outcomes) else Exit.OK)


def _trials(file: Path, config: Path | None) -> Any:
    with naming(file):
        document, positions = load(text_of(file), Limits())
        if not isinstance(document, Mapping):
            raise SelectionError("a test file must be a mapping with the keys config and cases", pointer="")
        named = document.get("config")
        if config is None and not isinstance(named, str):
            raise SelectionError("config must be the path of a server configuration file", pointer="/config")
        tested = rules_of(config or file.parent / str(named))
        try:
            return read_trials(document, tested)
        except InputError as fault:
            fault.line, fault.column = positions.nearest(fault.pointer or "") or (fault.line, fault.column)
            raise


def _shown(outcome: CaseOutcome) -> dict[str, Any]:
    return {"case": outcome.name, "cluster": outcome.choice.cluster, "faults": list(outcome.faults)}


def _draw_outcomes(console: Console, outcomes: list[CaseOutcome]) -> None:
    rows = [["FAILED" if one.faults else "ok", one.choice.cluster, one.name] for one in outcomes]
    console.print(printer.table(["RESULT", "CHOSEN", "CASE"], rows))
    for one in outcomes:
        for fault in one.faults:
            console.print(f"{printer.clean(one.name)}: {printer.clean(fault)}")
    failed = sum(bool(one.faults) for one in outcomes)
    console.print(f"{some(len(outcomes), 'case')}, {failed} failed")


# ── diff ──


@policy.command()
@click.argument("old", type=FILE)
@click.argument("new", type=FILE, required=False)
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    help="Number of decisions to compare, newest first.",
)
@click.option("--cluster", help="Compare only decisions for this cluster.")
@click.option(
    "--decisions",
    type=FILE,
    help="Read decisions from this JSON file (the output of GET /v1/decisions) instead of the server.",
)
@printer.output_option
@with_tokens
def diff(
    client: Client, old: Path, new: Path | None, limit: int, cluster: str | None, decisions: Path | None, output: str
) -> None:
    """Compare two configurations on recorded jobs: which jobs would go to a different cluster, and the change in
    totals such as cost. With one FILE the server compares it with its own rules, for 2 s at most.

    Needs the admin token, or --decisions. Every job is decided by itself, with the states of its time.
    """
    if new is None:
        if cluster or decisions:
            raise click.UsageError("--cluster and --decisions need OLD and NEW")
        with naming(old):
            answer = client.policy_diff(text_of(old), min(limit, 1000))
    else:
        answer = _compared((rules_of(old), rules_of(new)), decisions, client, cluster, limit)
    printer.show(output, answer, lambda console: _draw(console, answer))


def _compared(
    both: tuple[SelectorRules, SelectorRules], decisions: Path | None, client: Client, cluster: str | None, limit: int
) -> dict[str, Any]:
    matched = sorted({name for rules in both for name in rules.matched})
    result = json_of(decisions) if decisions else client.all_decisions(cluster=cluster, matched=matched)
    recorded = (read_recorded(one) for one in islice(_listed(result), limit))
    return written(compare(recorded, *both))


def _listed(result: Any) -> Iterable[Any]:
    listed = result.get("decisions") if isinstance(result, Mapping) else result
    if not isinstance(listed, list | Iterator):
        raise SelectionError("expected {decisions: [...]}, the output of GET /v1/decisions", pointer="")
    return listed


def _draw(console: Console, answer: Mapping[str, Any]) -> None:
    rows = [[one["id"], one["old"], one["new"]] for one in answer["moved"]]
    if rows:
        console.print(printer.table(["JOB", "OLD", "NEW"], rows))
    sums = [
        [name, *(one[of][key] if one[of]["jobs"] else "-" for of in ("old", "new") for key in ("sum", "jobs"))]
        for name, one in answer["sums"].items()
    ]
    if sums:
        console.print(printer.table(["TOTAL", "OLD", "JOBS", "NEW", "JOBS"], sums))
    said = (
        f"{some(answer['decisions'], 'decision')} compared, {len(answer['moved'])} would choose a different cluster"
    )
    if answer.get("neither"):
        said += f", {answer['neither']} {'has' if answer['neither'] == 1 else 'have'} no cluster under either"
    if answer.get("left_out"):
        said += f"; {some(answer['left_out'], 'decision')} left out: graphs of their clusters have changed since"
    console.print(said)
