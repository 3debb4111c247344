"""Clusters and jobspecs read from files and folders, without a server.

A folder with one of `cluster.json`, `nodes.json`, `*-nodes.json` is a cluster called as the folder; every
`NAME-subsystem.json` or `NAME.subsystem.json` beside it is a subsystem hung on it. Any other folder holds clusters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click

from rainbow.cli.reading import json_of, naming, text_of
from rainbow.errors import InputError
from rainbow.graph import Cluster, read_cluster
from rainbow.jobspec import Request, parse_jobspec

PATH = click.Path(exists=True, path_type=Path)
MAIN = ("cluster.json", "nodes.json", "*-nodes.json")
SUBSYSTEM = "subsystem.json"
JOBSPECS = (".yaml", ".yml", ".json")


# ── clusters ──


def clusters_of(paths: Sequence[Path]) -> list[Cluster]:
    """Read every cluster; those of one name are called by their paths."""
    found = [(path, _cluster(path)) for given in paths for path in _clusters_in(given)]
    times = Counter(cluster.name for _, cluster in found)
    return [replace(c, name=str(path)) if times[c.name] > 1 else c for path, c in found]


def _clusters_in(path: Path) -> Iterator[Path]:
    if not path.is_dir() or _main(path):
        yield path
        return
    inner = [folder for folder in sorted(path.iterdir()) if folder.is_dir() and _main(folder)]
    if not inner:
        raise click.UsageError(f"there is no cluster in {str(path)!r}: {', '.join(MAIN)} are looked for")
    yield from inner


def _main(folder: Path) -> Path | None:
    return next((path for pattern in MAIN for path in sorted(folder.glob(pattern))), None)


def _cluster(path: Path) -> Cluster:
    main = _main(path) if path.is_dir() else path
    assert main is not None  # noqa: S101
    with naming(main):
        cluster = read_cluster(json_of(main), name=path.stem if main is path else path.resolve().name)
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
    found: dict[Path, Request] = {}
    faults: dict[Path, InputError] = {}
    for given in paths:
        for path in jobspec_files(given):
            try:
                with naming(path):
                    found[path] = parse_jobspec(text_of(path))
            except InputError as fault:
                if path == given:  # it was named: it must be one
                    raise
                faults[path] = fault
    return found, faults


def jobspec_files(path: Path) -> list[Path]:
    """Return the file itself, or of a folder all files below it that are YAML or JSON by name."""
    if not path.is_dir():
        return [path]
    found = [file for file in sorted(path.rglob("*")) if file.suffix in JOBSPECS and file.is_file()]
    if not found:
        raise click.UsageError(f"there is no jobspec in {str(path)!r}: {', '.join(JOBSPECS)} are looked for")
    return found
