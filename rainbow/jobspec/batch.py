"""Batch jobs: arrays of a task, and scripts that travel with the job.

`attributes.system.array: "0-99:2%5"` makes one task a bag of copies, one for every id, as `sbatch --array` does.
Every copy sees its id as RAINBOW_ARRAY_INDEX and in its command as {index}.

`attributes.system.script` is the text of a script; the task's command is then its name and its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from rainbow.errors import JobspecError
from rainbow.jobspec.request import Array, Numbers, Request, TaskSpec

MOST_ELEMENTS = 1_000_000
_PART = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?", re.ASCII)
_AT_ONCE = re.compile(r"(.*?)(?:%([0-9]{1,9}))?", re.DOTALL | re.ASCII)
INDEX = "{index}"


def read_array(value: Any, pointer: str) -> Array:
    """Read ids as Slurm writes them: "0-15", "1,3,5-7", "0-15:4", each with %N for N at once.

    >>> array = read_array("1,3,8-12:2%2", "")
    >>> list(array.ids), array.at_once
    ([1, 3, 8, 10, 12], 2)
    """
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if isinstance(text, str) and text.startswith("[") and text.endswith("]"):
        text = text[1:-1]  # sbatch reads "[1-100%5]" and "[1-100]%5"
    result = _AT_ONCE.fullmatch(text) if isinstance(text, str) else None
    spans = [_span(part) for part in result[1].removeprefix("[").removesuffix("]").split(",")] if result else []
    if result is None or None in spans or result[2] == "0":
        message = 'an array reads "0-15", "1,3,5-7" or "0-15:4", with %N for N at once'
        raise JobspecError(f"{message}, got {value!r:.60}", pointer=pointer)
    ids = [span for span in spans if span is not None]
    if sum(map(len, ids)) > MOST_ELEMENTS:
        raise JobspecError(
            f"an array of {sum(map(len, ids))} elements, the limit is {MOST_ELEMENTS}", pointer=pointer
        )
    unique = sorted({one for span in ids for one in span})
    whole = sum(map(len, ids)) == len(unique) and all(a[-1] < b[0] for a, b in pairwise(ids))
    return Array(Numbers(tuple(ids) if whole else tuple(_spans(unique))), int(result[2] or 0))


def _span(part: str) -> range | None:
    result = _PART.fullmatch(part.strip())
    if result is None:
        return None
    low, high, step = int(result[1]), int(result[2] or result[1]), int(result[3] or 1)
    return range(low, high + 1, step) if high >= low and step else None


def _spans(ids: Sequence[int]) -> Iterable[range]:
    """Write ascending ids as spans."""
    begin = 0
    for k in range(1, len(ids) + 1):
        if k == len(ids) or ids[k] != ids[k - 1] + 1:
            yield range(ids[begin], ids[k - 1] + 1)
            begin = k


def ids_text(ids: Numbers) -> str:
    """Write ids as Slurm does.

    >>> ids_text(read_array("1,3,8-12:2", "").ids)
    '1,3,8-12:2'
    """
    return ",".join(_span_text(span) for span in ids.spans)


def _span_text(span: range) -> str:
    if len(span) == 1:
        return str(span[0])
    return f"{span[0]}-{span.stop - 1}{f':{span.step}' if span.step > 1 else ''}"


def arrayed(request: Request, system: Mapping[str, Any], at: str) -> Request:
    """Return the request with a copy of its task for every element, if it is an array; `at` points at `system`."""
    if system.get("array") is None:
        return request
    array = read_array(system["array"], f"{at}/array")
    if len(request.tasks) != 1 or request.elastic or request.service or system.get("scatter"):
        text = "an array is one task in as many copies: no other tasks, no scatter, elastic or service beside it"
        raise JobspecError(text, pointer=f"{at}/array")
    [task] = request.tasks
    if task.replicas not in (1, len(array.ids)):
        text = f"the array has {len(array.ids)} elements, the task {task.replicas} replicas"
        raise JobspecError(text, pointer=f"{at}/array")
    return replace(request, array=array, tasks=(replace(task, replicas=len(array.ids)),), together=False)


def index_at(array: Array, place: int) -> int:
    """Return the id of an array's element, counted from 0.

    >>> index_at(read_array("1,3,8-12:2", ""), 3)
    10
    """
    remaining = place
    for span in array.ids.spans:
        if remaining < len(span):
            return span[remaining]
        remaining -= len(span)
    raise IndexError(place)


def read_script(value: Any, pointer: str) -> str:
    """Read a script's text, which begins with the line that names its interpreter."""
    if value is None:
        return ""
    if not isinstance(value, str) or not value.startswith("#!") or not value[2:].splitlines()[0].strip():
        raise JobspecError("script must be text that begins with #! and an interpreter", pointer=pointer)
    return value


# options of sbatch that a jobspec's resources say, too: how many and how they lie, and how much
LAYOUT = frozenset(
    (
        *("nodes", "ntasks", "ntasks-per-node", "ntasks-per-socket", "ntasks-per-core", "ntasks-per-gpu"),
        *("cpus-per-task", "cpus-per-gpu", "mincpus"),
    )
)
MEMORY = frozenset(("mem", "mem-per-cpu", "mem-per-gpu"))
GPUS = frozenset(("gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "gres"))
SHAPE = LAYOUT | MEMORY | GPUS | {"exclusive", "tmp"}


def laid_over(derived: Mapping[str, str], said: Mapping[str, str]) -> dict[str, str]:
    """Return the options of sbatch for a request: what its resources mean, and what is said for the site on top.

    What the site is told of the layout takes the place of all that the resources mean; GPUs of the whole job are a
    part of it. What it is told of memory or GPUs takes the place of that: `--gres` beside a `--gpus-per-task` of ours
    would ask twice.

    >>> laid_over({"ntasks": "2", "mem": "8M"}, {"mem-per-cpu": "4M"}), laid_over({"ntasks": "2"}, {"nodes": "2"})
    ({'ntasks': '2', 'mem-per-cpu': '4M'}, {'nodes': '2'})
    """
    groups = (SHAPE,) if (LAYOUT | {"gpus"}) & said.keys() else (MEMORY, GPUS)
    instead = {name for group in groups if group & said.keys() for name in group}
    return {**{key: value for key, value in derived.items() if key not in instead}, **said}


PIECE = 100_000  # characters of one argument: the kernel takes no more than 128 KiB
# what the interpreter reads is a file without a name: nothing is left behind, however the task ends
_LOADER = """\
f=$(mktemp) || exit; n=$1; shift
while [ "$n" -gt 0 ]; do printf %s "$1" >>"$f" || exit; shift; n=$((n-1)); done
exec 9<"$f"; rm -f "$f"; n=$1; shift
case $n in 1) i=$1; shift; exec "$i" /dev/fd/9 "$@";; esac
i=$1 a=$2; shift 2; exec "$i" "$a" /dev/fd/9 "$@"
"""


def loader(script: str, argv: Sequence[str]) -> list[str]:
    """Return the command that runs a script with arguments (argv after its name), wherever there is a shell.

    >>> loader("#!/bin/bash -l\\nhostname\\n", ["job.sh", "x"])[3:]
    ['job.sh', '1', '#!/bin/bash -l\\nhostname\\n', '2', '/bin/bash', '-l', 'x']
    """
    interpreter = script[2:].splitlines()[0].strip().split(None, 1)  # as the kernel divides it
    pieces = [script[k : k + PIECE] for k in range(0, len(script), PIECE)]
    head = ["/bin/sh", "-c", _LOADER, argv[0] if argv else "script"]
    return [*head, str(len(pieces)), *pieces, str(len(interpreter)), *interpreter, *argv[1:]]


def started(request: Request, spec: TaskSpec, place: int) -> tuple[list[str], dict[str, str | None]]:
    """Return the command and the environment of a task, the job's `place`th (from 0)."""
    array, answer = request.array, dict[str, str | None]()
    words = list(spec.command)
    if array is not None:
        index = str(index_at(array, place))
        words = [word.replace(INDEX, index) for word in words]
        answer |= {"RAINBOW_ARRAY_INDEX": index, **_as_slurm_says(array, index)}
    if request.script:
        folder = request.cwd or request.submitted_from
        answer |= {"SLURM_JOB_NAME": request.name, **({"SLURM_SUBMIT_DIR": folder} if folder else {})}
        words = loader(request.script, words)
    return words, {**answer, **request.environment, **spec.environment}


def _as_slurm_says(array: Array, index: str) -> dict[str, str]:
    spans = array.ids.spans
    answer = {"ID": index, "COUNT": len(array.ids), "MIN": spans[0][0], "MAX": spans[-1][-1]}
    return {f"SLURM_ARRAY_TASK_{name}": str(number) for name, number in answer.items()}
