"""The options of Slurm's commands, as of 22.05, read as getopt reads them.

What Slurm does not have is refused in its words; what it has and Rainbow does not carry is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

VERSION = "slurm-wlm 22.05.8"


class CommandError(Exception):
    """A command ends so: what it writes to standard error, and its exit code."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.text, self.code = text, code


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one command: by long name, those that take a value, and those that are not carried."""

    command: str
    values: frozenset[str]
    maybe: frozenset[str]
    every: tuple[str, ...]
    short: Mapping[str, str]
    refused: frozenset[str]


@dataclass(slots=True)
class GivenWords:
    """What a command line says: the values of its options, in order, and the words that are none."""

    options: dict[str, list[str]] = field(default_factory=dict)
    rest: list[str] = field(default_factory=list)

    def __contains__(self, name: str) -> bool:
        return name in self.options

    def last(self, name: str, default: str = "") -> str:
        """Return the value that an option was given last."""
        return self.options[name][-1] if name in self.options else default

    def words(self, name: str) -> list[str]:
        """Return all words of an option that takes a list."""
        return [one for value in self.options.get(name, []) for one in re.split(r"[,\s]+", value) if one]


def _table(command: str, carried: str, refused: str) -> Options:
    """Read "name/s= name? name": a short form after the slash, = takes a value, ? may take one after "="."""
    values, maybe, every, short = set[str](), set[str](), list[str](), dict[str, str]()
    for word in f"{carried} {refused}".split():
        name, _, letter = word.rstrip("=?").partition("/")
        every.append(name)
        values |= {name} if word[-1] == "=" else set()
        maybe |= {name} if word[-1] == "?" else set()
        short |= {letter: name} if letter else {}
    named = {word.rstrip("=?").partition("/")[0] for word in refused.split()}
    return Options(command, frozenset(values), frozenset(maybe), tuple(every), short, frozenset(named))


_COMMON = "help version/V usage"
TABLES = {
    "squeue": _table(
        "squeue",
        "jobs/j? user/u= me name/n= states/t= partition/p= account/A= clusters/M= all/a array/r noheader/h format/o= "
        f"Format/O= sort/S= long/l noconvert only-job-state {_COMMON}",
        "array-unique federation hide iterate/i= json licenses/L= local nodelist/w= priority/P qos/q= reservation/R= "
        "sibling start steps/s? verbose/v yaml",
    ),
    "sacct": _table(
        "sacct",
        "jobs/j= user/u= uid= allusers/a noheader/n allocations/X parsable2/P parsable/p format/o= starttime/S= "
        "endtime/E= state/s= nodelist/N= clusters/M= duplicates/D name= delimiter= units= help/h version/V usage",
        "accounts/A= allclusters/L associations/x= batch-script/B brief/b completion/c constraints/C= env-vars "
        "federation file/f= flags/F= gid= group/g= helpformat/e json local long/l nnodes/i= ncpus/I= noconvert "
        "partition/r= qos/q= reason/R= timelimit-max/K= timelimit-min/k= truncate/T use-local-uid verbose/v "
        "wckeys/W= whole-hetjob? yaml",
    ),
    "scancel": _table(
        "scancel",
        f"user/u= name/n= jobname= state/t= partition/p= account/A= clusters/M= me quiet/Q signal/s= {_COMMON}",
        "batch/b ctld full/f hurry/H interactive/i nodelist/w= qos/q= reservation/R= sibling= verbose/v wckey=",
    ),
    "sinfo": _table(
        "sinfo",
        "all/a noheader/h format/o= Format/O= partition/p= nodes/n= states/t= Node/N summarize/s exact/e long/l "
        f"clusters/M= {_COMMON}",
        "dead/d federation hide iterate/i= json list-reasons/R local noconvert reservation/T responding/r sort/S= "
        "verbose/v yaml",
    ),
    "scontrol": _table(
        "scontrol",
        "all/a details/d oneliner/o quiet/Q clusters/M= help/h version/V usage",
        "federation future/F hide local sibling uid/u= verbose/v json yaml",
    ),
}


def read_words(command: str, words: Sequence[str]) -> GivenWords:
    """Read the words after a command; CommandError in Slurm's words for what it does not have.

    >>> found = read_words("squeue", ["-ho%i", "--user", "ann", "--part=oak,elm"])
    >>> found.last("format"), found.words("user"), found.words("partition"), "noheader" in found
    ('%i', ['ann'], ['oak', 'elm'], True)
    """
    table, result, remaining = TABLES[command], GivenWords(), list(words)
    while remaining:
        word = remaining.pop(0)
        if word == "--":
            result.rest += remaining
            break
        if not word.startswith("-") or word == "-":
            result.rest.append(word)
            continue
        for name, value in _long(table, word, remaining) if word.startswith("--") else _short(table, word, remaining):
            if name in table.refused:
                raise CommandError(f"{command}: error: --{name} is not carried by Rainbow\n")
            result.options.setdefault(name, []).append(value)
    _answer_at_once(command, result)
    return result


def _answer_at_once(command: str, words: GivenWords) -> None:
    if "version" in words:
        raise AnsweredError(f"{VERSION}\n")
    if "help" in words or "usage" in words:
        carried = [name for name in TABLES[command].every if name not in TABLES[command].refused]
        raise AnsweredError(f"Usage: {command} [OPTIONS]\n" + "".join(f"  --{name}\n" for name in carried))


class AnsweredError(Exception):
    """A command that ends well before it does anything: what it prints."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def _unrecognized(command: str, word: str) -> CommandError:
    return CommandError(f"{command}: unrecognized option '{word}'\nTry \"{command} --help\" for more information\n")


def _long(table: Options, word: str, remaining: list[str]) -> Iterator[tuple[str, str]]:
    name, equals, value = word[2:].partition("=")
    results = [one for one in table.every if one == name] or [one for one in table.every if one.startswith(name)]
    if len(results) > 1:
        may_be = " ".join(f"'--{one}'" for one in results)
        raise CommandError(f"{table.command}: option '--{name}' is ambiguous; possibilities: {may_be}\n")
    if not results:
        raise _unrecognized(table.command, f"--{name}")
    if results[0] in table.values and not equals:
        value = _following(table, f"--{name}", remaining)
    if equals and results[0] not in table.values | table.maybe:
        raise CommandError(f"{table.command}: option '--{results[0]}' doesn't allow an argument\n")
    yield results[0], value


def _short(table: Options, word: str, remaining: list[str]) -> Iterator[tuple[str, str]]:
    letters = word[1:]
    while letters:
        letter, letters = letters[0], letters[1:]
        name = table.short.get(letter)
        if name is None:
            raise CommandError(
                f"{table.command}: invalid option -- '{letter}'\n"
                f'Try "{table.command} --help" for more information\n'
            )
        if name not in table.values | table.maybe:
            yield name, ""
            continue
        if name in table.maybe:  # as squeue takes a blank before the list of -j
            yield name, letters or (remaining.pop(0) if remaining and not remaining[0].startswith("-") else "")
        else:
            yield name, letters.removeprefix("=") or _following(table, f"-{letter}", remaining)
        return


def _following(table: Options, word: str, remaining: list[str]) -> str:
    if not remaining:
        name = f"option '{word}' requires an argument" if word.startswith("--") else ""
        text = name or f"option requires an argument -- '{word[1:]}'"
        raise CommandError(f'{table.command}: {text}\nTry "{table.command} --help" for more information\n')
    return remaining.pop(0)
