"""The command line: exit codes, JSON, where settings come from, and that nothing gives a traceback."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from rainbow.cli import credentials, main
from rainbow.cli.exits import Exit
from rainbow.client import Client
from tests.conftest import ADMIN, REGISTRATION, SHARED, grid, jobspec
from tests.live import Script, agent_of, http, rainbow_at, url_of

ROOT = Path(__file__).parents[1]


@dataclass
class Shell:
    """Runs `rainbow` in this process, with a folder of its own and the credentials of cluster oak."""

    folder: Path
    url: str
    token: str
    secret: str
    variables: dict[str, str]

    def __call__(self, *words: str | Path, stdin: str | None = None, **variables: str | None) -> Result:
        result = CliRunner().invoke(
            main, [str(word) for word in words], input=stdin, env={**self.variables, **variables}
        )
        assert "Traceback" not in result.output
        assert not isinstance(result.exception, Exception) or isinstance(result.exception, SystemExit), (
            result.exception
        )
        return result

    def code(self, *words: str | Path, **more: Any) -> Exit:
        return Exit(self(*words, **more).exit_code)

    def json(self, *words: str | Path, **more: Any) -> Any:
        result = self(*words, **{"RAINBOW_OUTPUT": "json", **more})
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def file(self, name: str, content: Any) -> Path:
        path = self.folder / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path


def variables_of(url: str, saved: Path) -> dict[str, str]:
    nothing = [
        "RAINBOW_TOKEN",
        "RAINBOW_TOKEN_FILE",
        "RAINBOW_SECRET",
        "RAINBOW_SECRET_FILE",
        "RAINBOW_REGISTRATION_SECRET",
    ]
    given = {"RAINBOW_URL": url, "RAINBOW_CREDENTIALS": str(saved), "COLUMNS": "200", "NO_COLOR": "1"}
    return {**dict.fromkeys(nothing, ""), **given}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Any, Path]]:
    folder = tmp_path_factory.mktemp("cli")
    with rainbow_at(folder) as url:
        with Client(url, REGISTRATION) as client:
            told = client.register_cluster("oak", grid(2, 4), state={"price": 3})
        saved = folder / "credentials.json"
        credentials.save(saved, url, "oak", told["token"], told["secret"])
        with agent_of(url, "oak", told["secret"]):
            yield url, told, saved


@pytest.fixture
def shell(server: tuple[str, Any, Path], tmp_path: Path) -> Shell:
    url, told, saved = server
    return Shell(tmp_path, url, told["token"], told["secret"], variables_of(url, saved))


# ── exit codes ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_job_that_completes_is_0_and_one_that_fails_7(shell: Shell) -> None:
    assert shell.code("submit", "--wait", "-n", "1", "--", "true") is Exit.OK
    assert shell.code("submit", "--wait", "-n", "1", "--", "sh", "-c", "exit 4") is Exit.JOB_FAILED


def test_a_jobspec_that_is_none_is_1_and_says_where(shell: Shell) -> None:
    result = shell("submit", shell.file("bad.yaml", "version: 1\nresources:\n  - type: node\n    count: [\n"))
    assert result.exit_code == Exit.ERROR
    assert re.search(r"^rainbow: .*line \d+", result.stderr)
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["nonsense"],
        ["submit"],
        ["submit", "no-such-file.yaml"],
        ["submit", "-n", "2"],
        ["submit", "-n", "0", "--", "true"],
        ["submit", "a", "b"],
        ["submit", "--", "hostname"],
        ["match", "--selector-options", "x"],
        ["jobs", "--state", "odd"],
        ["jobs", "-o", "xml"],
        ["job", "show"],
        ["cluster", "register", "no-such-file.json", "--name", "x"],
        ["agent", "--cluster", "oak", "--executor", "no-such-executor"],
        ["serve", "--port", "100000"],
        ["config", "check", "no-such-file.yaml"],
    ],
)
def test_a_wrong_command_line_is_2(shell: Shell, words: Sequence[str]) -> None:
    assert shell.code(*words) is Exit.USAGE


def test_what_fits_nowhere_is_3_with_the_reasons(shell: Shell) -> None:
    for verb in ("submit", "match"):
        result = shell(verb, "-n", "3", "--", "true")
        assert result.exit_code == Exit.NO_MATCH
        assert re.search(r"oak\s.*3 of node wanted in all, the cluster has 2", result.stdout)
        found = shell(verb, "-o", "json", "-n", "3", "--", "true")
        assert found.exit_code == Exit.NO_MATCH
        assert json.loads(found.stdout)["refusals"][0]["cluster"] == "oak"


@pytest.mark.parametrize("verb", ["show", "why", "cancel", "wait"])
def test_a_job_nobody_knows_is_4(shell: Shell, verb: str) -> None:
    assert shell.code("job", verb, "nobody") is Exit.NOT_FOUND


def test_a_cluster_nobody_knows_is_4(shell: Shell) -> None:
    assert shell.code("cluster", "show", "elm") is Exit.NOT_FOUND
    assert shell.code("submit", "-n", "1", "--cluster", "elm", "--", "true") is Exit.NOT_FOUND


@pytest.mark.parametrize(
    "words",
    [
        ["jobs", "--token", "rbt_wrong"],
        ["state", "show", "--cluster", "oak", "--secret", "rbs_wrong"],
        ["agent", "--cluster", "oak", "--secret", "rbs_wrong"],
        ["worker", "list", "--cluster", "elm"],
        ["cluster", "register", "-", "--name", "elm"],
    ],
)
def test_a_wrong_or_missing_credential_is_5(shell: Shell, words: Sequence[str]) -> None:
    assert shell.code(*words, stdin="{}") is Exit.NOT_ALLOWED


def test_a_token_where_a_secret_is_needed_is_5(shell: Shell) -> None:
    words = ["state", "set", "--cluster", "oak", "--secret", shell.token, str(shell.file("state.json", {"price": 1}))]
    assert shell.code(*words) is Exit.NOT_ALLOWED


def test_a_name_that_is_taken_is_6(shell: Shell) -> None:
    words = ["cluster", "register", shell.file("oak.json", grid(1, 1)), "--name", "oak", "--secret", REGISTRATION]
    assert shell.code(*words) is Exit.CONFLICT


def test_a_server_that_is_away_is_75(shell: Shell) -> None:
    with http(Script([])) as port:
        pass
    result = shell("jobs", "--url", url_of(port))
    assert result.exit_code == Exit.UNAVAILABLE
    assert result.stderr.startswith(f"rainbow: the server at {url_of(port)}")


def test_a_wait_that_is_over_is_75(shell: Shell) -> None:
    job = shell.json("submit", "-n", "1", "--", "sleep", "60")["id"]
    assert shell.code("job", "wait", job, "--timeout", "0.1") is Exit.UNAVAILABLE
    assert shell.code("job", "cancel", job) is Exit.OK
    assert shell.code("job", "wait", job) is Exit.JOB_FAILED
    assert shell.code("job", "cancel", job) is Exit.CONFLICT


# ── what is shown ───────────────────────────────────────────────────────────────────────────────────────────


def test_submit_shows_candidates_with_what_was_computed_and_the_chosen_one(shell: Shell) -> None:
    steps = [{"calc": "cost=price * 2"}, {"sort_ascending": "cost"}, {"select": "first"}]
    options = shell.file("options.json", {"priorities": [{"priority": 1, "steps": steps}]})
    result = shell("submit", "-n", "1", "--selector", "constraint", "--selector-options", options, "--", "true")
    assert re.search(r"^oak .*cost 6 +1 +chosen", result.stdout, re.MULTILINE)
    assert re.search(r"^job \w+ goes to oak$", result.stdout, re.MULTILINE)


def test_submit_that_selection_refuses_shows_the_step_that_dropped_each(shell: Shell) -> None:
    options = shell.file("options.json", {"priorities": [{"priority": 1, "steps": [{"filter": "price > 1000"}]}]})
    result = shell("submit", "-n", "1", "--selector", "constraint", "--selector-options", options, "--", "true")
    assert result.exit_code == Exit.NO_MATCH
    assert re.search(r"^oak .* priority 1, filter: price > 1000 is false: price is 3$", result.stdout, re.MULTILINE)


def test_why_shows_every_step(shell: Shell) -> None:
    steps = [{"filter": "price > 1"}, {"calc": "cost=price * 2"}, {"select": "first"}]
    options = shell.file("options.json", {"priorities": [{"priority": 1, "steps": steps}]})
    made = shell.json("submit", "-n", "1", "--selector", "constraint", "--selector-options", options, "--", "true")
    shown = shell("job", "why", made["id"]).stdout
    assert all(step in shown for step in ("filter: price > 1", "calc: cost=price * 2", "select: first"))


def test_show_says_how_tasks_ended_and_what_they_wrote(shell: Shell) -> None:
    result = shell("submit", "--wait", "-n", "1", "--", "echo", "[bold]a[/bold] :smile: \x1b[31mred")
    assert "[bold]a[/bold] :smile: \\x1b[31mred" in result.stdout
    assert "\x1b" not in result.stdout
    assert re.search(r"task-0 +COMPLETED +0", result.stdout)


def test_lists_have_every_word_in_json(shell: Shell) -> None:
    job = shell.json("submit", "-n", "2", "-c", "2", "--name", "mine", "--requestor", "me", "--", "true")
    assert shell.json("job", "wait", job["id"])["state"] == "COMPLETED"
    listed = next(one for one in shell.json("jobs") if one["id"] == job["id"])
    assert (listed["name"], listed["requestor"], listed["cluster"]) == ("mine", "me", "oak")
    assert shell.json("job", "why", job["id"])["decision"]["candidates"][0]["cluster"] == "oak"
    assert [one["name"] for one in shell.json("cluster", "list")] == ["oak"]
    assert shell.json("cluster", "show", "oak")["totals"]["core"] == 8
    assert [one["name"] for one in shell.json("worker", "list", "--cluster", "oak")] == ["n0", "n1"]
    assert shell.json("scheduler", "show", "--cluster", "oak")["policy"] == "load_based"
    assert shell.json("scheduler", "timeline", "oak")["lines"] == []
    assert shell.json("state", "show", "--cluster", "oak")["state"]["price"] == 3
    assert shell.json("match", "-n", "1", "--", "true")["candidates"][0]["cluster"] == "oak"


def test_tables_name_what_they_list(shell: Shell) -> None:
    job = shell.json("submit", "--name", "mine", "-n", "1", "--", "true")["id"]
    assert re.search(rf"^{job} +mine ", shell("jobs").stdout, re.MULTILINE)
    assert re.search(r"^oak +2 +.*core 8", shell("cluster", "list").stdout, re.MULTILINE)
    assert re.search(r"^n1 +READY ", shell("worker", "list", "--cluster", "oak").stdout, re.MULTILINE)
    assert re.search(r"^price +3 +3$", shell("state", "show", "--cluster", "oak").stdout, re.MULTILINE)
    assert re.search(r"^policy +load_based", shell("scheduler", "show", "--cluster", "oak").stdout, re.MULTILINE)
    assert re.search(r"^name +oak", shell("cluster", "show", "oak").stdout, re.MULTILINE)
    assert shell("scheduler", "timeline", "oak", "--svg", "-").stdout.startswith("<svg")
    assert re.search(r"^oak +yes +fits ", shell("match", "-n", "1", "--", "true").stdout, re.MULTILINE)


def test_scheduler_is_set_and_shown(shell: Shell) -> None:
    given = ["--class", "day=75", "--class", "night=25", "--default-class", "day", "--requestor", "n=.*=night"]
    more = ["--rebalance-threshold", "10", "--rebalance-minimum-duration", "2.5", "--throttle", "100"]
    made = shell.json("scheduler", "set", "oak", *given, *more)
    assert made["settings"]["classes"] == {"day": 75, "night": 25}
    assert made["settings"]["requestors"] == [{"match": "n=.*", "class": "night"}]
    assert made["limits"]["throttle"] == 100
    shell("scheduler", "set", "oak", "--rounding", "classic")
    shown = shell("scheduler", "show", "oak").stdout
    assert re.search(r"^CLASS +LOAD % +RUNNING +WAITING +ENTITLEMENT +LOANED", shown, re.MULTILINE)
    assert re.search(r"^night +25 +0 +0 +[01] +0 ", shown, re.MULTILINE)
    assert re.search(r"^rebalance_threshold +10", shown, re.MULTILINE)
    told = shell("scheduler", "changes", "oak").stdout
    assert re.search(r"secret [0-9a-f]+ +settings.rounding +exact +classic", told)
    assert shell.code("scheduler", "set", "oak", "--class", "day=-1") is Exit.ERROR
    assert shell.code("scheduler", "set", "oak", "--class", "day") is Exit.USAGE
    assert shell.code("scheduler", "set", "oak") is Exit.USAGE
    assert shell.code("scheduler", "show") is Exit.USAGE


def test_scheduler_of_another_policy_is_shown(shell: Shell) -> None:
    shell("scheduler", "set", "oak", "--policy", "delegate")
    assert re.search(r"^max_handed_over +1000 *$", shell("scheduler", "show", "oak").stdout, re.MULTILINE)
    shell("scheduler", "set", "oak", "--policy", "load_based")


def test_plan_says_what_would_happen(shell: Shell) -> None:
    shell("scheduler", "set", "oak", "--throttle", "-1", "--class", "default=100", "--default-class", "default")
    assert shell.json("scheduler", "plan", "oak") == shell.json("scheduler", "plan", "--cluster", "oak")
    assert re.search(r"^ORDER +TASK +WHERE OR WHY", shell("scheduler", "plan", "oak").stdout, re.MULTILINE)


def test_jobs_are_filtered_and_limited(shell: Shell) -> None:
    for _ in range(3):
        shell("submit", "--wait", "-n", "1", "--", "true")
    assert len(shell.json("jobs", "--limit", "2")) == 2
    assert {one["state"] for one in shell.json("jobs", "--state", "completed")} == {"COMPLETED"}
    assert shell.json("jobs", "--cluster", "oak", "--state", "waiting") == []


# ── what is sent ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_jobspec_comes_from_a_file_or_stdin(shell: Shell) -> None:
    text = json.dumps(jobspec())
    assert shell.code("submit", shell.file("job.yaml", text)) is Exit.OK
    assert shell.code("submit", "-", stdin=text) is Exit.OK
    assert shell.code("match", "-", stdin=text) is Exit.OK


def test_a_commands_own_flags_are_its_own(shell: Shell) -> None:
    result = shell("submit", "--wait", "-n", "1", "-c", "2", "--", "echo", "-n", "--wait", "; touch x")
    assert "--wait ; touch x" in result.stdout


def test_one_key_is_one_job(shell: Shell) -> None:
    path = shell.file("job.json", jobspec())
    assert len({shell.json("submit", "--key", "once", path)["id"] for _ in range(2)}) == 1


def test_a_cluster_is_registered_with_all_that_belongs_to_it(shell: Shell) -> None:
    io = {"graph": {"nodes": {"d": {"metadata": {"type": "ssd"}}}, "edges": [{"source": "n0", "target": "d"}]}}
    saved = shell.folder / "own" / "credentials.json"
    words = ["cluster", "register", shell.file("graph.json", grid(3, 1)), "--name", "ash"]
    words += ["--subsystem", f"io={shell.file('io.json', io)}", "--state", shell.file("state.json", {"price": 9})]
    words += ["--policy", "load_based", "--save", saved]
    result = shell(*words, RAINBOW_REGISTRATION_SECRET=REGISTRATION)
    assert result.exit_code == 0, result.output
    assert "rbs_" not in result.stdout
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    own = {"RAINBOW_CREDENTIALS": str(saved), "RAINBOW_URL": ""}
    assert shell.json("cluster", "show", "ash", **own)["subsystems"] == ["io"]
    assert shell.json("state", "show", "--cluster", "ash", **own)["state"] == {"price": 9}
    assert shell.json("state", "set", "--cluster", "ash", shell.file("new.json", {"price": 8}), **own) == {"price": 8}
    assert shell.code("subsystem", "delete", "--cluster", "ash", "io", **own) is Exit.OK
    assert shell.json("cluster", "show", "ash", **own)["subsystems"] == []
    again = ["subsystem", "register", shell.folder / "io.json", "--cluster", "ash", "--name", "io"]
    assert shell.json(*again, **own)["vertices"] == 1
    assert shell.code("cluster", "delete", "ash", **own) is Exit.OK


def test_token_and_secret_are_shown_once_if_they_are_not_saved(shell: Shell) -> None:
    words = ["cluster", "register", shell.file("graph.json", grid(1, 1)), "--name", "yew", "--secret", REGISTRATION]
    shown = shell(*words).stdout
    secret = re.search(r"rbs_\S+", shown)
    assert re.search(r"rbt_\S+", shown)
    assert secret
    assert shell.code("cluster", "delete", "yew", "--secret", secret.group()) is Exit.OK


def test_flags_come_before_the_environment_and_that_before_the_file(shell: Shell) -> None:
    assert shell.code("jobs") is Exit.OK
    assert shell.code("jobs", RAINBOW_TOKEN="rbt_wrong") is Exit.NOT_ALLOWED
    assert shell.code("jobs", "--token", shell.token, RAINBOW_TOKEN="rbt_wrong") is Exit.OK
    assert shell.code("jobs", RAINBOW_TOKEN_FILE=str(shell.file("tokens", f"{shell.token}\n"))) is Exit.OK
    assert shell.code("jobs", RAINBOW_TOKEN_FILE=str(shell.file("tokens", "rbt_wrong\n"))) is Exit.NOT_ALLOWED
    assert shell.code("jobs", "--token", ADMIN) is Exit.OK
    assert shell.code("worker", "list", "--cluster", "oak", RAINBOW_SECRET="rbs_wrong") is Exit.NOT_ALLOWED
    assert shell.code("worker", "list", "--cluster", "oak", "--secret", shell.secret, RAINBOW_SECRET="x") is Exit.OK
    assert shell.code("jobs", RAINBOW_URL="http://127.0.0.1:1", RAINBOW_CREDENTIALS="") is Exit.UNAVAILABLE


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"[1]", b'{"clusters": 1}', b'{"clusters": {"a": {}}}', b"x"])
def test_a_credentials_file_that_is_none_is_refused_and_kept(shell: Shell, content: bytes) -> None:
    path = shell.file("odd.json", content)
    assert shell.code("jobs", RAINBOW_CREDENTIALS=str(path)) is Exit.ERROR
    words = ["cluster", "register", shell.file("g.json", grid(1, 1)), "--name", "fir", "--save", path]
    assert shell.code(*words, "--secret", REGISTRATION) is Exit.ERROR
    assert path.read_bytes() == content
    assert shell.code("cluster", "show", "fir", "--token", ADMIN) is Exit.NOT_FOUND


def test_saved_credentials_are_added_to_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    path.write_text(json.dumps({"clusters": {"a": {"token": "rbt_a", "secret": "rbs_a"}}}))
    path.chmod(0o644)
    credentials.save(path, "http://here", "b", "rbt_b", "rbs_b")
    found = credentials.read(path)
    assert (found.url, found.tokens, found.secret("b"), found.secret("c")) == (
        "http://here",
        ["rbt_a", "rbt_b"],
        "rbs_b",
        None,
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["credentials.json"]


# ── what is wrong ───────────────────────────────────────────────────────────────────────────────────────────

HOSTILE = {
    "empty": b"",
    "bytes": bytes(range(256)) * 100,
    "deep": b"[" * 200_000,
    "nan": b'{"price": NaN}',
    "list": b"[]",
    "number": b"1",
    "bomb": b"a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n" + b"d: [*c, *c]\n" * 20,
    "control": b'{"\\u001b[31m": "\\ud800"}',
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_any_file_anywhere_gives_one_line_and_no_traceback(shell: Shell, content: bytes) -> None:
    path = shell.file("hostile", content)
    for words in (
        ["submit", path],
        ["match", path],
        ["cluster", "register", path, "--name", "odd", "--secret", REGISTRATION],
        ["subsystem", "register", path, "--cluster", "oak", "--name", "odd"],
        ["submit", "-n", "1", "--selector", "constraint", "--selector-options", path, "--", "true"],
    ):
        result = shell(*words)
        assert result.exit_code == Exit.ERROR, (words, result.output)
        assert result.stderr.startswith("rainbow: ")
        assert len(result.stderr.splitlines()) == 1
        assert "\x1b" not in result.output
        assert "a fault of rainbow" not in result.stderr


def test_json_faults_say_line_and_column(shell: Shell) -> None:
    result = shell("cluster", "register", shell.file("s.json", '{\n "a": }'), "--name", "elm")
    assert "s.json is not JSON: Expecting value (line 2, column 7)" in result.stderr


def test_yaml_faults_say_line_and_column(shell: Shell) -> None:
    result = shell("state", "set", "--cluster", "oak", shell.file("s.yaml", "a: 1\nb: ]\n"))
    assert re.search(r"s\.yaml: .* \(line 2, column 4", result.stderr)


# ── configuration, help, processes ──────────────────────────────────────────────────────────────────────────


def test_config_check_names_the_line(shell: Shell) -> None:
    text = "scheduler:\n  algorithms:\n    selection:\n      name: nonsense\n"
    result = shell("config", "check", shell.file("config.yaml", text))
    assert result.exit_code == Exit.ERROR
    assert "line 4" in result.stderr


def test_config_check_shows_no_secret(shell: Shell) -> None:
    result = shell("config", "check", shell.file("config.yaml", "scheduler: {secret: hush-hush, odd: 1}\n"))
    assert result.exit_code == 0
    assert "hush" not in result.output
    assert "scheduler.odd is not read" in result.stderr


@pytest.mark.skipif(not SHARED.exists(), reason="upstream's files are not here")
@pytest.mark.parametrize("name", ["rainbow-config.yaml", "rainbow-selection-config.yaml"])
def test_config_check_takes_upstreams_files(shell: Shell, name: str) -> None:
    assert shell.code("config", "check", SHARED / "inputs" / "rainbow" / "scheduler" / name) is Exit.OK


def test_serve_on_a_taken_address_says_so_in_a_line(shell: Shell) -> None:
    with http(Script([])) as port:
        result = shell("serve", "--port", str(port), "--database", f"sqlite:///{shell.folder / 'x.db'}")
    assert result.exit_code == Exit.ERROR
    assert result.stderr == f"rainbow: cannot listen on 127.0.0.1:{port}: Address already in use\n"
    assert not (shell.folder / "x.db").exists()


def test_serve_with_a_bad_configuration_says_where(shell: Shell) -> None:
    result = shell(
        "serve", "--config", shell.file("c.yaml", "scheduler:\n  tick: never\n"), "--port", str(free_port())
    )
    assert result.exit_code == Exit.ERROR
    assert "line 2" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def free_port() -> int:
    with http(Script([])) as port:
        return port


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


@pytest.mark.parametrize("path", [path for path, _ in commands(main)], ids=" ".join)
def test_every_command_says_what_it_does(shell: Shell, path: Sequence[str]) -> None:
    result = shell(*path, "--help")
    assert result.exit_code == 0
    assert dict(commands(main))[tuple(path)].help


def test_help_names_every_exit_code(shell: Shell) -> None:
    text = shell("--help").stdout
    assert all(re.search(rf"\b{int(code)} ", text) for code in Exit)


def test_version_is_the_packages(shell: Shell) -> None:
    from rainbow import __version__

    assert shell("version").stdout == f"rainbow {__version__}\n"
    assert __version__ in shell("--version").stdout


def test_a_fault_of_our_own_is_one_line_too(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "clusters", lambda self: 1 // 0)
    result = shell("cluster", "list")
    assert result.exit_code == Exit.ERROR
    assert result.stderr.startswith("rainbow: a fault of rainbow itself: ZeroDivisionError")


def test_agent_ends_at_sigterm_with_0_and_with_a_wrong_secret_with_5(shell: Shell) -> None:
    command = [sys.executable, "-m", "rainbow", "agent", "--cluster", "oak"]
    variables = {
        **os.environ,
        **{key: value for key, value in shell.variables.items() if value},
        "PYTHONPATH": str(ROOT),
    }
    wrong = subprocess.run(
        [*command, "--secret", "rbs_wrong"], env=variables, capture_output=True, text=True, timeout=30
    )
    assert wrong.returncode == Exit.NOT_ALLOWED
    assert len(wrong.stderr.splitlines()) == 2
    with subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True) as agent:
        assert agent.stderr
        assert "works for oak" in agent.stderr.readline()
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(20) == 0


def test_readers_that_leave_early_see_no_traceback(shell: Shell) -> None:
    shell("submit", "-n", "1", "--", "true")
    variables = {
        **os.environ,
        **{key: value for key, value in shell.variables.items() if value},
        "PYTHONPATH": str(ROOT),
    }
    line = f"{sys.executable} -m rainbow jobs -o json | head -c 1"
    done = subprocess.run(["sh", "-c", line], env=variables, capture_output=True, text=True, timeout=30)
    assert done.stderr == ""
