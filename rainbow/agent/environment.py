"""Which of the agent's own environment variables its tasks may see, and what each process is told.

An allow-list: the agent's secret, and whatever else its operator has in the environment, stays with the agent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from rainbow.agent.runs import Run
from rainbow.agent.shares import workers_of

ALLOWED = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH"}
)
ALLOWED_PREFIX = "LC_"
# where a resource manager's own commands find their configuration and credentials; nothing that changes a request,
# as SBATCH_TIMELIMIT does
OF_MANAGERS = frozenset(
    {"SLURM_CONF", "SLURM_JWT", "PBS_CONF_FILE", "PBS_EXEC", "PBS_HOME", "PBS_SERVER", "PBS_DEFAULT", "KRB5CCNAME"}
    | {"LSF_ENVDIR", "LSF_SERVERDIR", "LSF_BINDIR", "LSF_LIBDIR", "XLSF_UIDDIR", "FLUX_URI", "FLUX_CONF_DIR"}
)


def allowed(environment: Mapping[str, str], also: Collection[str] = ()) -> dict[str, str]:
    """Return the variables that tasks may see; `also` names further ones.

    >>> allowed({"PATH": "/bin", "LC_ALL": "C", "RAINBOW_SECRET": "rbs_1"})
    {'PATH': '/bin', 'LC_ALL': 'C'}
    """
    return {
        name: value
        for name, value in environment.items()
        if name in ALLOWED or name.startswith(ALLOWED_PREFIX) or name in also
    }


def for_managers(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what the commands of a resource manager are started with.

    >>> for_managers({"PATH": "/bin", "SLURM_CONF": "/etc/slurm.conf", "SBATCH_TIMELIMIT": "1"})
    {'PATH': '/bin', 'SLURM_CONF': '/etc/slurm.conf'}
    """
    return allowed(environment, OF_MANAGERS)


def of_processes(run: Run, base: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield the environment of every process of a run that is started here, by rank."""
    own = {**base, **run.environment}
    shared = {name: value for name, value in own.items() if value is not None}
    workers = workers_of(run) or [""]
    for rank in run.ranks or range(run.processes):
        yield {
            **shared,
            "RAINBOW_JOB": run.job,
            "RAINBOW_TASK": run.id[0],
            "RAINBOW_TASK_RANK": str(rank),
            "RAINBOW_TASK_COUNT": str(run.processes),
            "RAINBOW_WORKER": workers[rank % len(workers)],
        }
