"""The configuration read again while the server runs: whole or not at all, and every submit has one of the two."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from rainbow.service import Service
from rainbow.service.config import read_config
from rainbow.service.reloading import Watch
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
def watch(service: Service, file: File) -> Watch:
    watch = Watch(service, file.path, service.settings)
    assert watch.look(), "it has changed since the service was started"
    return watch


def place(api: Api, tokens: list[str]) -> Any:
    return api.good("POST", "/v1/jobs", jobspec(), *tokens)["cluster"]


@pytest.fixture
def tokens(api: Api) -> list[str]:
    return [api.register(name, state={"cost": cost}).token for name, cost in (("oak", 2), ("elm", 1))]


def test_changed_file_decides_the_next_job(api: Api, watch: Watch, file: File, tokens: list[str]) -> None:
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
    api: Api, service: Service, watch: Watch, file: File, tokens: list[str], text: str
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


def test_file_that_is_gone_changes_nothing(service: Service, watch: Watch, file: File) -> None:
    before = service.settings
    file.path.unlink()
    assert not watch.look()
    assert service.settings is before


def test_credentials_and_name_wait_for_the_next_start(api: Api, service: Service, watch: Watch, file: File) -> None:
    file.write("scheduler: {name: other, admin: rba_other, tick: 9, lease: 5}")
    assert watch.look()
    assert (service.settings.tick, service.settings.lease, service.settings.selector) == (9, 5, "random")
    assert service.settings.name == "rainbow"
    assert api.call("GET", "/v1/jobs", None, ADMIN).status_code == 200
    assert api.call("GET", "/v1/jobs", None, "rba_other").status_code == 401


def test_every_submit_during_a_reload_has_one_of_the_two_policies(
    api: Api, watch: Watch, file: File, tokens: list[str]
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
    monkeypatch.setattr("rainbow.service.reloading.PAUSE", 0.01)
    watch = Watch(service, file.path, read_config(file.path))
    watch.start()  # the service knows nothing of the file yet, so only a change can bring constraint
    try:
        file.write(DOWN)
        end = time.monotonic() + 10
        while service.settings.selector != "constraint" and time.monotonic() < end:
            time.sleep(0.01)
        assert service.settings.selector == "constraint"
    finally:
        watch.stop()
