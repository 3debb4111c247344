"""Files given on the command line: graphs, states, jobspecs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from rainbow.errors import InputError

FILE = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)


def text_of(path: Path) -> str:
    """Return the text of a file, or of stdin for "-"."""
    try:
        with click.open_file(str(path), encoding="utf-8") as file:
            return str(file.read())
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text (byte {error.start})") from error


def json_of(path: Path) -> Any:
    """Return a JSON file's value; InputError says where it is no JSON."""
    try:
        return json.loads(text_of(path))
    except json.JSONDecodeError as error:
        raise InputError(f"{path} is not JSON: {error.msg}", line=error.lineno, column=error.colno) from error
    except RecursionError as error:
        raise InputError(f"{path} is nested too deeply") from error


def named_file(text: str) -> tuple[str, Path]:
    """Split NAME=FILE."""
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise click.BadParameter(f"{text!r} is not NAME=FILE")
    if not Path(path).is_file():
        raise click.BadParameter(f"there is no file {path!r}")
    return name, Path(path)
