"""The published LAMMPS experiment comes out of `python -m benchmarks.lammps`, as docs/lammps.md shows it."""

import re
from pathlib import Path

import pytest

import rainbow
from benchmarks import lammps
from tests.support.asking import shared_folder

PAGE = (Path(__file__).parents[2] / "docs" / "lammps.md").read_text()
NAMED = {"none": 3.6, "io.archspec+os": 20.6, "io.archspec+os+mpi": 64.2, "io.archspec+os+mpi+hardware": 100.0}


@pytest.fixture(scope="module")
def experiment():
    folder = shared_folder()
    if not (folder / "collected" / "lammps-published").is_dir():
        pytest.skip("../shared has no collected/lammps-published")
    return lammps.read_experiment(folder)


@pytest.fixture(scope="module")
def rows(experiment):
    return {row.setting: row for row in lammps.reproduce(experiment, 10, 1)}


def deviations(row):
    """How many standard deviations of one repetition the published figure lies above the exact mean."""
    chance = row.expected / 100
    return (row.published - row.expected) / (100 * (chance * (1 - chance) / (18 * lammps.ITERATIONS)) ** 0.5)


def test_published_accuracies_come_out_within_two_points(rows):
    assert {name: rows[name].published for name in NAMED} == pytest.approx(NAMED, abs=0.05)
    for name in NAMED:
        assert rows[name].measured == pytest.approx(rows[name].published, abs=2), name


def test_every_setting_is_within_sampling_error_of_what_is_expected(rows):
    assert len(rows) == 8
    for row in rows.values():
        assert row.measured == pytest.approx(row.expected, abs=2), row
    away = [deviations(row) for row in rows.values() if row.expected < 100]
    assert max(map(abs, away)) < 2
    assert f"chi-square {sum(one**2 for one in away):.1f}, {len(away)} degrees" in " ".join(PAGE.split())
    assert sum(one**2 for one in away) < 14.07  # 95 % of chi-square with 7 degrees of freedom
    assert f"lies {deviations(rows['os']):.1f} of them above" in " ".join(PAGE.split())


def test_page_has_the_table_of_the_experiment_and_the_reason_for_its_change(rows, experiment):
    for row in rows.values():
        cells = f"{row.clusters:g} | {row.expected:.1f} | {row.measured:.1f} ± {row.spread:.1f} | {row.published:.1f}"
        assert f"| {row.setting} | {cells} |" in PAGE
    request = lammps.jobspec("any", {})
    request["resources"][0]["with"][0]["count"] = 4
    verdicts = rainbow.match(rainbow.parse_jobspec(request), experiment.clusters)
    assert {verdict.reason.text for verdict in verdicts} <= set(PAGE.split("`"))
    assert not any(verdict.matched for verdict in verdicts)


def test_choosing_by_cost_saves_and_the_text_as_written_draws_at_random(experiment):
    results = {(cost.setting, cost.selector): cost for cost in lammps.costs(experiment, 1, 1)}
    for setting in ("none", "io.archspec+os", "io.archspec+os+mpi"):
        drawn, cheapest, written, linear = (results[setting, name] for name in lammps.SELECTORS)
        assert (drawn.accuracy, drawn.node_hour, drawn.build) == (written.accuracy, written.node_hour, written.build)
        assert cheapest.node_hour < drawn.node_hour
        assert linear.build < cheapest.build < drawn.build
    alone = [results["io.archspec+os+mpi+hardware", name] for name in lammps.SELECTORS]
    assert {(one.accuracy, one.build) for one in alone} == {(100.0, alone[0].build)}


@pytest.mark.soak
def test_page_has_the_table_of_costs(experiment):
    """Each row of the page; those left out are equal to a random draw."""
    lines = {
        f"| {cost.setting} | {cost.selector} | "
        f"{cost.accuracy:.1f} | {cost.node_hour:.2f} | {cost.build:.2f} | {cost.suitable:.2f} |"
        for cost in lammps.costs(experiment, 10, 1)
    }
    shown = {
        line for line in PAGE.split("## Choose by cost")[1].splitlines() if re.match(r"\| [\w.+]+ \| .*\d", line)
    }
    assert len(shown) == 10
    assert shown <= lines


def test_a_folder_without_the_files_is_named(tmp_path, capsys):
    with pytest.raises(SystemExit):
        lammps.main([str(tmp_path)])
    assert "has no jobspecs.yaml" in capsys.readouterr().err
