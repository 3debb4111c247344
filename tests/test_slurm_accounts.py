"""Whose jobs they are: the site decides, a system's account never, and one user cannot have another's files read."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rainbow.agent import Result, Run
from rainbow.agent.executors.slurm.accounts import Account, Identity, account_of, read_users
from rainbow.agent.executors.slurm.executor import SlurmExecutor
from rainbow.errors import ConfigError
from rainbow.jobspec.sbatch.request import NotCarriedError
from rainbow.testing.runs import ends, until
from tests.slurm import Slurm
from tests.slurm_accounting import accounted

ME = pwd.getpwuid(os.getuid()).pw_name
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another account")
SLOT = {"type": "slot", "count": 1, "label": "a", "with": [{"type": "core", "count": 1}]}


def users(folder: Path, text: str) -> Path:
    path = folder / "users.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("requestor", "said"),
    [
        ("games", "belongs to the system"),
        ("boss", "belongs to the system"),
        ("ghost", "does not exist"),
        ("eve", "has no account at this site"),
        ("", "has no account at this site"),
    ],
)
def test_no_requestor_becomes_an_account_of_the_system(requestor: str, said: str, tmp_path: Path) -> None:
    known = read_users(users(tmp_path, "users: {games: games, boss: root, ghost: no-such-account, ann: nobody}"))
    assert account_of(known, "ann").uid == pwd.getpwnam("nobody").pw_uid
    with pytest.raises(NotCarriedError, match=said):
        account_of(known, requestor)


@pytest.mark.parametrize(
    "text", ["", "users: []", "users: {ann: 3}", "users: {ann: {accont: x}}", "users: {a: b", "- a"]
)
def test_users_of_another_form_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        read_users(users(tmp_path, text))


def test_agent_of_one_user_takes_the_jobs_of_that_user_alone(tmp_path: Path) -> None:
    assert Identity("self").account(ME) is None
    with pytest.raises(NotCarriedError, match=f"takes the jobs of {ME} alone"):
        Identity("self").account("bob")
    mapped = Identity("self", users(tmp_path, f"users: {{ann: {ME}}}"))
    assert mapped.account("ann") is None
    with pytest.raises(NotCarriedError, match="alone"):
        mapped.account("bob")
    for how in ("root", "helper", "anybody"):
        with pytest.raises(ConfigError):
            Identity(how)


def test_site_bounds_what_an_account_asks_for() -> None:
    ann = Account("ann", 1000, 1000, "/home/ann", slurm_account="physics", partitions=("batch", "short"))
    assert ann.bounded({"account": "other"}) == {"account": "physics", "partition": "batch"}
    assert ann.bounded({"partition": "short"})["partition"] == "short"
    with pytest.raises(NotCarriedError, match="ann may use batch, short here, not gpu"):
        ann.bounded({"partition": "short,gpu"})


@pytest.fixture(params=["root", "helper"])
def executor(
    request: pytest.FixtureRequest, on_slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SlurmExecutor]:
    """An agent that becomes the account itself, or by the helper, which sudo would start."""
    del on_slurm
    monkeypatch.setenv("RAINBOW_REGISTRATION_SECRET", "rbr_hidden")
    known = users(tmp_path, "users: {ann: nobody}")
    tmp_path.chmod(0o755)
    helper = [sys.executable, "-m", "rainbow.agent.executors.slurm.helper", str(known)]
    identity = Identity(request.param, known)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    made = SlurmExecutor(
        "shared", environment, tmp_path / "state", identity, helper if request.param == "helper" else ()
    )
    yield made
    made.close()


def run_as(requestor: str, name: str, command: tuple[str, ...], **more: Any) -> Run:
    asked = {"name": name, "resources": [SLOT], "system": {}, "site": {}, "gang": 1, "requestor": requestor, **more}
    return Run((f"{name}-0", 1), name, command, request=asked)


@as_root
def test_job_is_the_requestors_with_groups_and_home_and_nothing_of_the_agents(
    executor: SlurmExecutor, on_slurm: Slurm
) -> None:
    executor.start(run_as("ann", "mine", ("sh", "-c", "id; env; exit 3")))
    executor.start(run_as("eve", "hers", ("true",)))
    found = ends(executor, 2, seconds=60)
    assert "eve has no account at this site" in found[("hers-0", 1)].detail
    end = found[("mine-0", 1)]
    assert (end.result, end.exit_code, end.detail) == (Result.EXITED, 3, "")
    assert "uid=65534(nobody) gid=65534(nogroup) groups=65534(nogroup)\n" in end.output
    assert "HOME=/nonexistent\n" in end.output
    assert "rbr_hidden" not in end.output
    assert "(root)" not in end.output
    job = max(on_slurm.run("squeue", "-h", "-t", "all", "-n", "mine", "-o", "%i").split(), key=int)
    shown = on_slurm.run("scontrol", "-o", "show", "job", job)
    assert " UserId=nobody(65534) GroupId=nogroup(65534) " in shown
    told = shown + on_slurm.run("scontrol", "write", "batch_script", job, "-")
    assert "rbr_hidden" not in told


@as_root
def test_files_are_read_as_their_owner_and_cancel_is_the_owners(
    executor: SlurmExecutor, on_slurm: Slurm, tmp_path: Path
) -> None:
    """What the account cannot read is not told, whatever its job calls its output."""
    private = tmp_path / "private"
    private.write_text("of root alone")
    private.chmod(0o600)
    for number, system in enumerate(({"input": str(private)}, {"output": str(private)})):
        executor.start(run_as("ann", f"spy{number}", ("sleep", "0"), system=system))
    assert not any("of root" in end.output for end in ends(executor, 2, seconds=60).values())
    assert private.read_text() == "of root alone"
    executor.start(run_as("ann", "long", ("sleep", "600")))
    until(lambda: on_slurm.run("squeue", "-h", "-t", "R", "-n", "long", "-o", "%i").strip() != "", 30)
    executor.stop(("long-0", 1))
    assert ends(executor, seconds=60)[("long-0", 1)].result is Result.STOPPED


@as_root
def test_helper_calls_nothing_else_and_trusts_no_file_that_others_can_change(tmp_path: Path) -> None:
    known = users(tmp_path, "users: {ann: nobody}")

    def answered(requestor: str, *command: str) -> dict[str, Any]:
        asked = json.dumps({"requestor": requestor, "command": command, "input": "", "environment": None})
        words = [sys.executable, "-m", "rainbow.agent.executors.slurm.helper", str(known)]
        done = subprocess.run(words, input=asked, capture_output=True, text=True, check=True)
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    assert answered("ann", "tail", "-c", "4", "--", "/etc/shadow")["code"] == 1
    assert answered("ann", "sh", "-c", "id")["code"] == answered("root", "tail", "/dev/null")["code"] == 126
    known.chmod(0o666)
    assert "can be changed by others than root" in answered("ann", "tail", "/dev/null")["err"]


@as_root
@pytest.mark.soak
@pytest.mark.timeout(600)
def test_no_identity_puts_a_secret_where_a_user_of_the_site_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Slurm's accounts, records and files keep, what its commands and jobs are started with, and output."""
    secret = "rbs_hidden_from_everybody"
    for name in ("RAINBOW_SECRET", "RAINBOW_REGISTRATION_SECRET", "SBATCH_COMMENT", "LD_LIBRARY_PATH_OF_OURS"):
        monkeypatch.setenv(name, secret)
    tmp_path.chmod(0o755)
    known = users(tmp_path, f"users: {{ann: nobody, {ME}: {ME}}}")
    helper = [sys.executable, "-m", "rainbow.agent.executors.slurm.helper", str(known)]
    with accounted() as slurm:
        monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
        for how, requestor in (("self", ME), ("service", "eve"), ("root", "ann"), ("helper", "ann")):
            environment = {"PATH": os.environ["PATH"]}
            made = SlurmExecutor(
                "shared", environment, tmp_path / how, Identity(how, known), helper * (how == "helper")
            )
            seen = set[str]()
            made.start(run_as(requestor, f"{how}-command", ("sh", "-c", "env; sleep 3")))
            made.start(run_as(requestor, f"{how}-script", ("x",), script="#!/bin/sh\nenv; sleep 3\n"))
            found = dict[Any, Any]()
            until(lambda made=made, seen=seen, found=found: _looked(made, seen, found, secret), 90)
            made.close()
            assert not any(secret in end.output for end in found.values()), how
            assert all(end.exit_code == 0 for end in found.values()), (how, found)
            assert seen == set(), how
        until(lambda: slurm.run("sacct", "-a", "-n", "-X", "-o", "State").count("COMPLETED") == 8, 30)
        told = slurm.run("scontrol", "-o", "show", "job")
        for job in slurm.run("sacct", "-a", "-n", "-X", "-P", "-o", "JobIDRaw").split():
            told += slurm.run("sacct", "-a", "-j", job, "--env-vars") + slurm.run(
                "sacct", "-a", "-j", job, "--batch-script"
            )
        assert told.count("UserId=nobody(65534) GroupId=nogroup") == 4
        assert secret not in told
        kept = [
            path
            for path in slurm.folder.rglob("*")
            if path.is_file() and not path.is_relative_to(slurm.folder / "db")
        ]
        assert [path for path in kept if secret.encode() in path.read_bytes()] == []


def _looked(made: SlurmExecutor, seen: set[str], found: dict[Any, Any], secret: str) -> bool:
    """Note which processes of Slurm's commands and jobs were started with the secret; tell whether all has ended."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes()
            if any(name in words for name in (b"sbatch", b"squeue", b"scancel", b"slurm_script", b"sleep\0003\0")):
                seen |= {words.decode()} if secret.encode() in (path / "environ").read_bytes() else set()
        except OSError:
            continue
    found |= {end.id: end for end in made.poll()}
    return len(found) == 2
