"""A task finds nothing of its agent's: no socket, no secret, no way out of its control group, no capability."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

from rainbow.agent.executors import isolation
from rainbow.agent.executors.keeper import word_of
from rainbow.agent.executors.keeper_client import SupervisedExecutor
from rainbow.agent.executors.run import Ended, Result, Run
from tests.support import services

PATH = {"PATH": os.environ["PATH"]}
ROOT = Path(__file__).parents[3]
ALLOWED = pytest.mark.skipif(bool(isolation.allowed()), reason="no process may have a space of its own here")
# what a task may try, from its own processes and through the first one of its space
PROBE = """
import glob, json, os
folder, secret = {folder!r}, {secret!r}
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
def readable(path):
    try:
        return bool(open(path, "rb").read())
    except OSError:
        return False
def listed(path):
    try:
        return os.listdir(path)
    except OSError:
        return []
groups = [os.path.join(at, "cgroup.procs") for at, _, names in os.walk("/sys/fs/cgroup") if "cgroup.procs" in names]
print(json.dumps(dict(
    agent=[name for at in (folder, *glob.glob("/proc/[0-9]*/fd/*"), *glob.glob("/proc/[0-9]*/cwd"))
        for name in listed(at) if name in ("keeper.sock", "wards", "agent.db")],
    secret=readable(secret),
    environments=[path for path in glob.glob("/proc/[0-9]*/environ") if b"KEEPER" in (open(path, "rb").read()
        if readable(path) else b"")],
    groups=[path for path in groups if os.access(path, os.W_OK)],
    held=[int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
    word=[name for name in os.environ if "KEEPER" in name],
)))
"""


def probed(folder: Path, secret: Path) -> dict[str, object]:
    """Run the probe as a task; return what it could do."""
    secret.write_text("rbs_secret")
    keeper = SupervisedExecutor(PATH, folder, apart=True)
    (folder / "private.json").write_text(json.dumps([str(secret)]))
    probe = PROBE.format(folder=str(folder), secret=str(secret))
    try:
        keeper.start(Run(("t", 1), "j", (sys.executable, "-c", probe), cwd="/"))
        ended = ended_of(keeper)
    finally:
        keeper.close()
    assert ended.result is Result.EXITED, ended
    assert ended.exit_code == 0, ended
    seen: dict[str, object] = json.loads(ended.output)
    return seen


def ended_of(keeper: SupervisedExecutor) -> Ended:
    for _ in range(600):
        if ended := keeper.poll():
            return ended[0]
        time.sleep(0.05)
    raise AssertionError("it did not end")


NOTHING = {"agent": [], "secret": False, "environments": [], "groups": [], "held": [0] * 5, "word": []}


@ALLOWED
def test_a_task_finds_nothing_of_its_agent(tmp_path: Path) -> None:
    folder = tmp_path / "agent"
    folder.mkdir()
    assert probed(folder, tmp_path / "secret") == NOTHING
    assert (tmp_path / "secret").read_text() == "rbs_secret", "only the task's own view of it is covered"


AS_NOBODY = """
import json, os, sys, tempfile
from pathlib import Path
from tests.unit.agent.test_walls import isolation, probed
if why := isolation.allowed():
    sys.exit(f"not allowed: {why}")
with tempfile.TemporaryDirectory() as made:
    (Path(made) / "agent").mkdir()
    print(json.dumps(probed(Path(made) / "agent", Path(made) / "secret")))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_a_task_of_a_plain_user_finds_as_little() -> None:
    services.require_checkout_of_everybody()
    python = shutil.which(f"python{sys.version_info.major}.{sys.version_info.minor}", path="/usr/bin")
    if python is None:
        pytest.skip("the interpreter of this environment is root's alone, and the system has none of its version")
    libraries = os.pathsep.join([str(ROOT), sysconfig.get_path("purelib")])
    with_libraries = {**PATH, "PYTHONPATH": libraries, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [python, "-c", AS_NOBODY],
        cwd="/",
        capture_output=True,
        text=True,
        env=with_libraries,
        user=65534,
        group=65534,
        extra_groups=[],
    )
    if done.stderr.startswith("not allowed: "):
        pytest.skip(f"a plain user may have no space of its own here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == NOTHING


def test_who_does_not_know_the_word_changes_nothing(tmp_path: Path) -> None:
    keeper = SupervisedExecutor(PATH, tmp_path)
    keeper.start(Run(("t", 1), "j", ("sleep", "20")))
    stop = json.dumps({"do": "stop", "run": ["t", 1]}).encode()
    hello = {"do": "hello", "environment": {}, "patience": 0.0}
    wrong = [{**hello, "word": word} for word in ("", "0" * 32, None, ["x"], "\udcff", word_of(tmp_path)[:-1])]
    for message in [b"{}", stop, *(json.dumps(one).encode() for one in [hello, *wrong])]:
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(str(tmp_path / "keeper.sock"))
            stranger.sendall(message + b"\n" + stop + b"\n")
            assert stranger.recv(100) == b"", message
    assert keeper.poll() == []
    assert keeper.running() == [("t", 1)]
    keeper.close()


def test_keeper_survives_whatever_is_sent(tmp_path: Path) -> None:
    keeper, drawn = SupervisedExecutor(PATH, tmp_path), random.Random(7)
    keeper.start(Run(("t", 1), "j", ("sleep", "60")))
    verbs = ["hello", "start", "poll", "stop", "close", "suspend", None, 7, {}, []]
    values = [None, {}, [], [[]], ["t", 1], {"id": 1}, "t", -1, 1e400, [1] * 9, {"command": 7}]
    for number in range(10_000 if os.environ.get("RAINBOW_SOAK") else 1_000):
        kind = drawn.randrange(4)
        if kind == 0:
            message = drawn.randbytes(drawn.randrange(200))
        elif kind == 1:
            message = b"[" * drawn.randrange(100_000)
        else:
            keys = ("do", "run", "known", "word", "signal", "grace", "patience")
            message = json.dumps({key: drawn.choice(values) for key in keys} | {"do": drawn.choice(verbs)}).encode()
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(str(tmp_path / "keeper.sock"))
            try:
                stranger.sendall(message + b"\n")
                if number % 3 == 0:
                    stranger.recv(10)
            except OSError:  # it has hung up already
                pass
    # and from who knows the word: one line that is wrong must not end the others
    hello = {"do": "hello", "word": word_of(tmp_path), "environment": {}, "patience": 60.0}
    odd = [{"do": "start", "run": value} for value in values] + [{"do": "poll"}, {"do": "stop", "run": "t"}]
    with socket.socket(socket.AF_UNIX) as agent:
        agent.connect(str(tmp_path / "keeper.sock"))
        for message in [hello, *odd]:
            agent.sendall(json.dumps(message).encode() + b"\n")
    again = SupervisedExecutor(PATH, tmp_path)
    assert again.running() == [("t", 1)]
    again.close()
