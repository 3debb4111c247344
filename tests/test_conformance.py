"""Recorded answers agree, and a falsified one is noticed."""

import gzip
import json
import shutil
from pathlib import Path

import pytest

from tests.conformance.__main__ import main

DEFAULT = Path(__file__).parent / "cases" / "conformance" / "default"


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
