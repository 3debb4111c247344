"""Which processes of a run start on which of its workers."""

from __future__ import annotations

from rainbow.agent.runs import Run
from rainbow.graph.order import natural


def workers_of(run: Run) -> list[str]:
    """Return the workers a run was placed on; what belongs to no worker (a licence) is placed on "".

    >>> workers_of(Run(("t", 1), "j", ("x",), placement={"": {"licence": 1}, "n10": {}, "n2": {}}))
    ['n2', 'n10']
    """
    return sorted(filter(None, run.placement), key=natural)


def shares(run: Run) -> list[tuple[str, tuple[int, ...]]]:
    """Return (worker, ranks) for every worker of a run, workers taken in turn in natural order of their names.

    >>> shares(Run(("t", 1), "j", ("x",), processes=3, placement={"n10": {}, "n2": {}}))
    [('n2', (0, 2)), ('n10', (1,))]
    >>> shares(Run(("t", 1), "j", ("x",), processes=2))
    [('', (0, 1))]
    """
    workers = workers_of(run) or [""]
    dealt = [(worker, tuple(range(place, run.processes, len(workers)))) for place, worker in enumerate(workers)]
    return [(worker, ranks) for worker, ranks in dealt if ranks]
