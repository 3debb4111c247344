"""What a script sees on a cluster that is no Slurm: true by placement and request, its files named by our numbers."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

import pytest

from tests.support.shell import Shell, server, shell

__all__ = ["server", "shell"]  # fixtures

ALWAYS = [
    "JOB_ID",
    "JOBID",
    "JOB_NAME",
    "JOB_USER",
    "JOB_UID",
    "JOB_QOS",
    "JOB_PARTITION",
    "CLUSTER_NAME",
    "SUBMIT_DIR",
    "NTASKS",
    "NPROCS",
    "CPUS_PER_TASK",
    "CPUS_ON_NODE",
    "JOB_CPUS_PER_NODE",
    "NNODES",
    "JOB_NUM_NODES",
    "JOB_NODELIST",
    "NODELIST",
    "TASKS_PER_NODE",
    "PROCID",
    "LOCALID",
    "NODEID",
    "RESTART_COUNT",
    "TMPDIR",
]
OF_ARRAYS = [f"ARRAY_{name}" for name in ("JOB_ID", "TASK_ID", "TASK_COUNT", "TASK_MIN", "TASK_MAX", "TASK_STEP")]
SHAPES = [  # options, and what follows from them
    ("-n 1", {"NTASKS": "1", "NNODES": "1", "TASKS_PER_NODE": "1", "CPUS_PER_TASK": "1", "CPUS_ON_NODE": "1"}),
    ("-n 1 -c 3", {"NTASKS": "1", "CPUS_PER_TASK": "3", "CPUS_ON_NODE": "3", "JOB_CPUS_PER_NODE": "3"}),
    ("-N 1 -n 3", {"NTASKS": "3", "NPROCS": "3", "NNODES": "1", "TASKS_PER_NODE": "3", "CPUS_ON_NODE": "3"}),
    ("-N 2 --ntasks-per-node=1 -c 2", {"NNODES": "2", "JOB_NODELIST": "n[0-1]", "TASKS_PER_NODE": "1(x2)"}),
    ("-N 2 --ntasks-per-node=2", {"NTASKS": "4", "JOB_CPUS_PER_NODE": "2(x2)", "TASKS_PER_NODE": "2(x2)"}),
]


def script(names: list[str]) -> str:
    lines = [f'echo "{name}=$SLURM_{name}"' for name in names]
    return "\n".join(["#!/bin/sh -u", *lines, 'echo "OURS=$RAINBOW_JOB_ID"', 'echo "NODE=$SLURMD_NODENAME"', ""])


def seen(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


@pytest.mark.parametrize(("options", "wanted"), SHAPES, ids=[options for options, _ in SHAPES])
def test_a_script_sees_its_place(shell: Shell, options: str, wanted: dict[str, str]) -> None:
    path = shell.file("see.sh", script(ALWAYS))
    said = shell("sbatch", "--parsable", "-W", "-J", "see", "-D", shell.folder, *options.split(), "-o%j", path)
    number = said.stdout.strip()
    assert said.exit_code == 0, said.output
    results = seen((shell.folder / number).read_text())
    job = shell.json("job", "show", number)
    same = {"JOB_ID": number, "JOBID": number, "OURS": number, "JOB_NAME": "see", "JOB_USER": job["requestor"]}
    same |= {"JOB_PARTITION": "oak", "CLUSTER_NAME": "oak", "SUBMIT_DIR": str(shell.folder), "RESTART_COUNT": "0"}
    same |= {"PROCID": "0", "LOCALID": "0", "NODEID": "0", "JOB_UID": str(os.getuid()), **wanted}
    assert {name: results[name] for name in same} == same
    placed = job["tasks"][0]["placement"]
    assert int(results["CPUS_ON_NODE"]) == placed[results["NODE"]]["core"]
    assert not Path(results["TMPDIR"]).exists()


def test_elements_of_an_array_have_numbers_of_their_own(shell: Shell) -> None:
    path = shell.file("array.sh", script([*ALWAYS, *OF_ARRAYS]))
    said = shell("sbatch", "--parsable", "-W", "-a", "2-6:2", "-D", shell.folder, "-o%A_%a.%x.%u.%j.%N", path)
    array = int(said.stdout)
    own = {2: array + 1, 4: array + 2, 6: array}
    login = pwd.getpwuid(os.getuid()).pw_name
    for index, number in own.items():
        [written] = shell.folder.glob(f"{array}_{index}.array.sh.{login}.{number}.*")
        results = seen(written.read_text())
        same = {"JOB_ID": number, "ARRAY_JOB_ID": array, "ARRAY_TASK_ID": index, "ARRAY_TASK_COUNT": 3}
        same |= {"ARRAY_TASK_MIN": 2, "ARRAY_TASK_MAX": 6, "ARRAY_TASK_STEP": 2, "OURS": number}
        assert {name: results[name] for name in same} == {name: str(value) for name, value in same.items()}


def test_a_script_has_a_folder_of_its_own_and_the_umask_of_its_submit(shell: Shell) -> None:
    """The folder is there while it runs, for its user alone, and is gone when it has ended."""
    text = '#!/bin/sh\nstat -c "%a %U" "$TMPDIR"; echo $TMPDIR; mkdir -p "$TMPDIR/a/b"; umask; : > made\n'
    path = shell.file("own.sh", text)
    before = os.umask(0o027)
    try:
        said = shell("sbatch", "--parsable", "-W", "-D", shell.folder, "-owritten", path)
    finally:
        os.umask(before)
    assert said.exit_code == 0
    rights, folder, umask = (shell.folder / "written").read_text().splitlines()
    assert (rights, umask) == (f"700 {pwd.getpwuid(os.getuid()).pw_name}", "0027")
    assert not Path(folder).exists()
    assert stat.S_IMODE((shell.folder / "made").stat().st_mode) == 0o640
    assert stat.S_IMODE((shell.folder / "written").stat().st_mode) == 0o640
