"""Recorded answers agree, and a falsified one is noticed."""

import gzip
import json
import shutil
from pathlib import Path

import pytest

from tests.conformance.__main__ import main

DEFAULT = Path(__file__).parents[2] / "cases" / "conformance" / "default"
SHARED = Path(__file__).parents[4] / "shared" / "conformance" / "scoot"


def test_default_cases_all_agree(capsys):
    assert main(["default", str(DEFAULT)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "agree 800 of 800"


def test_fluxion_cases_all_agree_under_strict_levels(capsys):
    assert main(["fluxion", str(DEFAULT.parent / "fluxion")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "agree 1668 of 1668"


def test_falsified_fluxion_answer_is_noticed(tmp_path, capsys):
    shutil.copytree(DEFAULT.parent / "fluxion", tmp_path, dirs_exist_ok=True)
    lines = gzip.decompress((tmp_path / "cases.jsonl.gz").read_bytes()).decode().splitlines()
    row = next(json.loads(line) for line in lines if not json.loads(line)["skipped_level"])
    (tmp_path / "cases.jsonl").write_text(json.dumps({**row, "satisfiable": not row["satisfiable"]}))
    assert main(["fluxion", str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "agree 0 of 1"


def test_falsified_answer_is_noticed(tmp_path, capsys):
    lines = gzip.decompress((DEFAULT / "cases.jsonl.gz").read_bytes()).decode().splitlines()[:20]
    row = json.loads(lines[7])
    lines[7] = json.dumps({**row, "matched": not row["matched"]})
    (tmp_path / "cases.jsonl").write_text("\n".join(lines))
    assert main(["default", str(tmp_path)]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == "agree 19 of 20"
    assert printed[0].startswith(f"case {row['id']}:")


def test_empty_folder_is_no_agreement(tmp_path):
    assert main(["default", str(tmp_path)]) == 1


# ── the load-based policy, `rounding: classic` ──

SCOOT = DEFAULT.parent / "scoot"


def test_scoot_scenarios_all_agree(capsys):
    assert main(["scoot", str(SCOOT)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "agree 202 of 202"


def scenarios():
    return [json.loads(line) for line in gzip.decompress((SCOOT / "scenarios.jsonl.gz").read_bytes()).splitlines()]


def falsified(value):
    """Return an answer that is surely another one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, dict):
        return {**value, "nobody": 7}
    return [falsified(outcome) for outcome in value]


@pytest.mark.parametrize("field", ["pct", "target", "start", "by_job", "order", "stop", "stop_tasks", "timer_set"])
def test_falsified_scoot_answer_is_noticed(tmp_path, capsys, field):
    row = next(row for row in scenarios() if field in row["expect"] and "nan" not in row["flags"])
    row["expect"][field] = falsified(row["expect"][field])
    (tmp_path / "scenarios.jsonl").write_text(json.dumps(row))
    assert main(["scoot", str(tmp_path)]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith(f"scenario {row['id']}: {field} ")
    assert printed[-1] == "agree 0 of 1"


@pytest.mark.parametrize("field", ["pct_any", "target_any", "start_any", "by_job_any"])
def test_falsified_scoot_outcomes_are_noticed(tmp_path, capsys, field):
    row = next(r for r in scenarios() if len(r["expect"].get(field, "12345678")) < 8 and "nan" not in r["flags"])
    row["expect"][field] = falsified(row["expect"][field])
    (tmp_path / "scenarios.jsonl").write_text(json.dumps(row))
    assert main(["scoot", str(tmp_path)]) == 1
    assert f" {field.removesuffix('_any')} " in capsys.readouterr().out


@pytest.mark.skipif(not SHARED.is_dir(), reason="the recorded answers of the original's own tests are not here")
def test_scoot_tables_all_agree(tmp_path, capsys):
    shutil.copy(SHARED / "from_tests.json", tmp_path)
    assert main(["scoot", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "agree 15 of 15"


def test_recorded_dispatching_all_agrees(capsys):
    assert main(["ocs", str(DEFAULT.parent / "ocs")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "agree 1124 of 1124"


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("workloads.json", ["workloads", 0, "results", "easy_nodes", "start", 3], 99_999),
        ("workloads.json", ["workloads", 1, "results", "conservative", "start", 0], -1),
        ("workloads.json", ["workloads", 0, "results", "conservative", "first_reservation", "99"], 5),
        pytest.param(
            *("batsim_medium_late.json", ["published", "easy", "start", 700], 1),
            marks=pytest.mark.soak,  # thousands of jobs, like the recorded answers that are agreed with above
        ),
        (
            "grid_engine_runs.json",
            ["scenarios", 0, "observed", 0, "runs", 0, "decisions", "j00", "kind"],
            "RESERVING",
        ),
        ("grid_engine_runs.json", ["scenarios", 4, "observed", 0, "runs", 0, "decisions", "j08", "start"], 5),
        ("ocs_unit_figures.json", ["calendar_states", 3, "until"], "2004-02-02T00:00:00"),
        ("ocs_unit_figures.json", ["calendar_frames", 1, "open"], True),
        ("ocs_unit_figures.json", ["utilization_diagram", "cases", 1, "queries", 1, 2], 9),
        ("ocs_unit_figures.json", ["load_formula", "eval_with_num_proc_4", "$num_proc*2"], 9),
    ],
    ids=lambda value: str(value),
)
def test_falsified_dispatching_is_noticed(tmp_path, capsys, name, path, value):
    recorded = json.loads((DEFAULT.parent / "ocs" / name).read_text())
    if name == "workloads.json":
        recorded["workloads"] = recorded["workloads"][:2]
    part = recorded
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    (tmp_path / name).write_text(json.dumps(recorded))
    assert main(["ocs", str(tmp_path)]) == 1


DUCC = DEFAULT.parent / "ducc"
FALSIFIED = {
    "apportion": lambda row: row["given"][min(row["given"])].__setitem__(1, 99),
    "remove_shares": lambda row: row["vmachines_after"].__setitem__(1, 99),
    "tables": lambda row: row["initial_n_v_s"][2].__setitem__(1, 99),
    "job_cap": lambda row: row.update(cap=row["cap"] + 1),
    "investment": lambda row: row["eviction_order"].reverse(),
    "config": lambda row: row.update(ok=not row["ok"], error="wrong"),
    "defects": lambda row: row.update(machines=row["machines"][1:]),
    "schedule_fair": lambda row: [machine.update(order=0) for machine in row["machines"]],
}


def test_ducc_cases_all_agree(capsys):
    assert main(["ducc", str(DUCC)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("agree 1238 of 1238")


@pytest.mark.parametrize("name", FALSIFIED)
def test_falsified_ducc_answer_is_noticed(name, tmp_path, capsys):
    row = json.loads(gzip.decompress((DUCC / f"{name}.jsonl.gz").read_bytes()).decode().splitlines()[0])
    FALSIFIED[name](row)
    (tmp_path / f"{name}.jsonl").write_text(json.dumps(row))
    assert main(["ducc", str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "agree 0 of 1"
