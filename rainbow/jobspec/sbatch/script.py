"""A batch script and a command line → `GivenOptions`, read as sbatch reads them.

Options come from the script's `#SBATCH` lines before its first command, then from SBATCH_* variables, then from the
command line; what comes later is stronger. `##SBATCH` is a comment, as is what follows a # on such a line.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from rainbow.errors import JobspecError
from rainbow.jobspec.sbatch.options import (
    ALIASES,
    INHERITED,
    OPTIONS,
    SHORT,
    VARIABLES,
    GivenOptions,
    Option,
    Place,
    Takes,
)
from rainbow.text import meant

MARK = "#SBATCH"
OTHERS = ("#PBS", "#BSUB", "#FLUX:", "#flux:", "#$ -", "#COBALT", "#PJM")
SPLITS = ("hetjob", "packjob")
_ALONE = (  # of each group the last one is meant
    {"mem", "mem-per-cpu", "mem-per-gpu"},
    {"requeue", "no-requeue"},
    {"exclusive", "oversubscribe"},
)
WRAPPED = "#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{}\n"
Options = dict[str, str]


def is_script(text: str) -> bool:
    """Return whether a text is a batch script: no YAML or JSON begins with #! and another line."""
    return text.startswith("#!")


def read_call(
    script: str, words: Sequence[str] = (), variables: Mapping[str, str] | None = None, name: str = "sbatch"
) -> GivenOptions:
    """Read a script of this name, the words after `sbatch` and SBATCH_* variables; JobspecError says what is wrong.

    The words are options, the script's file and its arguments.

    >>> read_call("#!/bin/sh\\n#SBATCH -J hello -n 3 # three\\nhostname\\n", ["--time=5"]).options
    {'job-name': 'hello', 'ntasks': '3', 'time': '5'}
    """
    options, rest = _of_words(words)
    options, script, name = _unwrapped(options, script, name)
    arguments = tuple(rest[1:])  # the first word is the script's file
    if not is_script(script):
        raise JobspecError("a batch script begins with #! and its interpreter, such as #!/bin/bash", line=1)
    inside, notes = _of_script(script)
    notes += _completed(words)
    stronger = [_of_variables(variables or {}), *([{}] * (len(inside) - 1))]
    nothing: Options = {}
    merged = [_merged(*each) for each in zip_longest(inside, stronger, options, fillvalue=nothing)]
    for later in merged[1:]:
        later |= {key: merged[0][key] for key in INHERITED if key in merged[0] and not _has(later, key)}
    stored = tuple({key: value for key, value in one.items() if _place(key) is not Place.CALL} for one in merged)
    notes += [
        f"--{key} is not an option of sbatch that Rainbow knows; carried as written" for key in _unknown(stored)
    ]
    clusters = merged[0].get("clusters", "")
    return GivenOptions(stored, script, name, arguments, notes=tuple(notes), clusters=clusters)


def words_of_call(words: Sequence[str]) -> tuple[Options, list[str]]:
    """Return the options of a command line, those about the call itself too, and what follows them."""
    options, rest = _of_words(words)
    return options[0], rest


def _unwrapped(options: list[Options], script: str, name: str) -> tuple[list[Options], str, str]:
    if "wrap" not in options[0]:
        return options, script, name
    return options, WRAPPED.format(options[0]["wrap"]), "wrap"


def _has(options: Options, key: str) -> bool:
    return any(one in options for one in next((group for group in _ALONE if key in group), {key}))


def _place(name: str) -> Place:
    return OPTIONS[name].place if name in OPTIONS else Place.SITE


def _unknown(components: Sequence[Options]) -> list[str]:
    return sorted({key for options in components for key in options if key not in OPTIONS})


def _merged(*sources: Options) -> Options:
    """Return the options of all sources, the last the strongest."""
    merged: Options = {}
    for source in sources:
        for key, value in source.items():
            for group in _ALONE:
                if key in group:
                    merged = {old: one for old, one in merged.items() if old not in group}
            merged[key] = value
    return merged


# ── the script ──


def _of_script(script: str) -> tuple[list[Options], list[str]]:
    """Return the options of every component, and what is not read of the script in words."""
    components: list[Options] = [{}]
    notes: list[str] = []
    ended = False
    for number, line in enumerate(script.split("\n"), 1):
        if line.endswith("\r"):
            text = "the script has DOS line ends, which sbatch refuses; remove them with: tr -d '\\r' < job.sh"
            raise JobspecError(text, line=number)
        ended = ended or bool(line.strip() and not line.lstrip().startswith("#"))
        if line.startswith(OTHERS) and not ended:
            notes.append(f"line {number}: ignored {line.split()[0]}; Rainbow reads #SBATCH lines")
        if not line.startswith(MARK):
            continue
        if ended:
            notes.append(f"line {number}: ignored #SBATCH after the script's first command, as sbatch does")
            continue
        notes += _completed(_read_line(line.removeprefix(MARK), number, components))
    return components, notes


def _completed(words: Sequence[str]) -> list[str]:
    """Return a note for each option that people write for another one than sbatch reads."""
    read = {word.partition("=")[0].removeprefix("--") for word in words if word.startswith("--")}
    return [f"--tasks: read as --{ALIASES['tasks']}, as sbatch does" for name in read if name == "tasks"]


def _read_line(text: str, number: int, components: list[Options]) -> list[str]:
    """Add the options of a line to the last component, or begin another; return the words of the line."""
    try:
        words = shlex.split(text.rstrip().removesuffix("\\"), comments=True)  # sbatch drops it: no line continues
        if words and words[0] in SPLITS:
            components.append({})
            return []
        result, rest = _options(words)
    except ValueError as fault:
        raise JobspecError(f"#SBATCH line cannot be read: {fault}", line=number) from None
    except JobspecError as fault:
        raise JobspecError(fault.message, line=number) from None
    if rest:
        raise JobspecError(f"#SBATCH line has {rest[0]!r:.60}, which is no option", line=number)
    components[-1] = _merged(components[-1], result)
    return words


def _of_variables(variables: Mapping[str, str]) -> Options:
    """Return what SBATCH_* variables say; one of an option without a value counts if it is there."""
    result: Options = {}
    for variable, name in VARIABLES.items():
        if variable in variables:
            option = OPTIONS[name]
            _check(option)
            result[name] = "" if option.takes is Takes.NOTHING else variables[variable]
    return result


# ── words ──


def _of_words(words: Sequence[str]) -> tuple[list[Options], list[str]]:
    """Return the options of every component (divided by ":"), and what follows the options: script and arguments."""
    components: list[Options] = []
    remaining = list(words)
    while True:
        result, remaining = _options(remaining)
        components.append(result)
        if remaining[:1] != [":"]:
            return components, remaining
        remaining = remaining[1:]


def _options(words: Sequence[str]) -> tuple[Options, list[str]]:
    """Read options up to the first word that is none, as getopt does."""
    options: Options = {}
    remaining = list(words)
    while remaining and remaining[0].startswith("-") and remaining[0] != "-":
        word = remaining.pop(0)
        if word == "--":
            break
        for name, value in _long(word, remaining) if word.startswith("--") else _short(word, remaining):
            options = _merged(options, {name: value})
    return options, remaining


def _long(word: str, remaining: list[str]) -> Iterator[tuple[str, str]]:
    name, equals, value = word[2:].partition("=")
    option = _called(name)
    if option is None:
        yield name, value
        return
    _check(option)
    if option.takes is Takes.NOTHING and equals:
        raise JobspecError(f"--{option.name} takes no value, got {value!r:.60}")
    if option.takes is Takes.VALUE and not equals:
        value = _following(f"--{option.name}", remaining)
    yield option.name, value


def _short(word: str, remaining: list[str]) -> Iterator[tuple[str, str]]:
    letters = word[1:]
    while letters:
        letter, letters = letters[0], letters[1:]
        option = SHORT.get(letter)
        if option is None:
            raise JobspecError(f"-{letter} is not an option of sbatch")
        _check(option)
        if option.takes is Takes.NOTHING:
            yield option.name, ""
            continue
        value = letters.removeprefix("=") if letters or option.takes is Takes.MAYBE else _following(word, remaining)
        yield option.name, value
        return


def _called(name: str) -> Option | None:
    """Return the option of this name, or the only one that begins so, as getopt_long has it.

    >>> [_called(name).name for name in ("tasks", "cluster", "oversub")]
    ['ntasks-per-node', 'clusters', 'oversubscribe']
    """
    if name in OPTIONS or name in ALIASES:
        return OPTIONS[ALIASES.get(name, name)]
    begun = {ALIASES.get(key, key) for key in (*OPTIONS, *ALIASES) if key.startswith(name)}
    results = [OPTIONS[key] for key in OPTIONS if key in begun]
    if len(results) == 1:
        return results[0]
    if len(results) > 1:
        raise JobspecError(f"--{name} may be {', '.join(option.name for option in results[:5])}")
    if hint := meant(name, OPTIONS):
        raise JobspecError(f"--{name} is not an option of sbatch; {hint}")
    return None


def _following(name: str, remaining: list[str]) -> str:
    if not remaining:
        raise JobspecError(f"{name} needs a value")
    return remaining.pop(0)


def _check(option: Option) -> None:
    if option.place is Place.REFUSED:
        raise JobspecError(f"--{option.name} cannot be carried: {option.why}")
