"""One call of qsub: its words, and the script on its standard input.

Grid Engine does not carry a umask, runs a job again that ends with code 99, and keeps one that ends with 100 in its
queue. So what runs is inside a script of ours, which sets the umask and the environment, and ends with code 1 where
the code is one of these. The last line of the output tells the true one.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

from rainbow.agent.executors.run import Run
from rainbow.agent.executors.slurm.call import (
    INDEX,
    CallPlace,
    Element,
    SbatchCall,
    errors_of,
    folder_of,
    output_of,
    script_of,
    umask_of,
)
from rainbow.jobspec.sbatch.request import NotCarriedError, Options, carried, one_line
from rainbow.jobspec.sbatch.shape import mebibytes, read_range

KIND = "gridengine"  # in attributes.site
PE = "smp"  # the parallel environment of jobs of several slots, unless the site or the job names another
TRUE_CODE = "rainbow: exit code "
CODES = "99|100"  # by which Grid Engine does something else than to end a job
CARRIED = {"ntasks", "cpus-per-task", "mem-per-cpu", "mem", "nodes", "ntasks-per-node", "time", "job-name", "begin"}
CARRIED |= {
    "nice",
    "nodelist",
    "comment",
    "open-mode",
    "partition",
    "requeue",
    "no-requeue",
    "threads-per-core",
    "deadline",
}
PATTERNS = {"%A": "$JOB_ID", "%j": "$JOB_ID", "%a": "$TASK_ID", "%x": "$JOB_NAME", "%u": "$USER", "%N": "$HOSTNAME"}
BAD_NAME = re.compile(r"[\s/:@\\*?,]")
LISTED = ("l", "q", "P", "pe", "p", "ar", "R", "notify", "dl", "m", "M", "js", "tc")  # options a job may give itself


def account_mark(mark: str) -> str:
    """Return a mark as an account string may be written, in which some characters have no place.

    >>> account_mark("rainbow=18eb/*/1/f00d"), read_mark("rainbow=18eb.all.1.f00d")
    ('rainbow=18eb.all.1.f00d', 'rainbow=18eb/*/1/f00d')
    """
    return mark.replace("/", ".").replace("*", "all")


def read_mark(account: str) -> str:
    """Return the mark in an account string; empty: there is none of ours."""
    return account.replace(".", "/").replace("/all/", "/*/") if account.startswith("rainbow=") else ""


def words_for(run: Run, pe: str = PE) -> tuple[list[str], int]:
    """Return what qsub is asked for by a run, and how many slots that are; NotCarriedError names what it cannot say.

    >>> tree = {"type": "slot", "count": 2, "with": [{"type": "core", "count": 2}]}
    >>> words_for(Run(("t", 1), "j", (), duration=90.0, request={"resources": [tree], "system": {}, "site": {}}))
    (['-pe', 'smp', '4', '-l', 'h_rt=90'], 4)
    """
    request = run.request or {}
    options = carried({**request, "site": {}}, run.duration).options
    own = dict((request.get("site") or {}).get(KIND) or {})
    if wrong := sorted(set(options) - CARRIED):
        raise NotCarriedError(f"Grid Engine cannot be asked for {', '.join(wrong)}; write it under site.{KIND}")
    if read_range(options.get("nodes", "1"))[0] > 1 and "pe" not in own:
        raise NotCarriedError(f"a job of several nodes needs the parallel environment: site.{KIND}.pe: NAME SLOTS")
    slots = int(options.get("ntasks", "1")) * int(options.get("cpus-per-task", "1"))
    words = ["-pe", pe, str(slots)] if slots > 1 and "pe" not in own else []
    if run.duration:
        words += ["-l", f"h_rt={max(1, round(run.duration))}"]
    words += _memory(options, slots)
    if hosts := options.get("nodelist"):
        words += ["-l", f"hostname={hosts.replace(',', '|')}"]
    if begin := options.get("begin"):
        words += ["-a", _moment(begin)]
    if queue := options.get("partition"):
        words += ["-q", queue]
    return [*words, *_own(own)], slots


def _memory(options: Options, slots: int) -> list[str]:
    """Ask for memory as Grid Engine limits it, which is for each slot."""
    if "mem-per-cpu" in options:
        return ["-l", f"h_vmem={mebibytes('mem-per-cpu', options['mem-per-cpu'])}M"]
    if "mem" in options and options["mem"] != "0":
        return ["-l", f"h_vmem={-(-mebibytes('mem', options['mem']) // slots)}M"]
    return []


def _moment(begin: str) -> str:
    try:
        return datetime.fromisoformat(begin).strftime("%Y%m%d%H%M.%S")
    except ValueError:
        raise NotCarriedError(f"Grid Engine cannot be told to begin at {begin:.40}") from None


def _own(options: Mapping[str, Any]) -> list[str]:
    words: list[str] = []
    for name, value in options.items():
        if name not in LISTED:
            raise NotCarriedError(f"site.{KIND} has no option {name:.40}; it has {', '.join(LISTED)}")
        for each in value if isinstance(value, list) else [value]:
            words += [f"-{name}", *([] if each is True else one_line(each).split())]
    return words


def call_of(
    run: Run, mark: str, place: CallPlace, element: Element | None, spread: str, pe: str
) -> tuple[SbatchCall, int]:
    """Return the call for a run, or for the elements of an array `spread` (a-b:c), and its slots."""
    query, slots = words_for(run, pe)
    request, folder, umask = run.request or {}, folder_of(run, place), umask_of(run)
    system = request.get("system") or {}
    words = ["-S", "/bin/sh", "-wd", folder, "-w", "e", "-r", "n", *query]
    words += ["-N", name_of(str(request.get("name") or "rainbow")), "-A", account_mark(mark)]
    output, errors = output_of(run, place, element), errors_of(run)
    words += ["-o", written(output, spread), *(["-e", written(errors, spread)] if errors else ["-j", "y"])]
    if system.get("input"):
        words += ["-i", written(one_line(system["input"]), spread)]
    if spread:
        words += ["-t", spread]
    if priority := system.get("priority"):
        words += ["-p", str(min(0, int(priority)))]
    script = script_of(run)
    if not script:
        words += ["-C", ""]  # nothing of a command is a directive
    text = wrapper(run, script, place, slots, folder, umask, in_array=bool(spread))
    return SbatchCall(tuple(words), text, folder=folder, umask=umask), slots


def name_of(name: str) -> str:
    """Return a job's name as Grid Engine takes it.

    >>> name_of("a b/c"), name_of("7 days")
    ('a_b_c', 'j7_days')
    """
    plain = BAD_NAME.sub("_", name)
    return f"j{plain}" if plain[:1].isdigit() else plain


def written(path: str, spread: str) -> str:
    """Return a path with the patterns of Grid Engine in place of Slurm's.

    >>> written("out-%A_%a", "1-3:1"), written("%x-%j.log", "")
    ('out-$JOB_ID_$TASK_ID', '$JOB_NAME-$JOB_ID.log')
    """
    for pattern, variable in PATTERNS.items():
        path = path.replace(pattern, variable if spread or pattern != "%a" else "")
    return path


# what Grid Engine says of a job, as scripts that were written for Slurm read it
AS_SLURM = """export SLURM_JOB_ID="$JOB_ID" SLURM_JOBID="$JOB_ID" SLURM_JOB_NAME="$JOB_NAME" SLURM_SUBMIT_DIR="$PWD"
export SLURM_NNODES="$NHOSTS" SLURM_JOB_NUM_NODES="$NHOSTS" SLURM_JOB_PARTITION="$QUEUE" SLURM_PROCID=0
export SLURM_CPUS_ON_NODE="$NSLOTS" SLURM_JOB_NODELIST="$HOSTNAME" SLURM_NODELIST="$HOSTNAME"
export SLURMD_NODENAME="$HOSTNAME" RAINBOW_WORKER="$HOSTNAME" SLURM_RESTART_COUNT="$RESTARTED"
"""
OF_ARRAY = frozenset(f"SLURM_ARRAY_{name}" for name in ("JOB_ID", "TASK_COUNT", "TASK_MIN", "TASK_MAX", "TASK_STEP"))
ELEMENT = """export SLURM_ARRAY_JOB_ID="$JOB_ID" SLURM_ARRAY_TASK_ID="$SGE_TASK_ID" RAINBOW_ARRAY_INDEX="$SGE_TASK_ID"
"""
# Grid Engine makes the files of a job with its own umask, before anything of the job runs
NEW_FILE = """umask {umask:04o}
for rainbow_file in "$SGE_STDOUT_PATH" "$SGE_STDERR_PATH"; do
if [ -f "$rainbow_file" ] && [ ! -s "$rainbow_file" ]; then chmod {mode:04o} "$rainbow_file"; fi
done
"""
ENDS = f"""code=$?
rm -f "$rainbow_script"
case $code in {CODES}) echo "{TRUE_CODE}$code" >&2; exit 1;; esac
exit $code
"""


def wrapper(run: Run, script: str, place: CallPlace, slots: int, folder: str, umask: int, *, in_array: bool) -> str:
    """Return the script that Grid Engine runs: it prepares what a job sees, runs it, and ends as Grid Engine may."""
    answer = {"RAINBOW_JOB": run.job, "RAINBOW_TASK": run.id[0], "RAINBOW_TASK_RANK": "0", "RAINBOW_TASK_COUNT": "1"}
    of_job = {name: value for name, value in run.variables.items() if value and (not in_array or name in OF_ARRAY)}
    options = {**of_job, **place.visible, **answer, **run.environment}
    if in_array:  # elements have one script: which one it is Grid Engine says
        options = {name: value for name, value in options.items() if name not in ("RAINBOW_TASK", INDEX)}
        options = {name: value for name, value in options.items() if not name.startswith("SLURM_ARRAY_TASK_ID")}
    lines = [AS_SLURM, *([ELEMENT] if in_array else [])]
    lines += [f"export SLURM_NTASKS={slots} SLURM_NPROCS={slots} SLURM_CPUS_PER_TASK=1\n"]
    lines += [f"export {name}={shlex.quote(value)}\n" for name, value in options.items() if value is not None]
    if umask >= 0:
        lines.append(NEW_FILE.format(umask=umask, mode=0o666 & ~umask))
    words = [str(word) for word in (run.request or {}).get("arguments") or ()]
    if not script:
        return "".join(["#!/bin/sh\n", *lines, "rainbow_script=\n", shlex.join(run.command), "\n", ENDS])
    mark = "RAINBOW_END_OF_SCRIPT"
    while mark in script:
        mark += "_"
    body = script if script.endswith("\n") else f"{script}\n"
    made = f"""rainbow_script=$(mktemp "${{TMPDIR:-/tmp}}/rainbow.XXXXXX") || exit 1
cat > "$rainbow_script" <<'{mark}'
{body}{mark}
chmod 700 "$rainbow_script"
"$rainbow_script" {shlex.join(words)}
"""
    return "".join(["#!/bin/sh\n", *lines, made, ENDS])


def true_code(code: int | None, *texts: str) -> int | None:
    """Return the code that a job has ended with, where its script told another one than Grid Engine.

    >>> true_code(1, "done\\nrainbow: exit code 99\\n"), true_code(1, "no\\n")
    (99, 1)
    """
    for text in texts if code == 1 else ():
        last = text.rstrip("\n").rpartition("\n")[2]
        if last.startswith(TRUE_CODE) and last.removeprefix(TRUE_CODE) in CODES.split("|"):
            return int(last.removeprefix(TRUE_CODE))
    return code


def spread_of(numbers: Sequence[int]) -> str:
    """Return numbers as the elements of one array; empty: Grid Engine has no such array.

    >>> spread_of([2, 6, 4]), spread_of([0, 1]), spread_of([1, 2, 4]), spread_of([7])
    ('2-6:2', '', '', '7-7:1')
    """
    ordered = sorted(numbers)
    steps = {later - earlier for earlier, later in pairwise(ordered)} or {1}
    if not ordered or ordered[0] < 1 or len(steps) > 1 or min(steps) < 1:
        return ""
    return f"{ordered[0]}-{ordered[-1]}:{min(steps)}"
