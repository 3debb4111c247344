"""Recorded answers agree, and a falsified one is noticed."""

import gzip
import json
import shutil
from pathlib import Path

import pytest

from tests.conformance.__main__ import main

DEFAULT = Path(__file__).parent / "cases" / "conformance" / "default"
SHARED = Path(__file__).parents[2] / "shared" / "conformance" / "scoot"


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
