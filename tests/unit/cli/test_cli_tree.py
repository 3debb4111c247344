"""Every command of the tree: its help ends with an example that runs, and each list and show has six forms."""

from __future__ import annotations

import csv
import io
import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from rainbow.api.schemas import SUBSYSTEM
from rainbow.cli import main
from rainbow.cli.exit_codes import Exit
from rainbow.cli.main import examples, topics
from rainbow.cli.output.printer import FORMS
from rainbow.store import open_store
from tests.conftest import ADMIN, REGISTRATION, grid, jobspec
from tests.support.shell import ROOT, Shell, server, shell

__all__ = ["server", "shell"]  # fixtures

FILES = {
    "old.yaml": "policies/founding.yaml",
    "new.yaml": "policies/cheapest.yaml",
    "decisions.json": "policies/decisions.json",
    "cases.yaml": "policies/founding-test.yaml",
    "founding.yaml": "policies/founding.yaml",
    "now.yaml": "tests/cases/simulation/now.yaml",
    "fair.yaml": "tests/cases/simulation/f2.yaml",
    "nodes.json": "tests/cases/sources/slurm-scontrol-23.11.json",
    "trace.swf": "tests/cases/simulation/small.swf",
}
PARSED = {"agent", "demo", "down", "route", "serve", "up"}  # they start, or end, what goes on by itself
# what a test server has not: a file of its configuration, learned models, reservations for maintenance
REFUSED = {"config reload", "model fit", "model show", "receive", "report", "reserve reopen"}
LATE = ("rainbow account", "rainbow qos", " rotate ", " revoke ", " delete ", "cluster delete")  # in this order, last
CHANGING = {"cancel", "hold", "release", "requeue", "resume", "suspend", "update"}


def leaves(command: click.Command, context: click.Context, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield each command that can be run with its context, by its name."""
    if not isinstance(command, click.Group):
        yield path, command, context
        return
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner
        yield from leaves(inner, click.Context(inner, info_name=name, parent=context), f"{path} {name}".strip())


TREE = {path: (command, context) for path, command, context in leaves(main, click.Context(main, info_name="rainbow"))}


def own_options(command: click.Command) -> list[str]:
    shown = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    return [str(one.name) for one in shown if one.name not in ("output", "help")]


def path_of(example: str) -> str:
    """Return the command that an example calls."""
    words = example.split()[1:]
    return next(" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in TREE)


def test_every_help_is_short_whole_and_ends_with_an_example() -> None:
    for path, (command, context) in TREE.items():
        lines = command.get_help(context).splitlines()
        assert lines[-1].startswith(f"    rainbow {path}"), path
        assert not [line for line in lines if line.endswith("...") and not line.startswith("Usage")], path
        assert not [line for line in lines if "--url" in line or "--credentials" in line or "--token-file" in line]
        assert own_options(command) or len(lines) <= 24, (path, len(lines))


def test_no_list_of_commands_ends_a_sentence_with_dots(shell: Shell) -> None:
    for group in {path.rpartition(" ")[0] for path in TREE}:
        lines = shell(*group.split(), "--help").stdout.splitlines()
        assert not [line for line in lines if line.endswith("...") and not line.startswith("Usage")], group


def test_connection_options_have_their_page() -> None:
    page = topics()["connection"]
    for option in ("--url", "--credentials", "--token", "--token-file", "--secret", "--secret-file"):
        assert option in page


def test_examples_are_of_commands_and_sorted() -> None:
    assert {path_of(one) for one in examples()} == set(TREE)
    assert [path_of(one) for one in examples()] == sorted(path_of(one) for one in examples())


@pytest.fixture
def place(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A folder with the files that examples name; what they call 1042, 1043_2 and 18eb is there."""
    monkeypatch.chdir(shell.folder)
    for name, source in FILES.items():
        shutil.copy(ROOT / source, shell.folder / name)
    for name in ("oak", "elm"):
        shell.file(f"{name}.json", grid(1, 1))
    shell.file("io.json", SUBSYSTEM)
    shell.file("job.yaml", jobspec())
    shell.file("rainbow.yaml", "scheduler: {}\n")
    shell.file("policy.yaml", "unit: core\n")
    shell.file("job.json", {"id": "none", "tasks": []})
    shell.file("job.sh", "#!/bin/sh\n#SBATCH -n 1\ntrue\n")
    shell.file("train.sh", "#!/bin/sh\n").chmod(0o755)
    shell.file("answer.json", shell.json("match", "--certificate", "--graph", "oak.json", "job.yaml"))
    open_store(f"sqlite:///{shell.folder / 'store.db'}").close()
    shell.json("scheduler", "set", "oak", "--policy", "priority")
    number = shell("submit", "--parsable", "-n", "1", "--", "true").stdout.strip()
    shell("job", "wait", number)
    array = shell("submit", "--parsable", "-H", "-a", "1-3", "--", "true").stdout.strip()
    start = ("--start", "2100-01-01T00:00:00Z", "-t", "1h")
    booked = shell.json("reserve", "create", "--cluster", "oak", "-n", "1", *start)["id"]
    minted = shell.json("token", "mint", "--cluster", "oak")["id"]
    return {"ended": number, "array": array, "reserve": booked, "token": minted}


# ── forms ──

NOT_LISTS = {  # what they print is one line, a file, the output of a job, or the text that they are for
    *("account delete", "agent", "attach", "cluster delete", "cluster import", "completion", "config init"),
    *("db backup", "db restore", "db upgrade", "demo", "help", "job last", "job logs", "jobspec", "qos delete"),
    *("report", "reserve delete", "reserve reopen", "route", "run", "sbatch", "serve", "slurm-shims"),
    *("subsystem delete", "token revoke", "top", "verify", "up", "down", "docs"),
}


def test_every_other_command_has_the_six_forms() -> None:
    for path, (command, _) in TREE.items():
        [*output] = [one for one in command.params if one.name == "output"]
        assert bool(output) is (path not in NOT_LISTS), path
        if output and path != "submit":  # whose -o may name a file
            assert list(output[0].type.choices) == list(FORMS), path


LISTS = {  # command: what names its first entry
    "jobs --all": "number",
    "history": "number",
    "cluster list": "name",
    "token list": "id",
    "reserve list --cluster oak": "id",
    "nodes": "cluster",
    "job show last": "number",
    "state show oak": None,
    "usage": None,
}


def test_every_list_is_the_same_in_every_form(shell: Shell, place: dict[str, str]) -> None:
    for command, key in LISTS.items():
        _check_forms(shell, command, key)


def _check_forms(shell: Shell, command: str, key: str | None) -> None:
    said = {form: shell(*command.split(), "-o", form) for form in FORMS}
    assert {form: result.exit_code for form, result in said.items()} == dict.fromkeys(FORMS, 0), command
    document = json.loads(said["json"].stdout)
    assert _plain(yaml.safe_load(said["yaml"].stdout)) == _plain(document), command
    names = said["name"].stdout.splitlines()
    rows = list(csv.DictReader(io.StringIO(said["csv"].stdout)))
    assert all(None not in row for row in rows)
    entries = document if isinstance(document, list) else [document]
    if key:
        assert names == [str(one[key]) for one in entries], command
        assert len(rows) == len(entries)
    else:
        assert len(rows) == len(names)


def _plain(document: Any) -> Any:
    """Return a document without what another moment changes: why a job waits, and when it is expected."""
    moving = ("wait", "eta", "summary", "headline", "reported_at", "tasks", "counts", "state", "ended_at")
    entries = document if isinstance(document, list) else [document]
    return [{key: value for key, value in one.items() if key not in moving} for one in entries]


HOSTILE = ["-y", "last", "1042", "a\nb", "$(touch here)", "'; touch here; '", "\u202eevil", "--", "* ?", "\U0001f4a3"]


def test_names_go_through_xargs_whatever_jobs_are_called(shell: Shell) -> None:
    """`rainbow jobs -o name | xargs rainbow job cancel`: a line is a number, and no name is ever a word."""
    for name in HOSTILE:
        made = shell("submit", "--parsable", "-H", f"--name={name}", "-n", "1", "--", "true")
        assert made.exit_code == 0, made.output
    others = shell("jobs", "-o", "name").stdout.split()
    assert all(word.isdecimal() for word in others)
    assert shell("job", "cancel", *others).exit_code == 0
    assert shell("jobs", "-o", "name").stdout == ""
    assert not (shell.folder / "here").exists()


# ── the last, for it deletes the cluster ──


def _held(shell: Shell) -> str:
    return shell("submit", "--parsable", "-H", "-t", "1h", "-J", "sweep-1", "-n", "1", "--", "true").stdout.strip()


def words_of(example: str, place: dict[str, str], shell: Shell) -> list[str]:
    """Return the words of an example as this server knows its jobs."""
    path = path_of(example)
    job = _held(shell) if set(path.split()) & CHANGING else place["ended"]
    named = {"1042": job, "1043_2": f"{place['array']}_2", "18eb": place.get(path.split()[0], "")}
    words = shlex.split(example.partition(" > ")[0])[1:]
    return [named.get(word, word.replace("~", str(shell.folder))) for word in words]


def test_every_example_runs(shell: Shell, place: dict[str, str]) -> None:
    wrong: dict[str, str] = {}
    store = {"RAINBOW_DATABASE": f"sqlite:///{shell.folder / 'store.db'}"}
    for example in sorted(examples(), key=lambda one: [word in one for word in reversed(LATE)]):
        path, words = path_of(example), words_of(example, place, shell)
        if path in PARSED:
            command, context = TREE[path]
            assert command.make_context(path, words[len(path.split()) :], parent=context.parent)
            continue
        if path == "db restore":
            store = {"RAINBOW_DATABASE": f"sqlite:///{shell.folder / 'other.db'}"}
        admin = ADMIN if path.split()[0] in ("account", "qos", "audit", "model", "config") else ""
        if path == "config init":
            Path("rainbow.yaml").unlink()
        own = store if path.startswith("db ") else {}
        words = [word.replace("oak", "elm") for word in words] if path == "cluster register" else words
        answer = shell(*words, stdin="y\n", RAINBOW_REGISTRATION_SECRET=REGISTRATION, RAINBOW_TOKEN=admin, **own)
        allowed = {code for code in Exit if code != Exit.USAGE} if path in REFUSED else {Exit.OK}
        if answer.exit_code not in allowed:
            wrong[example] = answer.output
    assert not wrong, "\n".join(f"{one}: {text}" for one, text in wrong.items())
