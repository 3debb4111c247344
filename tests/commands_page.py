"""docs/commands.md: help, exit codes and JSON of every command. `python -m tests.commands_page` writes it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import yaml

from rainbow.cli import main
from rainbow.cli.exit_codes import Exit

PAGE = Path(__file__).parents[1] / "docs" / "commands.md"
CASES: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "cases" / "cli" / "commands.yaml").read_text())
HEAD = """# Every command

Written by `python -m tests.commands_page`; [the command line](reference-cli.md) says what commands have in common,
and what the exit codes mean. JSON is what `-o json` prints: the keys of its one value, or of each entry of a list.
"""


def commands(
    command: click.Command, path: tuple[str, ...] = (), parent: click.Context | None = None
) -> Iterator[tuple[str, click.Context]]:
    """Yield every command that can be run, by its name without `rainbow`, in order."""
    named = path[-1] if path else "rainbow"
    settings = {**command.context_settings, "max_content_width": 110}
    context = click.Context(command, info_name=named, parent=parent, **settings)
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield " ".join(path), context
    for name, inner in sorted(command.commands.items()) if isinstance(command, click.Group) else ():
        yield from commands(inner, (*path, name), context)


def section(name: str, context: click.Context) -> str:
    case = CASES[name]
    exits = ", ".join(f"{code} {Exit(code).name.lower().replace('_', ' ')}" for code in case["exits"])
    lines = [f"## rainbow {name}", "", "```text", context.get_help(), "```", "", f"Exits: {exits}."]
    for key, words in (("json", "JSON"), ("json_list", "JSON, each")):
        if key in case:
            lines.append(f"{words}: {', '.join(f'`{each}`' for each in case[key])}.")
    return "\n".join(lines) + "\n"


def page() -> str:
    return "\n".join([HEAD, *(section(name, context) for name, context in commands(main))])


if __name__ == "__main__":
    sys.stdout.write(page()) if "--print" in sys.argv else PAGE.write_text(page())
