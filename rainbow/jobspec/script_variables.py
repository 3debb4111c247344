"""What a script sees of its job: the variables of Slurm that every kind of cluster sets, from placement and request.

Of a Slurm cluster Slurm itself says them. What differs between the processes of a run (their rank, their node) says
who starts them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from rainbow.jobspec.hostlist import fold_hosts
from rainbow.jobspec.request import Request
from rainbow.text import natural

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Standing:
    """A task as it is started. `number` is its own; of an element of an array `array` is that of the whole."""

    number: int
    name: str
    user: str
    cluster: str
    slots: int
    attempt: int
    placement: Mapping[str, Mapping[str, int]]
    units: Mapping[str, str] = field(default_factory=dict)
    array: int = 0
    index: int | None = None
    account: str = ""
    qos: str = ""


def script_variables(request: Request, one: Standing) -> dict[str, str]:
    """Return the variables that a script sees, without those of single processes.

    >>> one = Standing(7, "job", "ann", "oak", 3, 1, {"n1": {"core": 4}, "n2": {"core": 2}})
    >>> found = script_variables(Request((), ()), one)
    >>> [found[f"SLURM_{name}"] for name in ("NTASKS", "CPUS_PER_TASK", "TASKS_PER_NODE", "JOB_CPUS_PER_NODE")]
    ['3', '2', '2,1', '4,2']
    """
    nodes = sorted(filter(None, one.placement), key=natural)
    cores = [max(1, int(one.placement[node].get("core", 0))) for node in nodes] or [1]
    tasks = max(1, one.slots)
    listed, many = fold_hosts(nodes), len(cores)
    results: dict[str, object] = {
        "JOB_ID": one.number,
        "JOBID": one.number,
        "JOB_NAME": one.name,
        "JOB_USER": one.user,
        "JOB_PARTITION": one.cluster,
        "CLUSTER_NAME": one.cluster,
        "JOB_QOS": one.qos or "normal",
        "NTASKS": tasks,
        "NPROCS": tasks,
        "CPUS_PER_TASK": max(1, sum(cores) // tasks),
        "CPUS_ON_NODE": cores[0],
        "JOB_CPUS_PER_NODE": counts_text(cores),
        "NNODES": many,
        "JOB_NUM_NODES": many,
        "JOB_NODELIST": listed,
        "NODELIST": listed,
        "TASKS_PER_NODE": counts_text(tasks_by_node(tasks, cores)),
        "RESTART_COUNT": max(0, one.attempt - 1),
    }
    if one.account:
        results["JOB_ACCOUNT"] = one.account
    if folder := request.cwd or request.submitted_from:
        results["SUBMIT_DIR"] = folder
    system = request.attributes.get("system")
    if isinstance(system, Mapping) and system.get("submit-host"):
        results["SUBMIT_HOST"] = system["submit-host"]
    if gpus := sum(int(held.get("gpu", 0)) for held in one.placement.values()):
        results["GPUS"] = gpus
    memory = max((int(one.placement[node].get("memory", 0)) for node in nodes), default=0)
    if memory and one.units.get("memory") == "B":
        results["MEM_PER_NODE"] = memory // MIB
    if request.array is not None and one.index is not None:
        spans = request.array.ids.spans
        step = spans[0].step if len(spans) == 1 else 1
        results |= {"ARRAY_JOB_ID": one.array, "ARRAY_TASK_ID": one.index, "ARRAY_TASK_COUNT": len(request.array.ids)}
        results |= {"ARRAY_TASK_MIN": spans[0][0], "ARRAY_TASK_MAX": spans[-1][-1], "ARRAY_TASK_STEP": step}
    return {f"SLURM_{name}": str(value) for name, value in results.items()}


def tasks_by_node(tasks: int, cores: Sequence[int]) -> list[int]:
    """Return how many tasks each node has, by the cores that a job holds of it.

    >>> tasks_by_node(3, [4, 2]), tasks_by_node(3, [1, 1])
    ([2, 1], [2, 1])
    """
    each, remaining = divmod(sum(cores), tasks)
    if not remaining and each and all(many % each == 0 for many in cores):
        return [many // each for many in cores]
    return [len(range(place, tasks, len(cores))) for place in range(len(cores))]


def counts_text(counts: Sequence[int]) -> str:
    """Write numbers of nodes as Slurm does.

    >>> counts_text([2, 2, 1])
    '2(x2),1'
    """
    runs = [(value, len(list(same))) for value, same in groupby(counts)]
    return ",".join(f"{value}(x{many})" if many > 1 else str(value) for value, many in runs)


def numbered_file(path: str, number: int, array: int) -> str:
    """Write a job's own numbers into the name of a file: %j and %J its own, %A its array's; %% stays.

    >>> numbered_file("%x-%5j_%a.%A.%%j", 42, 40)
    '%x-00042_%a.40.%%j'
    """
    return _NUMBERS.sub(lambda at: _written(at, number, array), path)


def _written(at: re.Match[str], number: int, array: int) -> str:
    if at[2] not in ("j", "J", "A"):
        return at[0]
    return str(array or number if at[2] == "A" else number).zfill(min(int(at[1] or 0), 10))


_NUMBERS = re.compile(r"%([0-9]{0,4})([A-Za-z%])", re.ASCII)
