"""Whose a job is: its key says so, and never its number alone; what nobody knows is lost, and not run twice."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rainbow.agent import Result, Run
from rainbow.agent.executors.run import Ended, SiteJob
from rainbow.agent.executors.slurm import executor as slurm_executor
from rainbow.agent.executors.slurm import watcher
from rainbow.agent.executors.slurm.accounts import Identity, login_path
from rainbow.agent.executors.slurm.executor import SlurmExecutor, opened
from rainbow.agent.executors.slurm.site import Part
from rainbow.testing.executors import ends, until
from tests.support.slurm import Slurm

SLOT = {"type": "slot", "count": 1, "label": "a", "with": [{"type": "core", "count": 1}]}
OTHER = f"rainbow={'0' * 24}/0/1"


def run_of(name: str, body: str, *, script: bool = True, **system: Any) -> Run:
    """Return a run of a shell's text, as the user's own script or as a command of ours."""
    request = {"name": name, "resources": [SLOT], "system": {"output": "/dev/null", **system}, "site": {}, "gang": 1}
    if script:
        request["script"] = f"#!/bin/sh\n{body}\n"
    return Run((f"{name}-0", 1), name, ("sh", "-c", body), str(Path.home()), request=request)


def state_of(slurm: Slurm, job: str) -> str:
    return slurm.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").strip()


def number_of(slurm: Slurm, name: str) -> str:
    """Return the number of a job, as soon as it has one."""
    until(lambda: slurm.run("squeue", "-h", "-t", "all", "-n", name, "-o", "%i").split(), 30)
    return slurm.run("squeue", "-h", "-t", "all", "-n", name, "-o", "%i").split()[-1]


@pytest.fixture
def executor(on_slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmExecutor:
    del on_slurm
    monkeypatch.setattr(watcher, "GONE", 2.0)
    return SlurmExecutor("shared", {"PATH": os.environ["PATH"]}, tmp_path / "state")


@pytest.mark.parametrize("script", [True, False])
def test_job_whose_key_is_another_s_is_left_alone_and_lost(
    script: bool, executor: SlurmExecutor, on_slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_executor, "HARD", 0.2)
    name = f"taken-{script}"
    executor.start(run_of(name, "exec sleep 30", script=script))
    try:
        until(lambda: executor.poll() == [] and executor.begun())
        job = number_of(on_slurm, name)
        on_slurm.run("scontrol", "update", f"jobid={job}", f"comment={OTHER}")
        [end] = ends(executor, seconds=30).values()
        assert (end.result, end.cause) == (Result.FAILED, "lost")
        assert f"Slurm job {job} of user" in end.detail
        assert OTHER in end.detail
        assert state_of(on_slurm, job) == "RUNNING"
    finally:
        executor.close()
    assert state_of(on_slurm, job) == "RUNNING"
    on_slurm.run("scancel", job)


def test_cancel_of_a_job_whose_key_was_replaced_a_moment_ago_cancels_nobody(
    executor: SlurmExecutor, on_slurm: Slurm
) -> None:
    run = run_of("replaced", "exec sleep 30")
    executor.start(run)
    until(lambda: executor.poll() == [] and executor.begun())
    job = number_of(on_slurm, "replaced")
    on_slurm.run("scontrol", "update", f"jobid={job}", f"comment={OTHER}")
    executor.stop(run.id)  # before the next look
    [end] = ends(executor, seconds=30).values()
    assert (end.cause, state_of(on_slurm, job)) == ("lost", "RUNNING")
    executor.close()
    on_slurm.run("scancel", job)


def test_comment_that_somebody_has_emptied_or_written_to_changes_nothing(
    executor: SlurmExecutor, on_slurm: Slurm
) -> None:
    """The user and the time of submission are those of ours."""
    executor.start(run_of("noted", "sleep 4; exit 3"))
    try:
        until(lambda: executor.poll() == [] and executor.begun())
        on_slurm.run("scontrol", "update", f"jobid={number_of(on_slurm, 'noted')}", "comment=please be quick")
        [end] = ends(executor, seconds=30).values()
        assert (end.result, end.exit_code) == (Result.EXITED, 3)
    finally:
        executor.close()


def test_job_with_our_key_and_another_number_is_adopted(
    executor: SlurmExecutor, on_slurm: Slurm, tmp_path: Path
) -> None:
    """As after a controller that came back without memory: the number is somebody else's, the key is not."""
    executor.start(run_of("moved", "sleep 3; exit 4"))
    try:
        until(lambda: executor.poll() == [] and executor.begun())
        job = number_of(on_slurm, "moved")
        key = re.findall(r"rainbow=\S+", on_slurm.run("squeue", "-h", "-j", job, "-o", "%k"))[0]
        words = ("sbatch", "--parsable", "-o", "/dev/null")
        other = on_slurm.run(*words, f"--comment={key}", "--wrap=sleep 3; exit 5").strip()
        on_slurm.run("scontrol", "update", f"jobid={job}", f"comment={OTHER}")
        [end] = ends(executor, seconds=30).values()
        assert (end.result, end.exit_code) == (Result.EXITED, 5)
        assert other != job
    finally:
        executor.close()


@pytest.mark.parametrize(("requeue", "result"), [(None, Result.FAILED), (False, Result.FAILED), (True, Result.LOST)])
def test_what_is_lost_runs_again_only_if_its_job_says_so(
    requeue: bool | None, result: Result, executor: SlurmExecutor, on_slurm: Slurm
) -> None:
    said = {} if requeue is None else {"requeue": requeue}
    executor.start(run_of(f"lost-{requeue}", "exec sleep 30", **said))
    until(lambda: executor.poll() == [] and executor.begun())
    job = number_of(on_slurm, f"lost-{requeue}")
    on_slurm.run("scontrol", "update", f"jobid={job}", f"comment={OTHER}")
    [end] = ends(executor, seconds=30).values()
    executor.close()
    on_slurm.run("scancel", job)
    assert (end.result, end.cause) == (result, "lost")


@pytest.mark.parametrize("where", ["script", "jobspec", "site"])
def test_node_that_fails_ends_a_job_that_must_not_run_twice(
    where: str, executor: SlurmExecutor, on_slurm: Slurm
) -> None:
    made = run_of(f"once-{where}", "exec sleep 60", **({"requeue": False} if where == "jobspec" else {}))
    request = dict(made.request or {})
    if where == "script":
        request["script"] = "#!/bin/sh\n#SBATCH --no-requeue\nexec sleep 60\n"
    if where == "site":
        request["site"] = {"slurm": {"no-requeue": True}}
    executor.start(Run(made.id, made.job, made.command, made.cwd, request=request))
    try:
        until(lambda: executor.poll() == [] and executor.begun())
        job = number_of(on_slurm, f"once-{where}")
        node = on_slurm.run("squeue", "-h", "-j", job, "-o", "%N").strip()
        on_slurm.run("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
        [end] = ends(executor, seconds=30).values()
        assert (end.result, end.cause) == (Result.FAILED, "node")
        assert "a node of Slurm job" in end.detail
    finally:
        on_slurm.run("scontrol", "update", f"nodename={node}", "state=resume")
        executor.close()


WRAPPERS = {
    "text around the number": 'echo "your quota: 12 of 20"; {real} "$@"; echo "have a nice day"',
    "nothing": '{real} "$@" > /dev/null',
    "a failure afterwards": '{real} "$@" > /dev/null; echo "no mail" >&2; exit 3',
    "the number late": '{real} "$@" > {folder}/said; sleep 6; cat {folder}/said',
}


@pytest.mark.parametrize("how", WRAPPERS)
def test_wrapper_of_a_site_around_sbatch_leaves_one_job_which_is_ours(
    how: str, on_slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "APART", 1.5)
    monkeypatch.setattr(watcher, "COMMAND_TIMEOUT", 3.0)
    real, wrapper = on_slurm.run("which", "sbatch").strip(), tmp_path / "bin" / "sbatch"
    wrapper.parent.mkdir()
    wrapper.write_text("#!/bin/sh\n" + WRAPPERS[how].format(real=real, folder=tmp_path) + "\n")
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    made = SlurmExecutor("shared", {"PATH": os.environ["PATH"]}, tmp_path / "state")
    name = f"wrapped-{len(how)}"
    try:
        made.start(run_of(name, f"echo >> {tmp_path}/lines; exit 6"))
        [end] = ends(made, seconds=40).values()
        assert (end.result, end.exit_code) == (Result.EXITED, 6)
        time.sleep(2)
        assert (tmp_path / "lines").read_text() == "\n"
        assert len(on_slurm.run("squeue", "-h", "-t", "all", "-n", name, "-o", "%i").split()) == 1
    finally:
        made.close()


def test_call_that_prints_no_number_and_leaves_no_job_is_refused_with_what_it_said(
    on_slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del on_slurm
    monkeypatch.setattr(watcher, "APART", 0.5)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sbatch").write_text("#!/bin/sh\necho submissions are closed today\n")
    (tmp_path / "bin" / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    made = SlurmExecutor("shared", {"PATH": os.environ["PATH"]}, tmp_path / "state")
    try:
        made.start(run_of("closed", "true"))
        [end] = ends(made, seconds=30).values()
        assert end == Ended(("closed-0", 1), Result.FAILED, detail=end.detail)
        assert "submissions are closed today" in end.detail
    finally:
        made.close()


ACCOUNT = "nobody"
SEEN = 'pwd; umask; echo "$SLURM_SUBMIT_DIR"; echo "$PATH"; echo "$HOME $USER $LOGNAME"; id -un'


@pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another account")
@pytest.mark.parametrize("how", ["root", "helper"])
def test_script_sees_the_folder_umask_and_path_that_sbatch_of_its_user_would_give_it(
    how: str, on_slurm: Slurm, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """And what it writes is its user's, with the mode of that umask."""
    base = Path(tempfile.mkdtemp())
    base.chmod(0o755)
    work, known, script = base / "work", base / "users.yaml", base / "job.sh"
    work.mkdir(mode=0o700)
    shutil.chown(work, ACCOUNT)
    known.write_text(f"users: {{ann: {ACCOUNT}}}")
    script.write_text(f"#!/bin/sh\n{SEEN}\n")
    become = ["setpriv", f"--reuid={ACCOUNT}", "--regid=nogroup", "--clear-groups"]
    login = {"HOME": pwd.getpwnam(ACCOUNT).pw_dir, "USER": ACCOUNT, "LOGNAME": ACCOUNT, "PATH": login_path()}
    login |= {"SLURM_CONF": str(on_slurm.conf), "SHELL": "/bin/sh"}
    plain = f"umask 0027; cd {work}; sbatch --wait -o plain.out {script}"
    subprocess.run([*become, "sh", "-c", plain], env=login, check=True, capture_output=True, timeout=60)
    helper = [sys.executable, "-m", "rainbow.agent.executors.slurm.helper", str(known)] if how == "helper" else []
    state = tmp_path_factory.mktemp("state")
    made = SlurmExecutor("shared", {"PATH": os.environ["PATH"]}, state, Identity(how, known), helper)
    system = {"umask": "0027", "output": "ours.out"}
    run = run_of("seen", SEEN, **system)
    run = replace(run, cwd=str(work), request={**(run.request or {}), "requestor": "ann"})
    missing = replace(run, id=("gone-0", 1), job="gone", cwd=str(base / "no such folder"))
    try:
        made.start(run)
        made.start(missing)
        result = ends(made, 2, seconds=40)
        assert (result[run.id].result, result[run.id].exit_code) == (Result.EXITED, 0)
        assert (result["gone-0", 1].result, result["gone-0", 1].cause) == (Result.FAILED, "directory")
        assert str(base / "no such folder") in result["gone-0", 1].detail
        ours, theirs = work / "ours.out", work / "plain.out"
        assert ours.read_text() == theirs.read_text()
        assert ours.read_text().splitlines()[:3] == [str(work), "0027", str(work)]
        assert (ours.owner(), ours.stat().st_mode) == (theirs.owner(), theirs.stat().st_mode)
    finally:
        made.close()
        shutil.rmtree(base)


def test_number_partition_and_nodes_are_told_and_that_the_number_is_another_s(
    executor: SlurmExecutor, on_slurm: Slurm
) -> None:
    run, answer = run_of("sited", "exec sleep 30"), dict[Any, SiteJob]()
    executor.start(run)
    try:
        until(lambda: executor.poll() == [] and (answer.update(executor.site_jobs()), answer.get(run.id))[1])
        job = number_of(on_slurm, "sited")
        until(lambda: executor.poll() == [] and (answer.update(executor.site_jobs()), answer[run.id].nodes)[1])
        assert answer[run.id] == SiteJob(job, "batch", on_slurm.run("squeue", "-h", "-j", job, "-o", "%N").strip())
        on_slurm.run("scontrol", "update", f"jobid={job}", f"comment={OTHER}")
        until(lambda: executor.poll() == [] and (answer.update(executor.site_jobs()), answer[run.id].detail)[1], 3)
        assert OTHER in answer[run.id].detail
    finally:
        executor.close()
        on_slurm.run("scancel", job)


def test_owned_reservation_pins_to_its_nodes_while_others_have_jobs_beside_it(
    on_slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only who has jobs in the reservation counts: there the mode would pin nothing."""
    monkeypatch.setattr(watcher, "GUARDED", 0.0)
    start = ("starttime=now", "duration=60", f"users={pwd.getpwuid(os.getuid()).pw_name},nobody", "nodes=n0003,n0004")
    on_slurm.run("scontrol", "create", "reservation", "reservationname=mine", *start)
    as_other = ["sbatch", "--parsable", "--uid=nobody", "--gid=nogroup", "-D", "/", "-o", "/dev/null", "-w", "n0001"]
    other = on_slurm.run(*as_other, "--wrap=sleep 60").strip()
    made: Any = opened("owned;reservation=mine,service", {"PATH": os.environ["PATH"]}, tmp_path / "state")
    try:
        run = Run(("own-0", 1), "own", ("sleep", "20"), str(tmp_path), placement={"n0003": {"core": 1}})
        made.start(run)
        until(lambda: made.poll() == [] and made.begun(), 30)
        record = on_slurm.run("scontrol", "-o", "show", "job", number_of(on_slurm, "rainbow"))
        assert " ReqNodeList=n0003 " in record
        assert " Reservation=mine " in record
        assert Part(reservation="mine").nodes().read(
            on_slurm.run("scontrol", "-o", "show", "reservation", "mine")
        ) == ["n0003", "n0004"]
    finally:
        made.close()
        on_slurm.run("scancel", other)
        until(lambda: not on_slurm.run("scontrol", "delete", "reservationname=mine"))
