"""Graphs, states and jobspecs, read from files and folders.

A folder with one of `cluster.json`, `nodes.json`, `*-nodes.json` is a cluster called as the folder; every
`NAME-subsystem.json` or `NAME.subsystem.json` next to it is a subsystem attached to it. Any other folder holds
clusters.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rainbow.errors import InputError, JobspecError
from rainbow.jobspec import Request, parse_jobspec
from rainbow.jobspec.yaml_reader import Limits, load

if TYPE_CHECKING:
    from rainbow.graph import Cluster

PATH = click.Path(exists=True, path_type=Path)
MAIN = ("cluster.json", "nodes.json", "*-nodes.json")
SUBSYSTEM = "subsystem.json"
JOBSPECS = (".yaml", ".yml", ".json")


# ── clusters ──


def clusters_of(paths: Sequence[Path]) -> list[Cluster]:
    """Read every cluster; those of one name are called by their paths."""
    results = [(path, _cluster(path)) for options in paths for path in _clusters_in(options)]
    times = Counter(cluster.name for _, cluster in results)
    return [replace(c, name=str(path)) if times[c.name] > 1 else c for path, c in results]


def _clusters_in(path: Path) -> Iterator[Path]:
    if not path.is_dir() or _main(path):
        yield path
        return
    inner = [folder for folder in sorted(path.iterdir()) if folder.is_dir() and _main(folder)]
    if not inner:
        raise click.UsageError(f"no cluster graph found in {str(path)!r}; expected one of {', '.join(MAIN)}")
    yield from inner


def _main(folder: Path) -> Path | None:
    return next((path for pattern in MAIN for path in sorted(folder.glob(pattern))), None)


def _cluster(path: Path) -> Cluster:
    main = _main(path) if path.is_dir() else path
    assert main is not None  # noqa: S101
    document = json_of(main)
    with naming(main):
        from rainbow.graph import read_cluster  # commands that send jobs draw no graph

        cluster = read_cluster(document, name=path.stem if main is path else path.resolve().name)
    for file in sorted(path.glob(f"*{SUBSYSTEM}")) if main is not path else []:
        with naming(file):
            cluster = cluster.with_subsystem(_subsystem(file, main), json_of(file))
    return cluster


def _subsystem(file: Path, main: Path) -> str:
    """Name a subsystem by its file, without the beginning it shares with cluster-nodes.json."""
    shared = main.name.removesuffix("nodes.json")
    return file.name.removesuffix(SUBSYSTEM).removeprefix(shared).rstrip("-.") or file.stem


# ── jobspecs ──


def jobspecs_of(paths: Sequence[Path]) -> tuple[dict[Path, Request], dict[Path, InputError]]:
    """Read every jobspec, of a folder all files below it that are YAML or JSON by name; and what there is none."""
    results: dict[Path, Request] = {}
    faults: dict[Path, InputError] = {}
    for options in paths:
        for path in jobspec_files(options):
            try:
                with naming(path):
                    results[path] = parse_jobspec(text_of(path))
            except InputError as fault:
                if path == options:  # it was named: it must be one
                    raise
                faults[path] = fault
    return results, faults


def jobspec_files(path: Path) -> list[Path]:
    """Return the file itself, or of a folder all files below it that are YAML or JSON by name."""
    if not path.is_dir():
        return [path]
    result = [file for file in sorted(path.rglob("*")) if file.suffix in JOBSPECS and file.is_file()]
    if not result:
        raise click.UsageError(f"no jobspec found in {str(path)!r}; expected files named {', '.join(JOBSPECS)}")
    return result


def is_many(what: Sequence[str]) -> bool:
    """Return whether these are several jobspecs, or a folder of them."""
    return len(what) > 1 or any(Path(path).is_dir() for path in what)


FILE = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let a fault say which file it is in."""
    try:
        yield
    except InputError as fault:
        fault.message = f"{'standard input' if str(path) == '-' else path}: {fault.message}"
        raise


@contextmanager
def sent_from(files: Mapping[str, Path]) -> Iterator[None]:
    """Let a refusal name the file, and the place in it, that was sent at a pointer of the request."""
    from rainbow.client import Problem  # slow to load, and loaded already where something was sent

    try:
        yield
    except Problem as fault:
        for at, path in files.items():
            if fault.pointer and fault.pointer.startswith(f"{at}/"):
                fault.pointer, fault.detail = fault.pointer.removeprefix(at), f"{path}: {fault.detail}"
                break
        raise


def text_of(path: Path) -> str:
    """Return the text of a file, or of stdin for "-"; a batch script with DOS line ends has them still."""
    try:
        if str(path) != "-" and (content := path.read_bytes()).startswith(b"#!") and b"\r\n" in content:
            return content.decode()
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
        raise click.BadParameter(f"file {path!r} not found")
    return name, Path(path)
