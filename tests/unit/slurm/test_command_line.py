"""Every option of Slurm's manual is read in each of its forms, or refused by its name."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from rainbow.slurm.command_line import TABLES, AnsweredError, CommandError, read_words

ENDS = {"help", "version", "usage"}
NEWER = {"only-job-state", "json", "yaml"}  # than 22.05, or of it without a page
COMMANDS = ["squeue", "sacct", "scancel", "sinfo", "scontrol"]


def options(command: str, *, carried: bool) -> list[str]:
    table = TABLES[command]
    return [name for name in table.every if (name not in table.refused) is carried and name not in ENDS]


def forms(command: str, name: str) -> list[list[str]]:
    """Return the ways to write an option: long with = and a blank, short, joined, a unique beginning."""
    table = TABLES[command]
    letter = next((short for short, long in table.short.items() if long == name), "")
    if name in table.values:
        results = [[f"--{name}=x"], [f"--{name}", "x"]]
        results += [[f"-{letter}x"], [f"-{letter}", "x"]] if letter else []
    else:
        results = [[f"--{name}"], *([[f"-{letter}"]] if letter else [])]
    begun = next(name[:k] for k in range(1, len(name) + 1) if _only(table.every, name[:k], name))
    return [*results, [f"--{begun}=x"] if name in table.values else [f"--{begun}"]]


def _only(names: tuple[str, ...], begun: str, name: str) -> bool:
    return [one for one in names if one.startswith(begun)] == [name] or begun == name


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_carried_is_read_in_every_form(command: str) -> None:
    for name in options(command, carried=True):
        for words in forms(command, name):
            result = read_words(command, words)
            assert result.options == {name: ["x" if name in TABLES[command].values else ""]}, words


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_not_carried_is_refused_by_name(command: str) -> None:
    for name in options(command, carried=False):
        for words in forms(command, name):
            with pytest.raises(CommandError) as fault:
                read_words(command, words)
            assert (fault.value.code, fault.value.text) == (
                1,
                f"{command}: error: --{name} is not carried by Rainbow\n",
            )


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_the_manual_is_known(command: str) -> None:
    page = Path(f"/usr/share/man/man1/{command}.1.gz")
    if not page.exists():
        pytest.skip(f"no manual page of {command} here")
    text = gzip.decompress(page.read_bytes()).decode().replace("\\-", "-").replace("\\fB", "").replace("\\fR", "")
    named = set(re.findall(r"^(?:\.IP \")?[^\n]{0,40}?(?<![\w-])--([a-z][a-z-]+[a-z])", text, re.M | re.I))
    known = set(TABLES[command].every)
    listed = {one for one in named if re.search(rf"\.(?:TP|HP)\n[^\n]*--{one}\b", text)}
    assert {one for one in listed if one not in known and one not in NEWER} == set()


def test_what_slurm_does_not_have_is_refused_in_its_words() -> None:
    for command in COMMANDS:
        with pytest.raises(CommandError) as fault:
            read_words(command, ["--nosuch"])
        assert fault.value.text.startswith(f"{command}: unrecognized option '--nosuch'\n")
    with pytest.raises(AnsweredError):
        read_words("squeue", ["-V"])
