"""Parts of reference pages that are made from the code, in place of a comment `<!-- generated: NAME -->`."""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click
import yaml
from pages import table

from rainbow.cli import main
from rainbow.cli.exit_codes import Exit
from rainbow.cli.main import topics
from rainbow.scheduling import policies
from rainbow.service.core.counters import METRICS
from rainbow.service.queries.monitoring import OF_ALL

ROOT = Path(__file__).resolve().parents[2]
COMMON = 12  # an option of at least this many commands is listed once


def commands(command: click.Command = main, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Yield every command that can be run, by its name without `rainbow`, in order."""
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield " ".join(path), command
    for name, inner in sorted(command.commands.items()) if isinstance(command, click.Group) else ():
        yield from commands(inner, (*path, name))


def record(option: click.Parameter) -> tuple[str, str] | None:
    """Return an option's names and help, as `--help` prints them."""
    context = click.Context(click.Command("rainbow"), max_content_width=110)
    return option.get_help_record(context)


def help_of(name: str, command: click.Command, common: Counter[tuple[str, str] | None]) -> str:
    """Return a command's help without the options that many commands have."""
    mine = copy.copy(command)
    mine.params = [one for one in command.params if common[record(one)] < COMMON]
    mine.add_help_option = False
    context = click.Context(mine, info_name=f"rainbow {name}", max_content_width=110, terminal_width=110)
    return mine.get_help(context)


def every_command() -> str:
    """Return the options that many commands have, then each command with its help, exit codes and JSON."""
    cases: Mapping[str, Any] = yaml.safe_load((ROOT / "tests" / "cases" / "cli" / "commands.yaml").read_text())
    every = list(commands())
    common = Counter(results for _, command in every for one in command.params if (results := record(one)))
    rows = [[f"`{names}`", text] for names, text in (one for one in common if one and common[one] >= COMMON)]
    parts = ["## Options of many commands", table(["option", "what"], rows)]
    for name, command in every:
        exits = ", ".join(f"{code} {Exit(code).name.lower().replace('_', ' ')}" for code in cases[name]["exits"])
        parts += [f"## rainbow {name}", f"```text\n{help_of(name, command, common)}\n```", f"Exits: {exits}."]
        for key, words in (("json", "JSON"), ("json_list", "JSON, each")):
            if key in cases[name]:
                parts.append(f"{words}: {', '.join(f'`{each}`' for each in cases[name][key])}.")
    return "\n\n".join(parts)


def exit_codes() -> str:
    """Return the table of exit codes."""
    return table(["exit code", "meaning"], [[str(int(code)), code.name.lower().replace("_", " ")] for code in Exit])


def configuration() -> str:
    """Return every key of the configuration, from the comments of rainbow.yaml."""
    section, rows = "", []
    for line in (ROOT / "rainbow" / "service" / "rainbow.yaml").read_text().splitlines():
        if result := re.fullmatch(r"(\w+):.*", line):
            section = result[1]
        elif result := re.fullmatch(r"  (# )?(\w+):(.*?)\s+# (.*)", line):
            default = "" if result[1] else f"`{result[3].strip()}`" if result[3].strip() else ""
            rows.append([f"`{section}.{result[2]}`", default, result[4]])
        elif result := re.fullmatch(r"    selection: (.*)", line):
            rows[-1][1] = f"`selection: {result[1]}`"
    return table(["key", "default", "what"], rows)


def metrics() -> str:
    """Return every metric with its kind, labels and meaning."""
    rows = [[f"`{name}`", kind, labels.replace(",", ", "), what] for name, (kind, labels, what) in METRICS.items()]
    rows += [
        [f"`rainbow_{name}`", "gauge", "cluster, class" if name.startswith("class_") else "cluster", what]
        for name, what in OF_ALL.items()
    ]
    return table(["metric", "kind", "labels", "what"], rows)


def settings(policy: str) -> str:
    """Return what `rainbow help POLICY` says of a policy's settings, and their defaults."""
    defaults = json.loads(json.dumps(dict(policies.get(policy).check({}))))
    text = f"```text\n{topics()[policy]}```\n\n" if policy in topics() else ""
    return f"{text}Defaults:\n\n```yaml\n{yaml.safe_dump(defaults, sort_keys=False)}```"


PARTS: Mapping[str, Callable[[], str]] = {
    "commands": every_command,
    "exit codes": exit_codes,
    "configuration": configuration,
    "metrics": metrics,
    **{f"settings of {name}": partial(settings, name) for name in policies.names()},
}


def filled(page: str) -> str:
    """Return a page with its generated parts."""
    return re.sub(r"<!-- generated: ([a-z_ ]+) -->", lambda result: PARTS[result[1]](), page)
