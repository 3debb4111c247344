"""Whose jobs they are: the site decides, a system's account never, and one user cannot have another's files read."""

from __future__ import annotations

import base64
import os
import pwd
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rainbow.agent import Result, Run, bare
from rainbow.agent.executors.local import cores_here
from rainbow.agent.executors.slurm import watcher
from rainbow.agent.executors.slurm.accounts import Identity, SiteAccount, account_of, read_users
from rainbow.agent.executors.slurm.call import CallPlace, SbatchCall, call_of
from rainbow.agent.executors.slurm.commands import Commands, Rest, SilentError, body_of
from rainbow.agent.executors.slurm.executor import HELPER, SlurmExecutor
from rainbow.agent.executors.slurm.helper import answer
from rainbow.errors import ConfigError
from rainbow.jobspec.sbatch.request import NotCarriedError, carried
from rainbow.testing.executors import ends, until
from tests.sites.test_slurm_request import SAID, asked, words
from tests.support import services
from tests.support.slurm import Slurm, rest_of
from tests.support.slurm_accounting import accounted
from tests.unit.agent.test_binding import needs_two

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
    for how in ("root", "helper", "rest", "anybody"):
        with pytest.raises(ConfigError):
            Identity(how)


def test_site_bounds_what_an_account_asks_for() -> None:
    ann = SiteAccount("ann", 1000, 1000, "/home/ann", slurm_account="physics", partitions=("batch", "short"))
    assert ann.bounded({"account": "other"}) == {"account": "physics", "partition": "batch"}
    assert ann.bounded({"partition": "short"})["partition"] == "short"
    with pytest.raises(NotCarriedError, match="ann may use batch, short here, not gpu"):
        ann.bounded({"partition": "short,gpu"})


BOUNDS = """
users: {}
defaults: {qos: normal, mem: 1G, time: 10, contiguous: true}
forbidden: [reservation, qos=high]
force: {wckey: rainbow}
"""


def test_site_adds_refuses_and_sets_options_of_sbatch(tmp_path: Path) -> None:
    """Whether a jobspec says them or its script; what a job has said itself is no default's."""
    bounds = Identity("self", users(tmp_path, BOUNDS)).bounds()

    def called(script: str = "", **site: str) -> list[str]:
        reported = {
            "name": "a",
            "resources": [SLOT],
            "system": {},
            "site": {"slurm": site},
            "gang": 1,
            "script": script,
        }
        run = Run(("a", 1), "a", ("true",), "/", request=reported)
        return [*call_of(run, carried(reported, 90.0, ()), "m", 1, CallPlace(tmp_path, {}, bounds=bounds)).words]

    assert {"--qos=normal", "--mem=1G", "--time=2", "--contiguous", "--wckey=rainbow"} <= {*called()}
    assert {"--qos=low", "--wckey=rainbow"} <= {*called(qos="low", wckey="mine")}
    said = called("#!/bin/sh\n#SBATCH --qos=low --mem-per-cpu=100\n")
    assert not [word for word in said if word.startswith(("--qos", "--mem"))]
    for script, site in (("", {"qos": "low,high"}), ("#!/bin/sh\n#SBATCH -q high\n", {})):
        with pytest.raises(NotCarriedError, match="this site forbids --qos=high"):
            called(script, **site)
    with pytest.raises(NotCarriedError, match="this site forbids --reservation"):
        called("#!/bin/sh\n#SBATCH --reservation=mine\n")


@pytest.mark.parametrize(
    "text",
    [
        "forbidden: qos",
        "force: [a]",
        "force: {comment: x}",
        "defaults: {uid: 0}",
        "forbidden: [array]",
        "forbiden: [qos]",
    ],
)
def test_bounds_of_another_form_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"users\.yaml"):
        Identity("self", users(tmp_path, f"users: {{}}\n{text}"))


@pytest.fixture(scope="session")
def rest_url(slurm_server: Slurm) -> Iterator[str]:
    with rest_of(slurm_server) as url:
        yield url


def tokens_of(site: Slurm, folder: Path, account: str = "nobody", seconds: int = 600) -> Path:
    """Put a token of an account where the agent looks for it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / account).touch(0o600)
    (folder / account).write_text(site.token(account, seconds))
    return folder


@pytest.fixture
def everybodys() -> Iterator[Path]:
    """A folder that every account can reach and write to."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.fixture(params=["root", "helper", "rest"])
def executor(
    request: pytest.FixtureRequest, on_slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SlurmExecutor]:
    """An agent that becomes the account itself, by the helper, which sudo would start, or by its token."""
    rest = None
    if request.param == "rest":
        rest = Rest(request.getfixturevalue("rest_url"), tokens_of(on_slurm, tmp_path / "tokens"))
    monkeypatch.setenv("RAINBOW_REGISTRATION_SECRET", "rbr_hidden")
    known = users(tmp_path, "users: {ann: nobody}")
    tmp_path.chmod(0o755)
    helper = [sys.executable, "-m", "rainbow.agent.executors.slurm.helper", str(known)]
    identity = Identity(request.param, known)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    helped = helper if request.param == "helper" else ()
    made = SlurmExecutor("shared", environment, tmp_path / "state", identity, helped, rest)
    yield made
    made.close()


def run_as(requestor: str, name: str, command: tuple[str, ...], **more: Any) -> Run:
    request = {"name": name, "resources": [SLOT], "system": {}, "site": {}, "gang": 1, "requestor": requestor, **more}
    return Run((f"{name}-0", 1), name, command, request=request)


@as_root
def test_job_is_the_requestors_with_groups_and_home_and_nothing_of_the_agents(
    executor: SlurmExecutor, on_slurm: Slurm
) -> None:
    executor.start(run_as("ann", "mine", ("sh", "-c", "id; env; exit 3")))
    executor.start(run_as("eve", "hers", ("true",)))
    result = ends(executor, 2, seconds=60)
    assert "eve has no account at this site" in result[("hers-0", 1)].detail
    end = result[("mine-0", 1)]
    assert (end.result, end.exit_code, end.detail) == (Result.EXITED, 3, "")
    assert "uid=65534(nobody) gid=65534(nogroup) groups=65534(nogroup)\n" in end.output
    assert "HOME=/nonexistent\n" in end.output
    assert "rbr_hidden" not in end.output
    assert "(root)" not in end.output
    job = max(on_slurm.run("squeue", "-h", "-t", "all", "-n", "mine", "-o", "%i").split(), key=int)
    shown = on_slurm.run("scontrol", "-o", "show", "job", job)
    assert " UserId=nobody(65534) GroupId=nogroup(65534) " in shown
    reported = shown + on_slurm.run("scontrol", "write", "batch_script", job, "-")
    assert "rbr_hidden" not in reported


@as_root
def test_request_and_script_go_over_whole_by_rest_and_what_cannot_be_said_is_refused(
    on_slurm: Slurm, rest_url: str, tmp_path: Path, everybodys: Path
) -> None:
    """What slurmrestd does not read, the script's own lines, is read here."""
    tokens = tokens_of(on_slurm, tmp_path / "tokens")
    known = users(tmp_path, "users: {ann: nobody, zoe: games}\nforce: {nice: 9}")
    identity = Identity("rest", known)
    made = SlurmExecutor(
        "shared", {"PATH": os.environ["PATH"]}, tmp_path / "state", identity, (), Rest(rest_url, tokens)
    )
    tree = {
        "type": "slot",
        "count": 2,
        "label": "a",
        "with": [{"type": "node", "count": 1, "with": [SLOT["with"][0]]}],
    }
    script = "#!/bin/sh\n#SBATCH --partition=short --nice=7\n#SBATCH --hold\necho $A; exit 4\n"
    want = {"resources": [tree], "script": script, "system": {"comment": "why not"}}
    run = run_as("ann", "whole", ("x",), **want)
    made.start(replace(run, cwd=str(everybodys), environment={"A": "b c"}, duration=90.0))
    made.start(run_as("ann", "picky", ("true",), site={"slurm": {"contiguous": True}}))
    made.start(run_as("zoe", "hers", ("true",)))
    made.start(run_as("ann", "told", ("x",), script="#!/bin/sh\n", arguments=["one"]))
    result = ends(made, 4, seconds=60)
    assert "arguments of a script cannot be said to slurmrestd" in result["told-0", 1].detail
    made.close()
    assert "--contiguous cannot be said to slurmrestd" in result["picky-0", 1].detail
    assert "belongs to the system" in result["hers-0", 1].detail
    end = result["whole-0", 1]
    assert (end.exit_code, end.output) == (4, "b c\n")
    job = max(on_slurm.run("squeue", "-h", "-t", "all", "-n", "whole", "-o", "%i").split(), key=int)
    reported = on_slurm.run("scontrol", "-o", "show", "job", job)
    for field in (
        "Partition=short",
        "NumNodes=2",
        "NumTasks=2",
        "Nice=9",  # the site's word, not the script's
        "TimeLimit=00:02:00",
        f"WorkDir={everybodys}",
    ):
        assert f" {field} " in reported
    assert " Comment=why not rainbow=whole/0/1/" in reported
    assert on_slurm.run("scontrol", "write", "batch_script", job, "-") == script


@as_root
def test_slurm_shows_the_same_of_a_request_by_rest_as_by_sbatch(
    on_slurm: Slurm, rest_url: str, tmp_path: Path
) -> None:
    rest, account = (
        Rest(rest_url, tokens_of(on_slurm, tmp_path / "tokens")),
        account_of({"a": {"account": "nobody"}}, "a"),
    )
    refused, cases = [], {}
    for case in [case for case in SAID if "slurm" in case]:
        call = SbatchCall(tuple(words(asked(case["jobspec"]))), "#!/bin/sh\n", {"PATH": "/bin"})
        try:
            body = body_of(call, 38)
        except NotCarriedError:
            refused.append(case["name"])
            continue
        body["job"] |= {"hold": True, "current_working_directory": "/"}
        cases[str(rest._asked("POST", "/job/submit", account, body)["job_id"])] = case
    for job, shown in on_slurm.records(cases).items():
        assert set(cases[job]["slurm"].split()) <= set(shown.split()), (cases[job]["name"], shown)
    # its documents of 22.05 have no names of nodes, and not this option
    assert refused == ["all hosts that are named", "some of the hosts that are named", "options as written for Slurm"]


@as_root
def test_token_that_is_absent_open_to_others_or_over_is_refused_in_words(
    on_slurm: Slurm, rest_url: str, tmp_path: Path
) -> None:
    tokens = tokens_of(on_slurm, tmp_path / "tokens")
    rest, account = Rest(rest_url, tokens), account_of({"ann": {"account": "nobody"}}, "ann")
    call = SbatchCall(("--ntasks=1",), "#!/bin/sh\n", {"PATH": "/bin"})
    (tokens / "nobody").chmod(0o644)
    with pytest.raises(NotCarriedError, match="can be read by others"):
        rest.sbatch(call, account)
    (tokens / "nobody").chmod(0o600)
    claims = base64.urlsafe_b64encode(b'{"exp": 1700000000}').decode().rstrip("=")
    (tokens / "nobody").write_text(f"SLURM_JWT=a.{claims}.b\n")
    with pytest.raises(NotCarriedError, match="has expired at 2023-11-1"):
        rest.sbatch(call, account)
    (tokens / "nobody").write_text("a.b.c")
    with pytest.raises((subprocess.CalledProcessError, SilentError)):
        Commands((), rest).sbatch(call, account)
    (tokens / "nobody").unlink()
    with pytest.raises(NotCarriedError, match="account nobody has no token"):
        rest.sbatch(call, account)
    with pytest.raises(SilentError, match="slurmrestd has not answered"):
        Rest("http://127.0.0.1:9/slurm/v0.0.38", tokens_of(on_slurm, tokens)).sbatch(call, account)


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
@needs_two
def test_owned_pins_and_binds_jobs_of_accounts_which_are_not_others(
    on_slurm: Slurm,
    tmp_path: Path,
    everybodys: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    del on_slurm
    services.require_checkout_of_everybody()
    monkeypatch.setattr(watcher, "GUARDED", 0.0)
    monkeypatch.setattr(bare, "command", partial(bare.command, python="/usr/bin/python3"))  # ours may be root's alone
    identity = Identity("root", users(tmp_path, "users: {ann: nobody}"))
    owned = SlurmExecutor("owned", {"PATH": os.environ["PATH"]}, tmp_path / "state", identity)
    body = "taskset -cp $$ | sed 's/.*: //'; echo $RAINBOW_CPUS; id -un; exec sleep 3"
    held: dict[str, list[int]] = {}

    def heard() -> bool:
        held.update({run[0]: options["n0002"]["core"] for run, options in owned.given().items()})
        return len(held) == 2

    try:
        for task in ("one", "two"):  # with the first one running, a guard that counts it as another's pins no second
            run = run_as("ann", task, ("sh", "-c", body))
            owned.start(replace(run, placement={"n0002": {"core": 1}}, cwd=str(everybodys)))
            until(lambda run=run: run.id in owned.begun() or owned.poll(), 20)
        until(heard, 20)
        result = ends(owned, 2, seconds=30)
        (private := everybodys / "python").touch(0o700)
        monkeypatch.setattr(bare, "command", partial(bare.command, python=str(private)))
        run = run_as("ann", "free", ("echo", "done"))
        owned.start(replace(run, placement={"n0002": {"core": 1}}, cwd=str(everybodys)))
        free = ends(owned, seconds=30)["free-0", 1]
    finally:
        owned.close()
    assert free.detail == f"Rainbow has not bound it to its cores: nobody cannot read {private}"
    assert free.output.startswith(f"rainbow: not bound to its cores: nobody cannot read {private} or ")
    assert (free.exit_code, free.output.splitlines()[1:]) == (0, ["done"])
    assert capfd.readouterr().err == ""
    assert sorted(held.values()) == [[0], [1]]
    for (task, _), end in result.items():
        threads = ",".join(map(str, cores_here()[held[task][0]]))
        assert (end.exit_code, end.detail, end.output) == (0, "", f"{threads}\n{threads}\nnobody\n")


@as_root
def test_helper_calls_nothing_else_and_trusts_no_file_that_others_can_change(tmp_path: Path) -> None:
    known = users(tmp_path, "users: {ann: nobody}")

    def answered(requestor: str, *command: str) -> dict[str, Any]:
        return answer({"requestor": requestor, "command": command, "input": "", "environment": None}, known)

    assert answered("ann", "tail", "-c", "4", "--", "/etc/shadow")["code"] == 1
    assert answered("ann", "sh", "-c", "id")["code"] == answered("root", "tail", "/dev/null")["code"] == 126
    known.chmod(0o666)
    assert "can be changed by others than root" in answered("ann", "tail", "/dev/null")["err"]


# as an account without rights, with rules of ours in the place of this machine's, seen by this process alone
AS_DAEMON = """mount --bind "$1" /etc/sudoers.d && shift && exec setpriv --reuid=1 --regid=1 --clear-groups "$@" """
RULES = """Defaults:daemon env_keep += "SLURM_CONF"
daemon ALL=(root) NOPASSWD: {allowed}
"""


@as_root
def test_sudo_lets_the_agents_account_start_the_helper_and_nothing_else(
    on_slurm: Slurm, tmp_path: Path, everybodys: Path
) -> None:
    services.require("sudo")
    known, rules = users(tmp_path, "users: {ann: nobody}"), tmp_path / "sudoers.d"
    allowed = [*shlex.split(HELPER), str(known)]
    rules.mkdir()
    (rules / "rainbow").write_text(RULES.format(allowed=" ".join(allowed[2:])))
    (rules / "rainbow").chmod(0o440)
    as_daemon = ["unshare", "-m", "--propagation", "private", "sh", "-c", AS_DAEMON, "sh", str(rules)]
    tried = subprocess.run([*as_daemon, "sudo", "-n", "-l"], capture_output=True, text=True, check=False)
    services.without(f"no sudo in a room of its own: {tried.stderr}" if tried.returncode else "", must=False)
    other = users(everybodys, "users: {ann: root}")
    for line in (["id"], [*allowed[2:-1], str(other)], [*allowed[2:], "more"], [allowed[2], "-c", "print(1)"]):
        refused = subprocess.run([*as_daemon, "sudo", "-n", *line], capture_output=True, text=True, check=False)
        assert (refused.returncode, refused.stdout) == (1, ""), line
        assert "password is required" in refused.stderr
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    identity = Identity("helper", known)
    made = SlurmExecutor("shared", environment, tmp_path / "state", identity, [*as_daemon, *allowed])
    try:
        made.start(replace(run_as("ann", "sudone", ("sh", "-c", "id; exit 3")), cwd=str(everybodys)))
        end = ends(made)[("sudone-0", 1)]
    finally:
        made.close()
    assert (end.exit_code, end.output) == (3, "uid=65534(nobody) gid=65534(nogroup) groups=65534(nogroup)\n")
    shown = on_slurm.run("scontrol", "-o", "show", "job")
    assert re.search(r"JobName=sudone UserId=nobody\(65534\) GroupId=nogroup\(65534\) ", shown)


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
    with accounted() as slurm, ExitStack() as stack:
        monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
        rest = Rest(stack.enter_context(rest_of(slurm)), tokens_of(slurm, tmp_path / "tokens"))
        token = (tmp_path / "tokens" / "nobody").read_text()
        hows = (("self", ME), ("service", "eve"), ("root", "ann"), ("helper", "ann"), ("rest", "ann"))
        for how, requestor in hows:
            environment, asks = {"PATH": os.environ["PATH"]}, rest if how == "rest" else None
            helped = helper * (how == "helper")
            made = SlurmExecutor("shared", environment, tmp_path / how, Identity(how, known), helped, asks)
            seen = set[str]()
            made.start(run_as(requestor, f"{how}-command", ("sh", "-c", "env; sleep 3")))
            made.start(run_as(requestor, f"{how}-script", ("x",), script="#!/bin/sh\nenv; sleep 3\n"))
            result = dict[Any, Any]()
            until(lambda made=made, seen=seen, result=result: _looked(made, seen, result, secret, token), 90)
            made.close()
            assert not any(secret in end.output for end in result.values()), how
            assert all(end.exit_code == 0 for end in result.values()), (how, result)
            assert seen == set(), how
        until(lambda: slurm.run("sacct", "-a", "-n", "-X", "-o", "State").count("COMPLETED") == 10, 30)
        reported = slurm.run("scontrol", "-o", "show", "job")
        for job in slurm.run("sacct", "-a", "-n", "-X", "-P", "-o", "JobIDRaw").split():
            reported += slurm.run("sacct", "-a", "-j", job, "--env-vars") + slurm.run(
                "sacct", "-a", "-j", job, "--batch-script"
            )
        assert reported.count("UserId=nobody(65534) GroupId=nogroup") == 6
        assert [word for word in (secret, token, "SLURM_JWT") if word in reported] == []
        stored = [
            path
            for path in slurm.folder.rglob("*")
            if path.is_file() and not path.is_relative_to(slurm.folder / "db")
        ]
        hidden = (secret.encode(), token.encode())
        assert [path for path in stored if any(word in path.read_bytes() for word in hidden)] == []


def _looked(made: SlurmExecutor, seen: set[str], results: dict[Any, Any], secret: str, token: str) -> bool:
    """Note which processes of Slurm's commands and jobs were started with the secret; tell whether all has ended."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes()
            if token.encode() in words + (path / "environ").read_bytes():
                seen |= {words.decode()}
            if any(name in words for name in (b"sbatch", b"squeue", b"scancel", b"slurm_script", b"sleep\0003\0")):
                seen |= {words.decode()} if secret.encode() in (path / "environ").read_bytes() else set()
        except OSError:
            continue
    results |= {end.id: end for end in made.poll()}
    return len(results) == 2
