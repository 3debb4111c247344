"""The keeper: what an agent runs goes on without the agent, and its end is kept until it is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rainbow.agent.executors.keeper_client import SupervisedExecutor
from rainbow.agent.executors.wards import Wards
from rainbow.testing.executors import ends, run_of
from tests.support.agent_sites import PATH, until
from tests.support.keepers import alive, keepers


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for keeper in keepers(tmp_path):
        keeper.kill()


def test_a_keeper_keeps_an_end_until_it_is_known_to_be_told(folder: Path) -> None:
    one = SupervisedExecutor(PATH, folder)
    one.start(run_of("echo", "hi"))
    assert ends(one)[("t1", 1)].output == "hi\n"
    two = SupervisedExecutor(PATH, folder)  # the first was killed before it could say that it knows
    assert two.running() == [("t1", 1)]
    assert ends(two)[("t1", 1)].output == "hi\n"
    assert two.poll() == []
    assert SupervisedExecutor(PATH, folder).running() == []


def test_a_run_started_twice_runs_once(folder: Path) -> None:
    one = SupervisedExecutor(PATH, folder)
    run = run_of("sh", "-c", 'echo >> "$1"', "sh", str(folder / "n"))
    one.start(run)
    one.start(run)
    ends(one)
    assert len((folder / "n").read_text()) == 1


def test_a_keeper_that_nobody_asks_ends_everything_and_itself(folder: Path) -> None:
    one = SupervisedExecutor(PATH, folder, patience=4.0)
    one.start(run_of("sleep", "62"))
    until(lambda: one.poll() == [] and ("t1", 1) in one.begun())  # who asks is heard, however busy the machine
    warden = psutil.Process(Wards(folder).warden(("t1", 1)))
    keeper, [child] = warden.ppid(), warden.children()
    until(lambda: not alive(keeper) and not alive(child.pid))


def test_a_keeper_of_a_folder_with_a_very_long_name_is_found(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    one = SupervisedExecutor(PATH, folder)
    one.start(run_of("echo", "hi"))
    assert ends(one)[("t1", 1)].output == "hi\n"
    one.close()
    until(lambda: keepers(folder) == [])


def test_a_keeper_does_not_know_the_agents_secret(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAINBOW_SECRET", "rbs_1")
    one = SupervisedExecutor(PATH, folder)
    [keeper] = keepers(folder)
    assert "RAINBOW_SECRET" not in keeper.environ()
    one.close()


def test_runs_of_one_name_of_two_agents_do_not_end_each_other(tmp_path: Path) -> None:
    """The control groups of all agents of a machine are beside each other."""
    places = [tmp_path / "one", tmp_path / "two"]
    for place in places:
        place.mkdir()
    one, two = (SupervisedExecutor(PATH, place) for place in places)
    one.start(run_of("sh", "-c", 'while ! test -e "$1"; do sleep 0.05; done', "sh", str(tmp_path / "over")))
    until(lambda: one.poll() == [] and ("t1", 1) in one.begun())
    two.start(run_of("true"))
    ends(two)
    (tmp_path / "over").touch()
    assert ends(one)[("t1", 1)].exit_code == 0
    for each in (one, two):
        each.close()
