"""The command line: what it shows, as text and as JSON."""

from __future__ import annotations

import re

from rainbow.cli.exit_codes import Exit
from rainbow.client import Client
from tests.support.shell import Shell, server, shell

__all__ = ["server", "shell"]  # fixtures


def test_submit_shows_candidates_with_what_was_computed_and_the_chosen_one(shell: Shell) -> None:
    steps = [{"calc": "cost=price * 2"}, {"sort_ascending": "cost"}, {"select": "first"}]
    options = shell.file("options.json", {"priorities": [{"priority": 1, "steps": steps}]})
    result = shell(
        "submit", "-n", "1", "--selector", "constraint", "--selector-options", options, "--why", "--", "true"
    )
    assert re.search(r"^oak .*cost 6 +1 +chosen", result.stdout, re.MULTILINE)
    assert re.search(r"^submitted job \d+ \(true\) to cluster oak$", result.stdout, re.MULTILINE)


def test_submit_that_selection_refuses_shows_the_step_that_dropped_each(shell: Shell) -> None:
    options = shell.file("options.json", {"priorities": [{"priority": 1, "steps": [{"filter": "price > 1000"}]}]})
    result = shell("submit", "-n", "1", "--selector", "constraint", "--selector-options", options, "--", "true")
    assert result.exit_code == Exit.CONFLICT
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


def test_show_of_many_tasks_prints_the_first_and_says_how_to_see_more(shell: Shell) -> None:
    tasks = [{"command": ["true"], "resources": "w", "replicas": 1_200}]
    spec = shell.file("many.json", {"resources": {"w": {"type": "core", "replicas": 1}}, "tasks": tasks})
    made = shell.json("submit", spec)
    job, number = made["id"], made["number"]
    shell("job", "cancel", job)
    answer = shell("job", "show", job).stdout
    row = re.compile(r"^\S+-\d+ +(CANCELED|COMPLETED|STOPPING) ", re.MULTILINE)
    assert len(row.findall(answer)) == 10
    assert "10 of 1200 tasks shown (" in answer
    assert f"see more with rainbow job show {number} --after 9" in answer.replace("\n", " ")
    rest = shell("job", "show", job, "--after", "1190", "--limit", "20").stdout
    assert (len(row.findall(rest)), "tasks shown" in rest) == (9, False)
    page = shell.json("job", "show", job)
    assert (len(page["tasks"]), page["next"], sum(page["counts"].values())) == (1_000, 999, 1_200)
    with Client(shell.url, shell.token) as client:
        assert [task["index"] for task in client.job(job)["tasks"]] == list(range(1_200))
        assert [task["index"] for task in client.wait(job, timeout=30)["tasks"]] == list(range(1_200))


def test_show_says_which_cores_a_task_holds(shell: Shell) -> None:
    job = shell.json("submit", "-n", "1", "-c", "2", "--", "sleep", "60")["id"]
    while shell.json("job", "show", job)["state"] != "RUNNING":
        pass
    [task] = shell.json("job", "show", job)["tasks"]
    [(worker, paths)] = task["held"].items()
    assert f"{worker} {paths[0]}" in shell("job", "show", job, "--held").stdout
    assert re.fullmatch(r"core\[\d-\d\]|core\d,core\d", paths[0]), paths
    shell("job", "cancel", job)


def test_lists_have_every_word_in_json(shell: Shell) -> None:
    job = shell.json("submit", "-n", "2", "-c", "2", "--name", "mine", "--requestor", "me", "--", "true")
    assert shell.json("job", "wait", job["id"])["state"] == "COMPLETED"
    listed = next(one for one in shell.json("jobs", "--all") if one["id"] == job["id"])
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
    job = shell("submit", "--parsable", "--name", "mine", "-n", "1", "--", "true").stdout.strip()
    assert re.search(rf"^{job} +mine ", shell("jobs", "--all").stdout, re.MULTILINE)
    assert re.search(r"^oak +up +2/2 +.*core 8", shell("cluster", "list").stdout, re.MULTILINE)
    assert re.search(r"^n1 +READY ", shell("worker", "list", "--cluster", "oak").stdout, re.MULTILINE)
    assert re.search(r"^price +3 +3$", shell("state", "show", "--cluster", "oak").stdout, re.MULTILINE)
    assert re.search(r"^policy +load_based", shell("scheduler", "show", "--cluster", "oak").stdout, re.MULTILINE)
    assert re.search(r"^name +oak", shell("cluster", "show", "oak").stdout, re.MULTILINE)
    assert shell("scheduler", "timeline", "oak", "--svg", "-").stdout.startswith("<svg")
    assert re.search(r"^oak +yes +fits ", shell("match", "-n", "1", "--", "true").stdout, re.MULTILINE)


def test_scheduler_is_set_and_shown(shell: Shell) -> None:
    inputs = ["--class", "day=75", "--class", "night=25", "--default-class", "day", "--requestor", "n=.*=night"]
    more = ["--rebalance-threshold", "10", "--rebalance-minimum-duration", "2.5", "--throttle", "100"]
    made = shell.json("scheduler", "set", "oak", *inputs, *more)
    assert made["settings"]["classes"] == {"day": 75, "night": 25}
    assert made["settings"]["requestors"] == [{"match": "n=.*", "class": "night"}]
    assert made["limits"]["throttle"] == 100
    shell("scheduler", "set", "oak", "--rounding", "classic")
    shown = shell("scheduler", "show", "oak").stdout
    assert re.search(r"^CLASS +LOAD % +RUNNING +WAITING +ENTITLEMENT +LOANED", shown, re.MULTILINE)
    assert re.search(r"^night +25 +0 +0 +[01] +0 ", shown, re.MULTILINE)
    assert re.search(r"^rebalance_threshold +10", shown, re.MULTILINE)
    answer = shell("scheduler", "changes", "oak").stdout
    assert re.search(r"secret [0-9a-f]+ +settings.rounding +exact +classic", answer)
    assert shell.code("scheduler", "set", "oak", "--class", "day=-1") is Exit.ERROR
    assert shell.code("scheduler", "set", "oak", "--class", "day") is Exit.USAGE
    assert shell.code("scheduler", "set", "oak") is Exit.USAGE
    assert shell.code("scheduler", "show") is Exit.USAGE


def test_scheduler_of_another_policy_is_shown(shell: Shell) -> None:
    shell("scheduler", "set", "oak", "--policy", "delegate")
    assert re.search(r"^max_handed_over +1000 *$", shell("scheduler", "show", "oak").stdout, re.MULTILINE)
    _, first, *others = shell("scheduler", "changes", "oak").stdout.splitlines()
    assert re.search(r" policy +load_based +delegate *$", first)
    assert any(re.search(r" settings.max_handed_over +- +1000 *$", line) for line in others)
    assert not any(re.search(r" settings.rebalance_threshold +10 +- *$", line) for line in others)
    assert "rebalance_threshold" in shell("scheduler", "changes", "oak", "-o", "json").stdout
    shell("scheduler", "set", "oak", "--policy", "load_based")


def test_plan_says_what_would_happen(shell: Shell) -> None:
    shell("scheduler", "set", "oak", "--throttle", "-1", "--class", "default=100", "--default-class", "default")
    assert shell.json("scheduler", "plan", "oak") == shell.json("scheduler", "plan", "--cluster", "oak")
    assert re.search(r"^ORDER +TASK +PLACEMENT OR REASON", shell("scheduler", "plan", "oak").stdout, re.MULTILINE)


def test_jobs_are_filtered_and_limited(shell: Shell) -> None:
    for _ in range(3):
        shell("submit", "--wait", "-n", "1", "--", "true")
    assert len(shell.json("jobs", "--all", "--limit", "2")) == 2
    assert {one["state"] for one in shell.json("jobs", "--state", "completed")} == {"COMPLETED"}
    assert shell.json("jobs", "--cluster", "oak", "--state", "waiting") == []
    job = shell.json("submit", "--wait", "--requestor", "zoe", "--", "true")["id"]
    assert [one["id"] for one in shell.json("jobs", "--all", "--requestor", "zoe")] == [job]
    assert shell.json("jobs", "--all", "--requestor", "nobody") == []


def test_what_changed_is_printed_from_old_to_new(shell: Shell) -> None:
    answer = shell("scheduler", "set", "oak", "--max-retries", "7")
    assert re.fullmatch(r"max_retries of oak: \d+ -> 7\n", answer.stdout)
    assert shell("scheduler", "set", "oak", "--max-retries", "7").stdout == "oak: nothing changed\n"


def test_state_is_set_by_pairs_and_a_file_replaces_it(shell: Shell) -> None:
    shell("state", "set", "oak", "-f", shell.file("all.yaml", {"price": 1, "zone": "north"}))
    answer = shell("state", "set", "oak", "price=2.5", "zone=", "up=true", "note=a b = c")
    assert answer.stdout == "state of oak: note none -> a b = c, price 1 -> 2.5, up none -> yes, zone north -> none\n"
    assert shell.json("state", "show", "oak")["state"] == {"price": 2.5, "up": True, "note": "a b = c"}
    assert shell.json("state", "set", "oak", "-f", shell.file("new.yaml", {"price": 3})) == {"price": 3}
    assert "deprecated" in shell("state", "set", shell.file("old.yaml", {"price": 3}), "--cluster", "oak").stderr
    for words in (("oak",), ("oak", "price"), ("oak", "a=1", "-f", "new.yaml"), ()):
        assert shell("state", "set", *words).exit_code == 2, words


def test_a_configuration_without_faults_is_ok(shell: Shell) -> None:
    assert shell("config", "check", shell.file("rainbow.yaml", "scheduler: {}\n")).stdout == "ok\n"
