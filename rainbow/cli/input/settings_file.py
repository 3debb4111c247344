"""A file of a scheduling policy's settings: the settings alone, or {policy, settings}."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from rainbow.cli.input.files import naming, text_of
from rainbow.client import Problem
from rainbow.errors import PolicyError
from rainbow.jobspec.yaml_reader import Positions
from rainbow.scheduling.settings_schema import load_settings, located

SETTINGS = "/settings"


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """What a file says, with what the command line does: `policy` is None where neither says it."""

    policy: str | None
    settings: Mapping[str, Any]
    file: Path
    positions: Positions
    whole: bool  # {policy, settings}

    @contextmanager
    def located(self) -> Iterator[None]:
        """Let a fault of {policy, settings}, found here or by the server, say where in the file it is."""
        try:
            yield
        except (PolicyError, Problem) as fault:
            message, pointer = getattr(fault, "detail", "") or fault.message, fault.pointer or ""
            if not pointer.startswith(SETTINGS) and not (self.whole and pointer.startswith("/policy")):
                raise
            above = "" if self.whole else SETTINGS
            with naming(self.file):
                raise located(PolicyError(message, pointer=pointer), self.positions, above) from None


def read(file: Path, policy: str | None) -> SettingsFile:
    """Read a file; a usage error if it is of another policy than the one that was named."""
    with naming(file):
        result, positions = load_settings(text_of(file))
        whole = "policy" in result
        _check(result, positions, whole=whole)
    if whole and policy and result["policy"] != policy:
        raise click.UsageError(f"{file} contains settings for policy {result['policy']}, not {policy}")
    settings = result.get("settings", {}) if whole else result
    return SettingsFile(result["policy"] if whole else policy, settings, file, positions, whole)


def asked(file: Path, ask: Callable[[Mapping[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """Ask the server by what a file says; a fault that it finds says where in the file it is."""
    with naming(file):
        result, positions = load_settings(text_of(file))
        try:
            return ask(result)
        except Problem as fault:
            if not fault.pointer:
                raise
            raise located(PolicyError(fault.detail or fault.message, pointer=fault.pointer), positions) from None


def _check(results: Mapping[str, Any], positions: Positions, *, whole: bool) -> None:
    if not whole:
        return
    if not isinstance(results["policy"], str):
        raise located(PolicyError("policy must be the name of a scheduling policy", pointer="/policy"), positions)
    for key in results:
        if key not in ("policy", "settings"):
            raise located(
                PolicyError(
                    f"unexpected key {key}: a file with `policy` may contain only policy and settings",
                    pointer=f"/{key}",
                ),
                positions,
            )
    if not isinstance(results.get("settings", {}), Mapping):
        raise located(PolicyError("settings are a mapping", pointer=SETTINGS), positions)
