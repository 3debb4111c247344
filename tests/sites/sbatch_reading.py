"""Scripts as people write them, and what `sbatch -vv` says it has read of them, option by option."""

from __future__ import annotations

import os
import random
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from rainbow.jobspec.sbatch.shape import mebibytes

FLAG = None
VALUES: Mapping[str, tuple[str | None, ...]] = {
    "account": ("chem",),
    "acctg-freq": ("30",),
    "array": ("1-4", "0-10:2", "1,3,5%2"),
    "bb": ("x",),
    "comment": ("x y", "a # b", "it's"),
    "constraint": ("ib", "ib&rack1", "ib|rack2", "[rack1|rack2]"),
    "contiguous": (FLAG,),
    "core-spec": ("1",),
    "cpus-per-task": ("2",),
    "dependency": ("afterok:1", "singleton", "afterany:1:2"),
    "distribution": ("block",),
    "error": ("err", "/scratch/%x"),
    "exclude": ("a2",),
    "exclusive": (FLAG, "user"),
    "export": ("NONE", "ALL", "A=1,B=2"),
    "gpus": ("2", "a100:1"),
    "gpus-per-node": ("1",),
    "gres": ("gpu:1", "gpu:a100:2", "gpu:1,fpga:1"),
    "hold": (FLAG,),
    "ignore-pbs": (FLAG,),
    "input": ("/dev/null",),
    "job-name": ("hello", "two words", "a#b"),
    "licenses": ("foo:2",),
    "mail-type": ("END", "BEGIN,FAIL"),
    "mail-user": ("a@b.c",),
    "mem": ("10G", "500", "1500M"),
    "mem-per-cpu": ("1G",),
    "mincpus": ("2",),
    "nice": ("10",),
    "no-kill": (FLAG,),
    "no-requeue": (FLAG,),
    "nodes": ("4", "1-3"),
    "ntasks": ("4", "1"),
    "ntasks-per-node": ("2",),
    "open-mode": ("append",),
    "output": ("out-%j.txt", "/scratch/%x"),
    "overcommit": (FLAG,),
    "oversubscribe": (FLAG,),
    "parsable": (FLAG,),
    "partition": ("batch", "batch,gpu"),
    "qos": ("normal",),
    "quiet": (FLAG,),
    "requeue": (FLAG,),
    "reservation": ("r",),
    "signal": ("B:USR1@30", "B:USR2@40"),  # of two, a B stays in sbatch
    "sockets-per-node": ("1",),
    "spread-job": (FLAG,),
    "switches": ("1", "1@10"),
    "thread-spec": ("1",),
    "threads-per-core": ("1",),
    "time": ("10", "5:30", "1-2", "1-00:00:30", "00:90:00", "0:0:90", "90"),
    "tmp": ("1G",),
    "use-min-nodes": (FLAG,),
    "wait-all-nodes": ("1",),
    "wckey": ("w",),
}
SHORT = {"account": "A", "array": "a", "constraint": "C", "cpus-per-task": "c", "dependency": "d", "error": "e"}
SHORT |= {"exclude": "x", "gpus": "G", "hold": "H", "input": "i", "job-name": "J", "licenses": "L", "no-kill": "k"}
SHORT |= {"nodes": "N", "ntasks": "n", "output": "o", "overcommit": "O", "oversubscribe": "s", "partition": "p"}
SHORT |= {"qos": "q", "time": "t"}
MAY_HAVE_A_VALUE = {"exclusive", "nice"}  # which is never a word of its own
CALL = {"ignore-pbs", "parsable", "quiet", "test-only", "verbose"}  # of the call, nothing of the job
SIZES = ("mem", "mem-per-cpu", "tmp")


def written(rng: random.Random) -> str:
    """Return a script with options in all forms: short, long, joined, quoted, shortened, commented, too late."""
    lines = ["#!/bin/bash"]
    for _ in range(rng.randint(1, 5)):
        words = [_word(rng, rng.choice(sorted(VALUES))) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
        line = rng.choice(["#SBATCH ", "#SBATCH  ", "#SBATCH\t"]) + " ".join(words)
        odd = rng.random()
        if odd < 0.2:
            line = rng.choice([f"{line} # words --hold", f"#{line}", f" {line}", line.replace("#", "# ", 1)])
        elif odd < 0.3:
            lines.append(rng.choice(["", "# text", "   ", "#FLUX: -n 3"]))
        lines.append(line)
    if rng.random() < 0.1:
        lines.insert(rng.randint(1, len(lines)), "echo early")
    return "\n".join([*lines, "true", ""])


def _word(rng: random.Random, name: str) -> str:
    value = rng.choice(VALUES[name])
    if name in SHORT and rng.random() < 0.4:
        return f"-{SHORT[name]}" if value is None else f"-{SHORT[name]}{rng.choice(['', ' '])}{_quoted(rng, value)}"
    if value is None:
        return f"--{name}"
    between = " " if rng.random() < 0.25 and name not in MAY_HAVE_A_VALUE else "="
    return f"--{name}{between}{_quoted(rng, value)}"


def _quoted(rng: random.Random, value: str) -> str:
    if "'" in value:
        return f'"{value}"'
    plain = re.fullmatch(r"[\w@%./:,=+-]+", value) and rng.random() < 0.7
    return value if plain else rng.choice(["'{}'", '"{}"']).format(value)


def read_by_sbatch(text: str, conf: Path) -> dict[str, str] | None:
    """Return the options that sbatch has read; None: it refuses the script before."""
    call = subprocess.run(
        ["sbatch", "-vv", "--test-only"],
        input=text,
        capture_output=True,
        text=True,
        env={**os.environ, "SLURM_CONF": str(conf)},
        check=False,
    )
    listed = re.search(r"defined options\nsbatch: -+ -+\n(.*?)sbatch: -+ -+", call.stderr, re.S)
    if listed is None:
        return None
    rows = (row.removeprefix("sbatch: ").partition(" : ") for row in listed[1].splitlines())
    return {name.strip(): value for name, _, value in rows}


def plain(options: Mapping[str, str]) -> dict[str, str]:
    """Return options in one form: sbatch prints flags as words, paths whole, times in minutes, sizes as it counts.

    `requeue` and `no-requeue` are one variable there, as are `exclusive` and `oversubscribe`.
    """
    passed = {*CALL, *({"nodes"} if "ntasks" in options else ())}  # of few tasks sbatch already lowers the nodes
    return dict(_plain(name, value) for name, value in options.items() if name not in passed)


def _plain(name: str, value: str) -> tuple[str, str]:
    is_set = value in ("", "set")
    if name in ("requeue", "no-requeue"):
        return "requeue", "no" if "no-requeue" in (name if is_set else value) else "yes"
    if name in ("exclusive", "oversubscribe"):
        return "shared", name if is_set else value
    count, _, wait = value.partition("@")
    shown = {
        "switches": lambda: f"{count}@{in_seconds(wait)}" if wait else count,
        "time": lambda: str(-(-in_seconds(value) // 60)),
        "output": lambda: Path(value).name,
        "error": lambda: Path(value).name,
        "gres": lambda: value.replace("gres:", ""),
        "open-mode": lambda: value[0],
        **dict.fromkeys(SIZES, lambda: str(mebibytes(name, value))),
    }
    return name, shown[name]() if name in shown else "" if is_set else value


def in_seconds(text: str) -> int:
    """Return a time of Slurm's in seconds."""
    days, _, rest = text.rpartition("-") if "-" in text else ("0", "", text)
    parts = [int(part) for part in rest.split(":")]
    if "-" in text:
        hours, minutes, seconds = [*parts, 0, 0][:3]
    elif len(parts) == 3:
        hours, minutes, seconds = parts
    else:
        hours, (minutes, seconds) = 0, [*parts, 0][:2]
    return int(days) * 86_400 + hours * 3_600 + minutes * 60 + seconds
