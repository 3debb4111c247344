"""The fixtures of what every executor must do: one executor after the other, and Dask's scheduler."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rainbow.agent import Executor
from tests.contract.executing import NAMES, opened, there


@pytest.fixture(scope="module")
def dask_scheduler() -> Iterator[str]:
    """Run a Dask for one file of tests: idle ones would take a fifth of a core until the last test has ended."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=128, processes=True, dashboard_address=None) as cluster:
        yield cluster.scheduler_address


SOAKED = "slurm:owned"  # it differs from slurm:shared by where it puts a task: test_slurm_executor shows that
PARAMS = [pytest.param(name, marks=[pytest.mark.soak] if name == SOAKED else []) for name in NAMES]


@pytest.fixture(params=PARAMS)
def executor(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    result = opened(there(request), tmp_path_factory.mktemp("state"))
    yield result
    result.close()
