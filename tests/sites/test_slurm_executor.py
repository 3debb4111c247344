"""The executor `slurm` on a real Slurm: handed over once, watched whatever is queued beside, told as it was."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rainbow.agent import Executor, Result, Run
from rainbow.agent.executors.process import read_end
from rainbow.agent.executors.slurm import executor as slurm_executor
from rainbow.agent.executors.slurm import handover, watcher
from rainbow.agent.executors.slurm.commands import Commands
from rainbow.agent.executors.slurm.executor import SlurmExecutor
from rainbow.testing.executors import ends, run_of, until
from tests.contract.executing import opened
from tests.support.slurm import Slurm

DYING = """
import os, sys, time
from pathlib import Path
from rainbow.agent import Run
from rainbow.agent.executors.slurm.commands import Commands
from rainbow.agent.executors.slurm.executor import SlurmExecutor
folder, mark = sys.argv[1:]
executor = SlurmExecutor("shared", {"PATH": os.environ["PATH"]}, Path(folder))
executor.start(Run(("t", 1), "job1", ("sh", "-c", 'echo >> "$1"; echo done', "sh", mark)))
time.sleep(60)
"""
# what stands before sbatch: the agent is killed before it, after it, or while it goes on without the agent
SBATCH = {
    "before it": "kill -9 $PPID; exit 1\n",
    "after it": '{real} "$@" > /dev/null; kill -9 $PPID\n',
    "while it goes on": '(sleep 0.7; {real} "$@" > /dev/null) & kill -9 $PPID; wait\n',
}


def request(*trees: Any, **more: Any) -> dict[str, Any]:
    slots = {"type": "slot", "count": 1, "label": "a", "with": [{"type": "core", "count": 1}]}
    return {"name": "mine", "resources": list(trees) or [slots], "system": {}, "site": {}, "gang": 1, **more}


@pytest.fixture
def shared(on_slurm: Slurm, tmp_path: Path) -> Iterator[SlurmExecutor]:
    del on_slurm
    made = SlurmExecutor("shared", {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}, tmp_path / "state")
    yield made
    made.close()


def record(slurm: Slurm, name: str) -> str:
    """Return the newest record of a job of this name."""
    result = slurm.run("squeue", "-h", "-t", "all", "-n", name, "-o", "%i").split()
    return slurm.run("scontrol", "-o", "show", "job", max(result, key=int))


@pytest.mark.parametrize("when", SBATCH)
def test_agent_killed_around_sbatch_neither_doubles_nor_loses_the_job(
    when: str, on_slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del on_slurm
    monkeypatch.setattr(watcher, "APART", 1.5)
    folder, mark, slow = tmp_path / "state", tmp_path / "mark", tmp_path / "bin" / "sbatch"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\n" + SBATCH[when].format(real=shutil.which("sbatch")))
    slow.chmod(0o755)
    environment = {**os.environ, "PATH": f"{slow.parent}:{os.environ['PATH']}"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    died = subprocess.run([sys.executable, "-c", DYING, str(folder), str(mark)], env=environment, check=False)
    assert died.returncode == -9
    again = SlurmExecutor("shared", {"PATH": os.environ["PATH"]}, folder)
    try:
        assert again.running() == [("t", 1)]
        [end] = ends(again).values()
        assert (end.result, end.exit_code, end.output) == (Result.EXITED, 0, "done\n")
        time.sleep(1)
        assert len(mark.read_text()) == 1
    finally:
        again.close()


@pytest.mark.parametrize("called", ["slurm:shared", "psij:slurm"])
def test_rows_with_reasons_of_several_words_blind_no_executor(called: str, on_slurm: Slurm, tmp_path: Path) -> None:
    """And what somebody cancels at the site while it waits is told."""
    executor: Executor = opened(f"{called}, kept", tmp_path)
    on_slurm.run("scontrol", "update", "nodename=n0001,n0002,n0003,n0004", "state=drain", "reason=a fan is broken")
    odd = on_slurm.run("sbatch", "--parsable", "-N4", "--output=/dev/null", "--wrap=true").strip()
    try:
        executor.start(run_of("true", task="waits"))
        until(lambda: any("ReqNodeNotAvail" in why.text for why in executor.pending().values()), 30)
        native = next(iter(executor.pending().values())).facts["native_id"]  # type: ignore[attr-defined]
        on_slurm.run("scancel", str(native))
        [end] = ends(executor, seconds=20).values()
        assert end.result is (Result.CANCELED if called == "slurm:shared" else Result.STOPPED)
    finally:
        on_slurm.run("scontrol", "update", "nodename=n0001,n0002,n0003,n0004", "state=resume")
        on_slurm.run("scancel", odd)
        executor.close()


def test_request_goes_over_whole_with_its_name_place_and_output(
    shared: SlurmExecutor, on_slurm: Slurm, tmp_path: Path
) -> None:
    node = {"type": "node", "count": 1, "with": [{"type": "core", "count": 4}]}
    query = request({"type": "slot", "count": 2, "label": "a", "with": [node]}, system={"comment": "two words"})
    query["site"] = {"slurm": {"partition": "short"}}
    work = tmp_path / "work"
    work.mkdir()
    command = ("sh", "-c", 'echo "$RAINBOW_TASK_RANK $A"; pwd >&2; exit 3')
    run = Run(("job1-0", 1), "job1", command, str(work), {"A": "x  y"}, 90.0, 2, request=query)
    shared.start(run)
    end = ends(shared)[run.id]
    assert (end.result, end.exit_code) == (Result.EXITED, 3)
    assert sorted(end.output.splitlines()) == [str(work), str(work), "0 x  y", "1 x  y"]
    until(lambda: "JobState=FAILED" in record(on_slurm, "mine"))
    text = record(on_slurm, "mine")
    for field in ("NumNodes=2", "NumCPUs=8", "NumTasks=2", "CPUs/Task=4", "TimeLimit=00:02:00", "Partition=short"):
        assert f" {field} " in text
    assert f" WorkDir={work} Comment=two words rainbow=job1/0/1/" in text
    assert " ExitCode=3:0 " in text
    [output] = work.iterdir()
    assert f" StdOut={output} " in text
    assert {"0 x  y", "1 x  y"} <= set(output.read_text().splitlines())


def test_script_travels_unchanged_and_its_end_is_slurms(
    shared: SlurmExecutor, on_slurm: Slurm, tmp_path: Path
) -> None:
    script = '#!/bin/sh\n#SBATCH --time=5\necho "$A" "$1"\nkill -9 $$\n'
    query = request(script=script, name="scripted", system={"output": f"{tmp_path}/out"})
    query["arguments"] = ["one  word"]
    run = Run(("s-0", 1), "s", ("sh", "-c", "a loader"), str(tmp_path), {"A": "b, c"}, request=query)
    shared.start(run)
    end = ends(shared)[run.id]
    assert (end.result, end.exit_code, end.detail) == (Result.EXITED, 137, "killed by SIGKILL")
    assert (tmp_path / "out").read_text() == end.output == "b, c one  word\n"
    job = record(on_slurm, "scripted").split()[0].removeprefix("JobId=")
    assert on_slurm.run("scontrol", "write", "batch_script", job, "-") == script
    assert run.id in shared.begun() or end.result is Result.EXITED


def test_what_a_job_writes_is_told_while_it_runs(
    shared: SlurmExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "LIVE", 0.5)
    command = ("sh", "-c", "echo first; echo wrong >&2; sleep 60")
    for number, script in enumerate(("", "#!/bin/sh\necho first; sleep 60\n")):
        query = request(script=script, system={} if script else {"error": "%j.err"})
        shared.start(Run((f"w{number}", 1), "w", command, str(tmp_path), request=query))
    answer: dict[Any, Any] = {}
    until(lambda: shared.poll() == [] and (answer.update(shared.written()), len(answer) == 2)[1], 40)
    assert set(answer.values()) == {("first\n", ""), ("first\n", "wrong\n")}
    assert shared.written() == {}


def test_output_is_read_of_plain_files_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("0123456789")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    assert [read_end(tmp_path / name, 4) for name in ("file", "link", "pipe", "none")] == ["6789", "", "", ""]


def test_what_rainbow_has_done_itself_is_not_done_again_for_what_the_script_says(
    shared: SlurmExecutor, on_slurm: Slurm, tmp_path: Path
) -> None:
    """Its array is one element here, its dependency and its hold are over."""
    script = "#!/bin/sh\n#SBATCH --array=0-3 --hold\n#SBATCH --dependency=afterok:99999 --begin=now+1hour\n"
    query = request(script=script + 'echo "$SLURM_ARRAY_TASK_ID"\n', name="element")
    run = Run(("e-2", 1), "e", ("sh", "-c", "a loader"), str(tmp_path), {"RAINBOW_ARRAY_INDEX": "2"}, request=query)
    shared.start(run)
    end = ends(shared)[run.id]
    assert (end.result, end.exit_code, end.output) == (Result.EXITED, 0, "2\n")
    assert len(on_slurm.run("squeue", "-h", "-r", "-t", "all", "-n", "element", "-o", "%i").split()) == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--array=0-9", "its script asks for an array"),
        ("--wait", "its script asks for --wait"),
        ("--uid=0", "its script: "),
        ("hetjob", "2 components (hetjob), the jobspec for 1"),
    ],
)
def test_script_that_cannot_be_handed_over_is_refused_in_words(shared: SlurmExecutor, line: str, said: str) -> None:
    shared.start(replace(run_of("true"), request=request(script=f"#!/bin/sh\n#SBATCH {line}\n#SBATCH -n1\n")))
    end = ends(shared)[("t1", 1)]
    assert end.result is Result.FAILED
    assert end.detail.startswith("not handed over to Slurm: ")
    assert said in end.detail


def test_job_of_several_components_is_one_job_with_one_end(
    shared: SlurmExecutor, on_slurm: Slurm, tmp_path: Path
) -> None:
    """A script of the user's, whose own lines say the same, and a command that starts in each slot of both."""
    slots = [
        {"type": "slot", "count": count, "label": "a", "with": [{"type": "core", "count": count}]} for count in (1, 2)
    ]
    site = {"slurm": {"partition": "batch", "hetjob": [{"partition": "short"}]}}
    script = "#!/bin/sh\n#SBATCH -n1 -p batch\n#SBATCH hetjob\n#SBATCH -n2 -c2 -p short\n"
    script += "echo $SLURM_HET_SIZE; exit 3\n"
    query = request(*slots, script=script, name="pair", site=site)
    shared.start(Run(("script", 1), "s", ("pair",), str(tmp_path), duration=60.0, request=query))
    each = ("sh", "-c", "echo $RAINBOW_TASK_RANK; exit $RAINBOW_TASK_RANK")
    query = request(*slots, name="ranks", site=site)
    shared.start(Run(("command", 1), "c", each, str(tmp_path), duration=60.0, processes=3, request=query))
    result = ends(shared, 2, seconds=60)
    assert (result[("script", 1)].exit_code, result[("script", 1)].output) == (3, "2\n")
    assert sorted(result[("command", 1)].output.split()) == ["0", "1", "2"]
    assert result[("command", 1)].exit_code == 1
    shown = on_slurm.run("squeue", "-h", "-t", "all", "-n", "pair", "-o", "%i %P %C %l").splitlines()
    assert sorted(line.partition("+")[2] for line in shown) == ["0 batch 1 1:00", "1 short 4 1:00"]


def test_what_slurm_refuses_is_told_in_its_words(shared: SlurmExecutor) -> None:
    shared.start(replace(run_of("true"), request=request(site={"slurm": {"partition": "nowhere"}})))
    end = ends(shared)[("t1", 1)]
    assert end.result is Result.FAILED
    assert end.detail.startswith("Slurm does not take it: ")
    assert "invalid partition specified: nowhere" in end.detail


def test_nothing_of_the_agents_environment_is_in_slurms_records(
    on_slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAINBOW_REGISTRATION_SECRET", "rbr_hidden")
    monkeypatch.setenv("SBATCH_TIMELIMIT", "7")
    executor = SlurmExecutor("shared", {"PATH": os.environ["PATH"]}, tmp_path)
    for number, query in enumerate((request(name="plain"), request(name="scripted", script="#!/bin/sh\nenv\n"))):
        executor.start(Run((f"t{number}", 1), "j", ("env",), str(tmp_path), request=query))
    result = ends(executor, 2)
    executor.close()
    assert not any("rbr_hidden" in end.output for end in result.values())
    # of a login at the site nothing, which took Slurm two seconds to find out
    assert "MAIL=" not in result[("t1", 1)].output
    for name in ("plain", "scripted"):
        text = record(on_slurm, name)
        assert " TimeLimit=00:07:00 " not in text
        script = on_slurm.run("scontrol", "write", "batch_script", text.split()[0].removeprefix("JobId="), "-")
        assert "rbr_hidden" not in text + script


@pytest.mark.skipif(os.getuid() != 0, reason="only root submits as somebody else")
def test_owned_pins_only_while_nobody_else_has_jobs(
    on_slurm: Slurm, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    alone = SlurmExecutor("owned", {"PATH": os.environ["PATH"]}, tmp_path / "alone")
    alone.start(run_of("true", placement={"n0003": {"core": 1}}))
    assert ends(alone)[("t1", 1)].exit_code == 0
    alone.close()
    assert " NodeList=n0003 " in record(on_slurm, "rainbow")
    of_nobody, taking = ["--uid=nobody", "--gid=65534", "--hold"], ["-wn0001", "--exclusive"]
    queued = ["sbatch", "--parsable", "--output=/dev/null", "--chdir=/", "--wrap=sleep 60"]
    other, taken = (on_slurm.run(*queued, *more).strip() for more in (of_nobody, taking))
    until(lambda: on_slurm.run("squeue", "-h", "-t", "R", "-j", taken, "-o", "%N").strip() == "n0001")
    beside = SlurmExecutor("owned", {"PATH": os.environ["PATH"]}, tmp_path / "beside")
    try:
        beside.start(run_of("true", placement={"n0001": {"core": 1}}))
        assert ends(beside, seconds=20)[("t1", 1)].exit_code == 0
        assert "nobody have jobs here, too: tasks are not pinned to nodes" in capfd.readouterr().err
    finally:
        on_slurm.run("scancel", other, taken)
        beside.close()


@pytest.mark.parametrize("how", ["stop", "close"])
def test_job_whose_number_is_not_known_yet_is_canceled_once_it_is(
    how: str, shared: SlurmExecutor, on_slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ran for 15 s more, and on without an agent that was closed."""
    monkeypatch.setattr(slurm_executor, "HARD", 600.0 if how == "stop" else 1.0)

    def slow(*answer: Any) -> str:
        said = Commands.sbatch(shared._commands, *answer)
        time.sleep(0.5)
        return said

    monkeypatch.setattr(shared._commands, "sbatch", slow)
    script = request(script="#!/bin/sh\nsleep 600\n", name=how)
    shared.start(replace(run_of("x", task=how), request=script))
    until(lambda: on_slurm.run("squeue", "-h", "-n", how, "-o", "%i"), 20)
    getattr(shared, how)(*[(how, 1)] if how == "stop" else [])
    assert how == "close" or ends(shared, seconds=20)[(how, 1)].result is Result.STOPPED
    until(lambda: "JobState=CANCELLED" in record(on_slurm, how), 10)


def test_under_shared_nothing_is_pinned_to_a_node(shared: SlurmExecutor, on_slurm: Slurm) -> None:
    busy = on_slurm.run("sbatch", "--parsable", "-wn0001", "--exclusive", "--output=/dev/null", "--wrap=sleep 60")
    until(lambda: "n0001" in on_slurm.run("squeue", "-h", "-j", busy.strip(), "-o", "%N"))
    try:
        shared.start(run_of("true", placement={"n0001": {"core": 1}}))
        assert ends(shared, seconds=20)[("t1", 1)].exit_code == 0
    finally:
        on_slurm.run("scancel", busy.strip())


def test_what_has_not_begun_is_taken_back_and_what_has_begun_runs_on(shared: SlurmExecutor) -> None:
    """Slurm itself decides which of both it is: a job that begins meanwhile is not canceled."""
    late = {"slurm": {"partition": "short", "time": "60"}}  # longer than the partition allows: it never starts
    shared.start(replace(run_of("true", task="stuck"), request=request(site=late)))
    shared.start(replace(run_of("sleep", "3", task="runs"), request=request()))
    # nothing is polled: nobody has heard yet that the other one has begun
    until(lambda: "stuck" in [why.facts.get("class") for why in shared.pending().values()], 30)
    for task in ("stuck", "runs"):
        shared.withdraw((task, 1))
    result = ends(shared, 2)
    assert result["stuck", 1].result is Result.STOPPED
    assert (result["runs", 1].result, result["runs", 1].exit_code) == (Result.EXITED, 0)


def test_1000_equal_tasks_of_a_job_are_handed_over_as_one_array_and_all_end_as_they_do(
    shared: SlurmExecutor, on_slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held at the site, so that nothing else uses the machine meanwhile; a few of them run; for time see soak."""
    monkeypatch.setattr(handover, "MOMENT", 2.0)  # a busy machine may pause between two starts
    query = request(name="many", tasks=1_000, site={"slurm": {"begin": "now+1hour"}})
    begun = time.process_time()
    for number in range(1_000):
        shared.start(Run((f"m-{number}", 1), "m", ("sh", "-c", f"echo {number}; exit {number % 3}"), request=query))
    until(lambda: all(active.native for active in shared._active.values()), 30)
    used = time.process_time() - begun
    assert len({active.native.partition("_")[0] for active in shared._active.values()}) == 1
    assert used < 2  # of the processor: the machine may be busy with other things
    array = on_slurm.run("squeue", "-h", "-n", "many", "-o", "%F").split()[0]
    for number in range(3, 1_000):
        shared._active.pop((f"m-{number}", 1))
    on_slurm.run("scancel", f"{array}_[3-999]")
    on_slurm.run("scontrol", "update", f"jobid={array}", "starttime=now")
    result = ends(shared, 3, seconds=60)
    assert {task: (end.exit_code, end.output) for (task, _), end in result.items()} == {
        f"m-{number}": (number, f"{number}\n") for number in range(3)
    }


ARRAY = """
import os, sys, time
from pathlib import Path
from rainbow.agent import Run
from rainbow.agent.executors.slurm.commands import Commands
from rainbow.agent.executors.slurm.executor import SlurmExecutor
folder, marks = sys.argv[1:]
executor = SlurmExecutor("shared", {"PATH": os.environ["PATH"]}, Path(folder))
slot = {"type": "slot", "count": 1, "label": "a", "with": [{"type": "core", "count": 1}]}
asked = {"name": "twins", "resources": [slot], "system": {}, "site": {}, "gang": 1, "tasks": 2}
for number in range(2):
    command = ("sh", "-c", 'echo >> "$1"; echo "$2"', "sh", f"{marks}-{number}", str(number))
    executor.start(Run((f"pair-{number}", 1), "pair", command, request=asked))
time.sleep(60)
"""


def test_agent_killed_after_sbatch_finds_every_element_of_its_array(on_slurm: Slurm, tmp_path: Path) -> None:
    killing = tmp_path / "bin" / "sbatch"
    killing.parent.mkdir()
    killing.write_text("#!/bin/sh\n" + SBATCH["after it"].format(real=shutil.which("sbatch")))
    killing.chmod(0o755)
    environment = {**os.environ, "PATH": f"{killing.parent}:{os.environ['PATH']}"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    words = [sys.executable, "-c", ARRAY, str(tmp_path / "state"), str(tmp_path / "mark")]
    assert subprocess.run(words, env=environment, check=False).returncode == -9
    again = SlurmExecutor("shared", {"PATH": os.environ["PATH"]}, tmp_path / "state")
    try:
        assert sorted(again.running()) == [("pair-0", 1), ("pair-1", 1)]
        result = ends(again, 2)
        assert {task: (end.result, end.output) for (task, _), end in result.items()} == {
            f"pair-{number}": (Result.EXITED, f"{number}\n") for number in range(2)
        }
        assert [(tmp_path / f"mark-{number}").read_text() for number in range(2)] == ["\n", "\n"]
        assert len(set(on_slurm.run("squeue", "-h", "-t", "all", "-n", "twins", "-o", "%F").split())) == 1
        again.poll()
        assert list((tmp_path / "state" / "lists").iterdir()) == []
    finally:
        again.close()


def test_elements_of_a_script_are_the_array_that_sbatch_would_make(
    shared: SlurmExecutor, on_slurm: Slurm, tmp_path: Path
) -> None:
    script = '#!/bin/sh\n#SBATCH --array=2,5\necho "$SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT"\n'
    query = request(script=script, name="elements", tasks=2)
    for number, index in enumerate(("2", "5")):
        answer = {"RAINBOW_ARRAY_INDEX": index}
        shared.start(Run((f"e-{number}", 1), "e", ("sh", "-c", "a loader"), str(tmp_path), answer, request=query))
    result = ends(shared, 2, seconds=60)
    assert sorted(end.output for end in result.values()) == ["2 of 2\n", "5 of 2\n"]
    [array] = set(on_slurm.run("squeue", "-h", "-t", "all", "-n", "elements", "-o", "%F").split())
    assert sorted(path.name for path in tmp_path.glob("*.out")) == [f"rainbow-{array}_{k}.out" for k in (2, 5)]
