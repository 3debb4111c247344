"""Files given on the command line: graphs, states, jobspecs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from rainbow.errors import InputError, JobspecError
from rainbow.jobspec.text import Limits, load

FILE = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let a fault say which file it is in."""
    try:
        yield
    except InputError as fault:
        fault.message = f"{path}: {fault.message}"
        raise


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


def yaml_of(path: Path) -> Any:
    """Return the value of a YAML file, which may be JSON; InputError says where it is neither."""
    try:
        return load(text_of(path), Limits())[0]
    except JobspecError as fault:
        raise InputError(f"{path}: {fault.message}", line=fault.line, column=fault.column) from None


def named_file(text: str) -> tuple[str, Path]:
    """Split NAME=FILE."""
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise click.BadParameter(f"{text!r} is not NAME=FILE")
    if not Path(path).is_file():
        raise click.BadParameter(f"there is no file {path!r}")
    return name, Path(path)
