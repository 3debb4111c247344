"""The configuration read again while the server runs: whole or not at all, and every submit has one of the two."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from rainbow.errors import ConfigError, Unavailable
from rainbow.service import Service, Settings
from rainbow.service.core.reload import Configuration, ConfigWatch
from rainbow.service.core.settings import read_config
from tests.conftest import ADMIN, Api, jobspec

FIRST = (
    "scheduler: {algorithms: {selection: {name: constraint, options: {priorities: [{priority: 1, steps: [%s]}]}}}}"
)
UP, DOWN = FIRST % "{sort_ascending: cost}", FIRST % "{sort_descending: cost}"


class File:
    """A configuration file that is written anew."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.times = 0

    def write(self, text: str) -> None:
        """Write it as editors do: a new file in the place of the old one."""
        self.times += 1
        new = self.path.with_suffix(f".{self.times}")
        new.write_text(text)
        os.replace(new, self.path)


@pytest.fixture
def file(tmp_path: Path) -> File:
    made = File(tmp_path / "rainbow.yaml")
    made.write(UP)
    return made


@pytest.fixture
def watch(service: Service, file: File) -> ConfigWatch:
    watch = ConfigWatch(service, file.path, Settings())
    assert watch.look(), "it has changed since the service was started"
    return watch


def place(api: Api, tokens: list[str]) -> Any:
    return api.good("POST", "/v1/jobs", jobspec(), *tokens)["cluster"]


@pytest.fixture
def tokens(api: Api) -> list[str]:
    return [api.register(name, state={"cost": cost}).token for name, cost in (("oak", 2), ("elm", 1))]


def test_changed_file_decides_the_next_job(api: Api, watch: ConfigWatch, file: File, tokens: list[str]) -> None:
    assert place(api, tokens) == "elm"
    file.write(DOWN)
    assert watch.look()
    assert place(api, tokens) == "oak"
    assert not watch.look(), "it has not changed since"
    file.write(DOWN + "\n# said otherwise")
    assert not watch.look(), "it says the same"


@pytest.mark.parametrize(
    "text",
    [
        "scheduler: [",
        FIRST % "{filter: cost > > 1}",
        FIRST % "{select: best}",
        "scheduler: {algorithms: {selection: {name: nonsense}}}",
        "scheduler: {tick: never}",
        "",
        "\0",
    ],
)
def test_file_that_cannot_be_used_changes_nothing(
    api: Api, service: Service, watch: ConfigWatch, file: File, tokens: list[str], text: str
) -> None:
    before = service.settings
    file.write(text)
    assert not watch.look()
    assert service.settings is before
    assert watch.fault
    assert place(api, tokens) == "elm"
    file.write(DOWN)
    assert watch.look()
    assert not watch.fault


def test_file_that_is_gone_changes_nothing(service: Service, watch: ConfigWatch, file: File) -> None:
    before = service.settings
    file.path.unlink()
    assert not watch.look()
    assert service.settings is before


def test_credentials_and_name_wait_for_the_next_start(
    api: Api, service: Service, watch: ConfigWatch, file: File
) -> None:
    file.write("scheduler: {name: other, admin: rba_other, tick: 9, lease: 5}")
    assert watch.look()
    assert (service.settings.tick, service.settings.lease, service.settings.selector) == (9, 5, "random")
    assert service.settings.name == "rainbow"
    assert api.call("GET", "/v1/jobs", None, ADMIN).status_code == 200
    assert api.call("GET", "/v1/jobs", None, "rba_other").status_code == 401


# ── the administrator's word ────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def told(api: Api, service: Service, watch: ConfigWatch) -> ConfigWatch:
    service.state(Configuration).watch = watch
    return watch


def events(api: Api, *tokens: str) -> str:
    return str(api.call("GET", "/v1/events?follow=false", None, *tokens).get_data(as_text=True))


def test_reload_takes_the_file_over_at_once_and_says_what_has_to_wait(
    api: Api, told: ConfigWatch, file: File, tokens: list[str]
) -> None:
    where = "priority 1, step 1 (sort_descending)"
    file.write(DOWN.replace("{algorithms", "{name: other, algorithms").replace("cost}", "node_free}"))
    assert api.good("POST", "/v1/config:reload", {}, ADMIN) == {
        "changed": ["selector_options"],
        "needs_restart": ["name"],
        "warnings": [f"{where}, column 1: node_free is not a well-known variable: did you mean nodes_free?"],
    }
    file.write(DOWN)
    assert api.good("POST", "/v1/config:reload", {}, ADMIN)["changed"] == ["selector_options"]
    assert place(api, tokens) == "oak"
    assert not told.look(), "it was read already"
    again = api.good("POST", "/v1/config:reload", {}, ADMIN)
    assert (again["changed"], again["needs_restart"]) == ([], [])
    file.write(DOWN.replace("{algorithms", "{name: other, algorithms"))
    for _ in range(2):  # it has to wait however often the file is read
        assert api.good("POST", "/v1/config:reload", {}, ADMIN)["needs_restart"] == ["name"]


def test_reload_of_a_file_that_cannot_be_used_is_422_with_its_place_and_changes_nothing(
    api: Api, service: Service, told: ConfigWatch, file: File, tokens: list[str]
) -> None:
    before, said = service.settings, events(api, ADMIN)
    file.write(
        "scheduler:\n  algorithms:\n    selection:\n      name: constraint\n      options:\n"
        "        priorities:\n        - priority: 1\n          steps:\n          - filter: 'cost > > 1'\n"
    )
    problem = api.problem(422, "config-invalid", "POST", "/v1/config:reload", {}, ADMIN)
    assert problem["detail"] == "priority 1, step 1 (filter), column 8: expected a value, got '>'"
    assert problem["pointer"] == "/scheduler/algorithms/selection/options/priorities/0/steps/0"
    assert problem["line"] == 9
    assert service.settings is before
    assert events(api, ADMIN) == said
    assert place(api, tokens) == "elm"


def test_reload_is_the_administrators_and_needs_a_file(api: Api, service: Service, tokens: list[str]) -> None:
    api.problem(409, "conflict", "POST", "/v1/config:reload", {}, ADMIN)
    api.problem(403, "forbidden", "POST", "/v1/config:reload", {}, tokens[0])
    assert api.call("POST", "/v1/config:reload", {}).status_code == 401


def test_reload_is_told_by_an_event_that_only_the_administrator_sees(
    api: Api, told: ConfigWatch, file: File, tokens: list[str]
) -> None:
    file.write(DOWN)
    api.good("POST", "/v1/config:reload", {}, ADMIN)
    file.write(UP)
    assert told.look()
    results = [line for line in events(api, ADMIN).splitlines() if '"changed"' in line]
    assert ['"by": "admin"' in line for line in results] == [False, True, False]
    assert '"by": "a change of the file", "changed": ["selector_options"], "needs_restart": []' in results[-1]
    assert "config-reloaded" not in events(api, *tokens)


def test_reload_that_cannot_be_noted_takes_nothing_over(
    service: Service, told: ConfigWatch, file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> None:
        raise Unavailable("the database is not responding; try again")

    before = service.settings
    file.write(DOWN)
    with monkeypatch.context() as broken:
        broken.setattr(service.store, "write", away)
        assert not told.look()
        assert service.settings is before
    assert told.look(), "the next look tries again"
    assert service.settings is not before


# ── while jobs come ─────────────────────────────────────────────────────────────────────────────────────────


def test_every_submit_during_a_reload_has_one_of_the_two_policies(
    api: Api, watch: ConfigWatch, file: File, tokens: list[str]
) -> None:
    """The cluster and the steps of one decision are never of different configurations."""
    made: list[Any] = []

    def ask() -> None:
        made.extend(api.good("POST", "/v1/jobs", jobspec(), *tokens)["decision"]["selection"] for _ in range(8))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for text in [DOWN, UP] * 6:
        file.write(text)
        assert watch.look()
    for thread in threads:
        thread.join()
    assert len(made) == 32
    expected = {"sort_ascending": "elm", "sort_descending": "oak"}
    assert all(one["cluster"] == expected[one["steps"][0]["step"]] for one in made)


def test_watch_sees_a_change_by_itself(service: Service, file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rainbow.service.core.reload.PAUSE", 0.01)
    watch = ConfigWatch(service, file.path, read_config(file.path))
    watch.start()  # the service knows nothing of the file yet, so only a change can bring constraint
    try:
        file.write(DOWN)
        end = time.monotonic() + 10
        while service.settings.selector != "constraint" and time.monotonic() < end:
            time.sleep(0.01)
        assert service.settings.selector == "constraint"
    finally:
        watch.stop()


def test_every_field_of_the_settings_is_reloaded_or_listed_as_one_that_needs_a_restart(
    service: Service, watch: ConfigWatch, file: File
) -> None:
    """One field after the other is changed in the file; none is ignored silently."""
    first = "scheduler: {algorithms: {selection: {name: constraint, options: {priorities: [%s]}}}}"
    texts = {
        "name": "scheduler: {name: other}",
        "secret": "scheduler: {secret: rbr_other}",
        "admin": "scheduler: {admin: rba_other}",
        "selector": first % "{priority: 1, steps: [{select: first}]}",
        "selector_options": DOWN,
        "backend": "scheduler: {backend: networkx}",
        "policy": "scheduler: {policy: priority}",
        "unplaced": "scheduler: {unplaced: wait}",
        "unplaced_patience": "scheduler: {unplaced_patience: 9}",
        "tick": "scheduler: {tick: 9}",
        "lease": "scheduler: {lease: 50}",
        "grace": "scheduler: {grace: 7}",
        "undecided": "scheduler: {undecided: refuse}",
        "step_seconds": "scheduler: {step_seconds: 7}",
        "forecast_share": "scheduler: {forecast_share: 0.5}",
        "models": "scheduler: {models: on}",
        "history": "scheduler: {history: 3}",
        "limits": "limits: {batch: 3}",
        "numbers": "numbers: {first: 5}",
        "admission": "admission: {max_retries: 3}",
        "server": "server: {threads: 5}",
    }
    assert {*texts, "warnings"} == {field.name for field in dataclasses.fields(Settings)}
    for name, text in texts.items():
        file.write("scheduler: {}")
        watch.reload("admin")
        before = getattr(service.settings, name)
        file.write(text)
        answer = watch.reload("admin")
        assert name in answer["changed"] + answer["needs_restart"], name
        now, requirement = getattr(service.settings, name), getattr(read_config(file.path), name)
        assert (now == requirement) is (name in answer["changed"]), name
        assert (now == before) is (name in answer["needs_restart"]), name


def test_reloaded_admission_is_what_new_clusters_begin_with(api: Api, watch: ConfigWatch, file: File) -> None:
    file.write("admission: {max_retries: 3}")
    assert watch.look()
    oak = api.register("oak")
    shown = api.good("GET", "/v1/clusters/oak/scheduler", None, oak.secret)
    assert shown["limits"]["max_retries"] == 3


@pytest.mark.parametrize(
    ("text", "told", "pointer"),
    [
        ("scheduler: {backend: indx}", "backend indx not found; did you mean index?", "/scheduler/backend"),
        (
            "scheduler: {algorithms: {match: {name: fuzzy}}}",
            "match fuzzy not found; there are: flat, match, range",
            "/scheduler/algorithms/match/name",
        ),
        ("scheduler: {policy: priorty}", "policy priorty not found; did you mean priority?", "/scheduler/policy"),
        ("scheduler: {unplaced: maybe}", "unplaced must be one of refuse, wait, got maybe", "/scheduler/unplaced"),
    ],
)
def test_config_check_refuses_a_backend_and_a_match_algorithm_that_do_not_exist(
    file: File, text: str, told: str, pointer: str
) -> None:
    file.write(text)
    with pytest.raises(ConfigError) as caught:
        read_config(file.path)
    assert (caught.value.message, caught.value.pointer, caught.value.line) == (told, pointer, 1)


def test_misspelt_algorithm_is_a_warning(file: File) -> None:
    file.write("scheduler: {algorithms: {slection: {name: random}}}")
    assert read_config(file.path).warnings == ("ignored scheduler.algorithms.slection: unknown key",)
