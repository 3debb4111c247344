"""What an operator types: tokens, workers, events, replay, backup, doctor, configuration."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from rainbow.cli import session
from rainbow.cli.exit_codes import Exit
from rainbow.store import clusters, open_store
from tests.conftest import ADMIN, REGISTRATION, grid
from tests.scenarios.test_end_to_end import until
from tests.support.shell import Shell, server, shell  # noqa: F401 - fixtures


def test_token_is_minted_used_rotated_and_revoked(shell: Shell) -> None:  # noqa: F811
    made = shell.json("token", "mint", "--cluster", "oak", "--requestor", "ann", "--expires", "2999-01-01T00:00:00Z")
    options = {"RAINBOW_TOKEN": made["token"]}
    assert shell.code("jobs", **options) is Exit.OK
    assert shell.code("submit", "-n", "1", "--requestor", "bob", "--", "true", **options) is Exit.NOT_ALLOWED
    again = shell.json("token", "rotate", made["id"])
    assert shell.code("jobs", **options) is Exit.NOT_ALLOWED
    assert made["id"] in [each["id"] for each in shell.json("token", "list")]
    assert "ann" in shell("token", "list").stdout
    assert shell.code("token", "revoke", made["id"]) is Exit.OK
    assert shell.code("jobs", RAINBOW_TOKEN=again["token"]) is Exit.NOT_ALLOWED
    assert shell.code("token", "revoke", "nobodys") is Exit.NOT_FOUND


def test_rotated_credentials_are_renewed_in_the_file_that_has_them(shell: Shell) -> None:  # noqa: F811
    own = shell.folder / "own.json"
    graph, registers = shell.file("elm.json", grid(1, 1)), {"RAINBOW_REGISTRATION_SECRET": REGISTRATION}
    own.write_text('{"clusters": {}}')
    shell.json("cluster", "register", graph, "--name", "elm", "--save", own, **registers)
    mine = {"RAINBOW_CREDENTIALS": str(own)}
    for one in shell.json("token", "list", **mine):
        assert f"renewed it in {own}" in shell("token", "rotate", one["id"], **mine).stderr
    assert [shell.code(*words, **mine) for words in (("jobs",), ("worker", "list", "elm"))] == [Exit.OK, Exit.OK]
    assert shell.code("cluster", "delete", "elm", **mine) is Exit.OK


def test_nodes_that_were_down_when_imported_are_named_at_registration(shell: Shell) -> None:  # noqa: F811
    graph = grid(1, 2)
    down = next(one["metadata"] for one in graph["graph"]["nodes"].values() if one["metadata"]["type"] == "node")
    down["unavailable"] = "DOWN: fan"
    answer = shell("cluster", "register", shell.file("yew.json", graph), "--name", "yew", "--secret", REGISTRATION)
    assert f"1 node unavailable when imported: {down['name']}; until drained they take jobs" in answer.stderr


def test_credentials_that_cannot_be_saved_are_shown(shell: Shell) -> None:  # noqa: F811
    graph, registers = shell.file("ash.json", grid(1, 1)), {"RAINBOW_REGISTRATION_SECRET": REGISTRATION}
    answer = shell("cluster", "register", graph, "--name", "ash", "--save", "/proc/none/x.json", **registers)
    assert answer.exit_code == Exit.ERROR
    secret = re.search(r"rbs_\S+", answer.stdout)
    assert secret
    assert shell.code("cluster", "delete", "ash", RAINBOW_SECRET=secret[0]) is Exit.OK


def test_a_secret_of_the_environment_looks_where_a_token_does(shell: Shell) -> None:  # noqa: F811
    none = {"RAINBOW_CREDENTIALS": str(shell.file("none.json", "{}"))}
    assert shell.code("nodes", **none) is Exit.NOT_ALLOWED
    assert shell.code("nodes", RAINBOW_SECRET=shell.secret, **none) is Exit.OK


def test_a_command_that_is_refused_says_which_credential_it_lacks(shell: Shell) -> None:  # noqa: F811
    for words, what in (
        (("worker", "list", "nosuch"), "the secret of cluster nosuch"),
        (("cluster", "register", shell.file("elm.json", grid(1, 1)), "--name", "elm"), "the registration secret"),
    ):
        answer = shell(*words)
        assert answer.exit_code == Exit.NOT_ALLOWED
        assert f"the command lacks {what}" in answer.stderr


def test_history_takes_states_of_sacct_and_of_rainbow(shell: Shell) -> None:  # noqa: F811
    job = shell.json("submit", "-n", "1", "--hold", "--", "true")["id"]
    assert shell.code("job", "cancel", job) is Exit.OK
    listed = [shell.json("history", "-s", states) for states in ("CANCELED", "cancelled", "completed,running")]
    assert [job in [row["id"] for row in rows] for rows in listed] == [True, True, False]
    answer = shell("history", "-s", "bogus")
    assert (answer.exit_code, "unknown state BOGUS" in answer.stderr) == (Exit.USAGE, True)


def test_worker_is_taken_away_and_given_back(shell: Shell) -> None:  # noqa: F811
    until(lambda: {each["state"] for each in shell.json("worker", "list", "--cluster", "oak")} == {"READY"})
    for verb, state in (
        ("offline", "OFFLINE"),
        ("reinstate", "READY"),
        ("drain", "DRAINING"),
        ("reinstate", "READY"),
    ):
        for name in ("n0", "n1"):
            assert shell.json("worker", verb, name, "--cluster", "oak")["state"] == state
        assert {each["state"] for each in shell.json("worker", "list", "--cluster", "oak")} == {state}
    assert shell.code("worker", "offline", "n9", "--cluster", "oak") is Exit.NOT_FOUND


def test_events_are_told_and_a_placement_is_replayed(shell: Shell) -> None:  # noqa: F811
    job = shell.json("submit", "--wait", "-n", "1", "--", "true")["id"]
    answer = shell("events", "--no-follow", "--after", "0").stdout
    assert f"job={job}" in answer
    assert "state=COMPLETED" in answer
    result = shell.json("job", "replay", job)
    assert result["equal"]
    assert shell.code("job", "replay", "nobodys") is Exit.NOT_FOUND


def test_watch_shows_a_job_until_it_has_ended(shell: Shell) -> None:  # noqa: F811
    job = shell.json("submit", "-n", "1", "--", "sleep", "1")["id"]
    shown: list[Any] = []
    watching = threading.Thread(target=lambda: shown.append(shell("job", "show", job, "--watch")), daemon=True)
    watching.start()
    watching.join(30)
    assert shown
    assert shown[0].exit_code == 0
    assert "COMPLETED" in shown[0].stdout


def test_first_account_says_whom_it_locks_out_and_how_to_admit_them(shell: Shell) -> None:  # noqa: F811
    jobs = [shell.json("submit", "--requestor", user, "--", "true")["id"] for user in ("ann", "0eve")]
    admin = {"RAINBOW_TOKEN": ADMIN}
    first = shell("account", "create", "bio", "--user", "ann", **admin)
    assert first.stderr.startswith("rainbow: warning: this is the first account: from now on the server refuses")
    assert "who are in no account, such as 0eve" in first.stderr
    assert "; admit each with rainbow account set bio --user USER;" in first.stderr
    assert "is in no account" in shell("submit", "--requestor", "0eve", "--", "true").stderr
    assert shell("account", "set", "bio", "--user", "0eve", **admin).stderr == ""
    jobs.append(shell.json("submit", "--requestor", "0eve", "--", "true")["id"])
    assert shell("account", "create", "cfd", **admin).stderr == ""
    for job in jobs:
        shell("job", "wait", job)
    assert [shell.code("account", "delete", name, **admin) for name in ("bio", "cfd")] == [Exit.OK, Exit.OK]


def test_backup_restore_upgrade_and_doctor(shell: Shell, tmp_path: Path) -> None:  # noqa: F811
    url, other, file = f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db", tmp_path / "backup.db"
    assert shell.code("db", "upgrade", "--database", url) is Exit.NOT_FOUND
    open_store(url).close()
    assert shell.code("db", "upgrade", "--database", url) is Exit.OK
    assert shell.code("db", "backup", file, "--database", url) is Exit.OK
    assert shell.code("db", "backup", file, "--database", url) is Exit.CONFLICT
    assert shell.code("db", "backup", file, "--force", "--database", url) is Exit.OK
    assert shell.code("db", "restore", file, "--database", other) is Exit.OK
    store = open_store(other)
    with store.read() as connection:
        assert clusters.revisions(connection) == {}
    store.close()
    rows = {each["check"]: each["result"] for each in shell.json("doctor", "--database", other)}
    assert rows["store"] == "ok"
    assert "privacy" not in rows
    (tmp_path / "b.db").chmod(0o640)
    rows = {each["check"]: each["result"] for each in shell.json("doctor", "--database", other)}
    assert rows["privacy"] == "warning"
    bad = shell.file("bad.db", b"no database" * 1000)
    assert shell.code("doctor", "--database", f"sqlite:///{bad}") is Exit.ERROR
    secret = shell.file("rainbow-admin.secret", "rba_x")
    secret.chmod(0o644)
    assert shell.code("doctor", "--database", url) is Exit.ERROR


def test_doctor_names_another_distribution_of_a_package_rainbow(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    open_store(url).close()
    for name in ("rainbow-hpc", "another-rainbow"):  # ours is named by its metadata where it is installed whole
        installed = tmp_path / "site" / f"{name.replace('-', '_')}-1.0.dist-info"
        installed.mkdir(parents=True)
        (installed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (installed / "RECORD").write_text("rainbow/__init__.py,,\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    command = [sys.executable, "-m", "rainbow", "doctor", "--database", url, "-o", "json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    [row] = [each for each in json.loads(done.stdout) if each["check"] == "package"]
    assert row["result"] == "warning"
    words = "another-rainbow installs a package named rainbow, too; run: pip uninstall another-rainbow"
    assert row["detail"] == words


def test_doctor_makes_no_store_that_is_not_there(
    shell: Shell,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = shell.file("rainbow.yaml", "{}")
    for words in (("--config", config), ("--database", f"sqlite:///{tmp_path}/deep/down/x.db")):
        rows = {each["check"]: each["result"] for each in shell.json("doctor", *words)}
        assert rows["store"] == "warning"
        assert [path.name for path in tmp_path.iterdir()] == ["rainbow.yaml"]
    monkeypatch.setattr(os, "access", lambda _, mode: not mode & os.W_OK)  # as for a folder that may not be written
    assert shell.code("doctor", "--config", config) is Exit.ERROR


def test_configuration_is_written_checked_and_shown_without_secrets(shell: Shell, tmp_path: Path) -> None:  # noqa: F811
    file = tmp_path / "new.yaml"
    assert shell.code("config", "init", file) is Exit.OK
    assert shell.code("config", "init", file) is Exit.CONFLICT
    assert shell("config", "check", file).stderr == ""
    assert shell.json("config", "view", file)["history"] == shell.json("config", "check", file)["history"] == 90
    assert yaml.load(file.read_text(), yaml.CSafeLoader)["limits"]["batch"] == 1000
    hidden = shell.file("secret.yaml", "scheduler: {secret: hunter2}\nlimits: {rate: 2.5}")
    assert shell.json("config", "view", hidden)["limits"]["rate"] == 2.5
    assert "hunter2" not in shell("config", "view", hidden).output


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("limits:\n  rate: fast", 2),
        ("limits:\n  batch: 1.5", 2),
        ("server:\n  metrics: strangers", 2),
        ("server:\n  certificate: x.pem", 2),
        ("scheduler:\n  history: -1", 2),
        ("server:\n  threads: 1", 2),
        ("limits: [1]", 1),
    ],
)
def test_configuration_that_is_wrong_is_named_by_its_line(shell: Shell, text: str, line: int) -> None:  # noqa: F811
    result = shell("config", "check", shell.file("c.yaml", text))
    assert result.exit_code == Exit.ERROR
    assert f"line {line}," in result.stderr


def test_what_ended_goes_from_the_credentials_file(shell: Shell) -> None:  # noqa: F811
    saved = shell.folder / "more.json"
    for name in ("ash", "fir"):
        graph = shell.file(f"{name}.json", grid(1, 1))
        shell("cluster", "register", graph, "--name", name, "--save", saved, "--secret", REGISTRATION)
    before = session.read(saved).clusters
    options = {"RAINBOW_CREDENTIALS": str(saved)}
    other = shell.json("token", "mint", "--cluster", "ash", **options)["id"]
    [token] = [
        one["id"]
        for one in shell.json("token", "list", **options)
        if one["kind"] == "token" and one["clusters"] == ["ash"] and one["id"] != other
    ]
    assert str(saved) not in shell("token", "revoke", other, **options).stdout
    assert session.read(saved).clusters == before
    assert f"removed it from {saved}" in shell("token", "revoke", token, **options).stdout
    assert session.read(saved).clusters == {**before, "ash": {"secret": before["ash"]["secret"]}}
    assert shell.code("jobs", **options) is Exit.OK
    assert f"removed its token and secret from {saved}" in shell("cluster", "delete", "ash", **options).stdout
    assert session.read(saved).clusters == {"fir": before["fir"]}
    elsewhere = {**options, "RAINBOW_SECRET": ADMIN, "RAINBOW_URL": shell.url.replace("127.0.0.1", "localhost")}
    assert str(saved) not in shell("cluster", "delete", "fir", **elsewhere).stdout


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_completion_is_a_script_of_the_shell(shell: Shell, name: str) -> None:  # noqa: F811
    assert "_RAINBOW_COMPLETE" in shell("completion", name).stdout


def test_cluster_is_drained_from_the_shell(shell: Shell) -> None:  # noqa: F811
    graph = shell.file("g.json", grid(1, 1))
    saved = shell.folder / "more.json"
    asking = {"RAINBOW_REGISTRATION_SECRET": REGISTRATION}
    shell("cluster", "register", graph, "--name", "elm", "--save", saved, **asking)
    options = {"RAINBOW_CREDENTIALS": str(saved)}
    assert shell.code("submit", "-n", "1", "--", "true", **options) is Exit.OK
    assert shell.code("cluster", "delete", "elm", **options) is Exit.CONFLICT
    assert shell.code("cluster", "delete", "elm", "--drain", **options) is Exit.OK


def test_a_drained_cluster_is_shown_in_words(shell: Shell) -> None:  # noqa: F811
    until(lambda: shell.json("cluster", "list")[0]["ready"] == 2)
    assert re.search(r"^state +up *$", shell("cluster", "show", "oak").stdout, re.MULTILINE)
    shell("cluster", "drain", "oak")
    try:
        shown = shell("cluster", "show", "oak").stdout
        assert re.search(r"^state +drained since \d{4}-\d\d-\d\d \d\d:\d\d *$", shown, re.MULTILINE)
        assert "drained_at" not in shown
        assert "draining" not in shown
        assert re.search(r"^oak +drained +2/2 ", shell("cluster", "list").stdout, re.MULTILINE)
    finally:
        shell("cluster", "reinstate", "oak")


def test_the_cluster_is_an_argument_or_an_option(shell: Shell) -> None:  # noqa: F811
    for words in (["worker", "list"], ["state", "show"], ["scheduler", "show"]):
        assert shell(*words, "oak").stdout == shell(*words, "--cluster", "oak").stdout
        assert shell.code(*words) is Exit.USAGE
        assert shell.code(*words, "oak", "--cluster", "oak") is Exit.USAGE


def test_credentials_that_are_named_are_there(shell: Shell) -> None:  # noqa: F811
    missing = shell.folder / "none.json"
    result = shell("jobs", "--credentials", missing, "--token", shell.token)
    assert result.exit_code == Exit.USAGE
    assert f"file '{missing}' not found" in result.stderr
    assert shell.code("jobs", "--token", shell.token, RAINBOW_CREDENTIALS=str(missing)) is Exit.OK
