"""`rainbow sbatch` and `rainbow jobspec`: batch scripts submitted, and translated both ways."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import click
import yaml

from rainbow.cli.commands.jobs import exit_code_of
from rainbow.cli.commands.submit import ready, refusals_shown, tell, wait_for
from rainbow.cli.exit_codes import Exit
from rainbow.cli.input.files import naming, text_of
from rainbow.cli.input.job_options import as_usage, caller
from rainbow.cli.session import login, with_tokens
from rainbow.client import Client
from rainbow.jobspec import Limits, parse_jobspec
from rainbow.jobspec.flux import flux_jobspec
from rainbow.jobspec.sbatch import GivenOptions, call_of, is_script, jobspec_of_call, read_call, words_of_call
from rainbow.jobspec.sbatch.options import OPTIONS
from rainbow.jobspec.yaml_reader import load

AS_WORDS = {"ignore_unknown_options": True, "allow_interspersed_args": False}


@click.command(context_settings=AS_WORDS)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS OF SBATCH]... [SCRIPT [ARGS]...]")
@with_tokens
def sbatch(client: Client, words: tuple[str, ...]) -> None:
    """Submit a batch SCRIPT (else stdin) as sbatch does, with the options of sbatch; Rainbow chooses the cluster.

    What another cluster than Slurm's does not read, or what is carried in another form, is told on stderr; what
    cannot be carried is refused. Rainbow's own options come first.
    """
    options, rest = words_of_call(words)
    if unknown := next((name for name in options if name not in OPTIONS), None):
        raise click.UsageError(f"unrecognized option '--{unknown}'; sbatch has none of this name")
    call = _call(words, "" if "wrap" in options else _text(rest))
    with as_usage(options):
        document, notes = jobspec_of_call(call, caller())
    if "quiet" not in options:
        tell(notes)
    names = [name for name in call.clusters.split(",") if name and name != "all"]
    clusters = [{"name": name} for name in names] or None
    if "test-only" in options:
        _test(client, document)
    with refusals_shown("table"):
        made = client.submit(ready(client, document), login=login(), clusters=clusters)
    click.echo(made["number"] if "parsable" in options else f"Submitted batch job {made['number']}")
    if "quiet" not in options:
        tell(list(map(as_options, made["decision"].get("warnings") or [])))
    if "wait" in options:
        click.get_current_context().exit(exit_code_of(wait_for(client, made)))


_POINTER = re.compile(r"/attributes/(?:site/slurm \(([^)]*)\)|system/([a-z-]+)(?=:))")


def as_options(warning: str) -> str:
    """Name what a warning is about as it was typed.

    >>> as_options("/attributes/site/slurm (mail-type, partition): x"), as_options("/attributes/system/output: x")
    ('--mail-type, --partition: x', '--output: x')
    """
    return _POINTER.sub(lambda at: ", ".join(f"--{name}" for name in (at[1] or at[2]).split(", ")), warning)


def _text(rest: list[str]) -> str:
    return text_of(Path(rest[0] if rest else "-"))


def _call(words: tuple[str, ...], text: str) -> GivenOptions:
    _, rest = words_of_call(words)
    name = Path(rest[0]).name if rest else "sbatch"
    with naming(Path(rest[0] if rest else "-")):
        return read_call(text, words, os.environ, name)


def _test(client: Client, document: dict[str, Any]) -> None:
    """Say where the job could run, as `sbatch --test-only` does, and end."""
    result = client.match(document, login=login())
    names = ", ".join(one["cluster"] for one in result["candidates"])
    tell([f"the job could run on {names}" if names else "no cluster can run the job"])
    click.get_current_context().exit(Exit.OK if names else Exit.NO_MATCH)


FORM = "Form of FILE: sbatch, jobspec or auto; or FILE itself."
FORMS = ("jobspec", "json", "sbatch", "script", "flux")


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--from", "source", metavar="FORM|FILE", default="auto", help=FORM)
@click.option(
    "--to",
    "form",
    type=click.Choice(FORMS),
    help="jobspec (YAML, the default for a script), json, sbatch (the call, the default for a jobspec), script "
    "(one with #SBATCH lines), or flux (for flux job submit; written by Flux's RFCs, not tried on a Flux).",
)
def jobspec(file: Path | None, source: str, form: str | None) -> None:
    """Translate a batch script into a jobspec, or a jobspec into the call of sbatch; no server is asked.

    What is carried in another form is reported on stderr; what cannot be said is refused.
    """
    if source not in ("auto", "sbatch", "jobspec"):
        file, source = file or Path(source), "auto"
    text, path = text_of(file or Path("-")), file or Path("-")
    script = is_script(text) if source == "auto" else source == "sbatch"
    form = form or ("jobspec" if script else "sbatch")
    document: Any = text
    notes: list[str] = []
    with naming(path):
        if script:
            document, notes = jobspec_of_call(read_call(text, (), os.environ, path.name), caller())
        if form in ("sbatch", "script"):
            call = call_of(parse_jobspec(document))
            notes = [*notes, *call.notes]
        elif form == "flux":
            document = flux_jobspec(parse_jobspec(document))
    tell(notes)
    if form in ("sbatch", "script"):
        click.echo(_sbatch(call) if form == "sbatch" else script_of(call), nl=form == "sbatch")
    else:
        click.echo(_written(document, form), nl=False)


def _sbatch(call: GivenOptions) -> str:
    """Write the call for a shell; the script goes to its standard input."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in call.environment.items()]
    words = ["sbatch", *map(shlex.quote, call.argv()), *([shlex.quote(call.name)] if call.arguments else [])]
    return " ".join([*variables, *words, *map(shlex.quote, call.arguments)])


def script_of(call: GivenOptions) -> str:
    """Return the script with the call's options as its only #SBATCH lines."""
    lines = call.script.splitlines(keepends=True)
    stored = [line for line in lines[1:] if not line.startswith("#SBATCH")]
    return lines[0].rstrip("\n") + "\n" + call.directives() + "".join(stored)


class _Texts(yaml.SafeDumper):
    """Writes scripts as blocks, so that people can read them."""


_Texts.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def _written(document: Any, form: str) -> str:
    if isinstance(document, str):
        document = load(document, Limits())[0]
    if form in ("json", "flux"):
        return json.dumps(document, indent=2) + "\n"
    return yaml.dump(document, Dumper=_Texts, sort_keys=False, allow_unicode=True, width=118)
