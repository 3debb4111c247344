"""What a run holds binds its processes, whichever executor starts them here."""

import json
import sys

import pytest

from rainbow.agent.executors.local import cores_here
from rainbow.agent.executors.run import Run
from tests.scenarios.test_end_to_end import until
from tests.unit.agent.test_binding import HERE, SEES, needs_two


@needs_two
@pytest.mark.parametrize("executor", ["local", "local, kept", "psij:local", "dask"], indirect=True)
def test_processes_have_the_cores_their_run_holds(executor):
    binding = {HERE: {"core": [1], "gpu": [2]}}
    run = Run(("t", 1), "j", (sys.executable, "-c", SEES), placement={HERE: {"core": 1}}, binding=binding)
    executor.start(run)
    ended = []
    until(lambda: ended.extend(executor.poll()) or ended)
    threads = cores_here()[1]
    assert json.loads(ended[0].output) == [threads, ",".join(map(str, threads)), "1", "2"]
