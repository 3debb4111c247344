"""`rainbow simulate` and `rainbow policy simulate`: what they refuse, and what their exit codes say."""

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from rainbow.cli import main

CASES = Path(__file__).parents[2] / "cases" / "simulation"
SMALL, NOW, F2 = str(CASES / "small.swf"), str(CASES / "now.yaml"), str(CASES / "f2.yaml")


def run(*words):
    result = CliRunner().invoke(main, list(words), env={"COLUMNS": "110"})
    assert "Traceback" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture
def trace(tmp_path):
    def write(*lines):
        path = tmp_path / "garbage.swf"
        path.write_text("".join(f"{line}\n" for line in lines))
        return str(path)

    return write


GOOD = "1 0 -1 10 1 -1 -1 1 20 -1 1 3 -1 -1 0 -1 -1 -1"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "give a TRACE (*.swf, *.swf.gz) or --history FROM..TO"),
        ((SMALL, "--history", ".."), 2, "give a TRACE"),
        (("--history", "yesterday..today"), 2, "--history must be FROM..TO, two dates"),
        (("--history", "2026-02-01..2026-01-01"), 2, "the earlier time first"),
        ((SMALL, "--policy", SMALL), 1, "small.swf"),
    ],
)
def test_wrong_sources_are_refused(words, code, said):
    result = run("simulate", *words)
    assert result.exit_code == code
    assert said in result.stderr


def test_garbage_in_a_trace_is_named_with_its_file_and_line(trace):
    result = run("simulate", trace(GOOD, "hello"))
    assert result.exit_code == 1
    assert "garbage.swf" in result.stderr
    assert "line 2: expected 18 numbers, got 'hello'" in result.stderr
    assert "None" not in result.stderr  # a line of numbers has no column
    empty = run("simulate", trace(GOOD.replace(" 10 ", " 0 ")))
    assert empty.exit_code == 1
    assert "no job to simulate: 1 job: no run time" in empty.stderr


PACKED = gzip.compress(f"{GOOD}\n".encode() * 1000, mtime=0)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.swf", b"", "no job to simulate: {file} has no line of a job"),
        ("empty.swf.gz", gzip.compress(b"", mtime=0), "no job to simulate: {file} has no line of a job"),
        ("plain.swf.gz", GOOD.encode(), "{file}: cannot be unpacked: "),
        ("short.swf.gz", PACKED[:-20], "{file}: cannot be unpacked: "),
        ("torn.swf.gz", PACKED[:15] + b"\xff" * 20 + PACKED[35:], "{file}: cannot be unpacked: "),
    ],
)
def test_a_trace_without_jobs_or_with_torn_bytes_is_refused_in_a_line(name, content, said, tmp_path):
    file = tmp_path / name
    file.write_bytes(content)
    result = run("simulate", str(file))
    assert result.exit_code == 1
    assert result.stderr.startswith("rainbow: " + said.format(file=file))
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "words", [("simulate", "--history", ".."), ("db", "backup", "copy.db"), ("db", "upgrade"), ("scheduler",)]
)
def test_what_reads_a_database_makes_none_where_its_name_is_misspelt(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*words, "--database", "sqlite:///folder/typo.db")
    assert result.exit_code == 4
    assert result.stderr.startswith("rainbow: database file folder/typo.db not found; check --database")
    assert list(tmp_path.iterdir()) == []


def test_settings_are_refused_where_they_stand(tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text("policy: priority\nsettings:\n  order: wallclock\n")
    result = run("policy", "simulate", NOW, str(bad), SMALL)
    assert result.exit_code == 1
    assert "bad.yaml" in result.stderr
    assert "unknown variable wallclock" in result.stderr
    assert "line 3" in result.stderr


def test_json_has_no_infinities_and_jobs_that_are_too_wide_are_counted():
    result = run("policy", "simulate", NOW, F2, SMALL, "--cores", "4", "--windows", "1", "--json")
    results = json.loads(result.stdout, parse_constant=pytest.fail)
    assert results["ratios"]["wait"]["high"] is None
    assert results["ratios"]["wait"]["verdict"] == "no difference shown"
    assert results["left_out"]["wider than every cluster"] > 0


@pytest.mark.parametrize(
    ("condition", "code"),
    [("utilization < 2", 1), ("slowdown > 99", 0), ("speed > 1", 2), ("slowdown about 1", 2)],
)
def test_fail_if_asks_for_the_whole_interval(condition, code):
    result = run("policy", "simulate", NOW, NOW, SMALL, "--windows", "2", "--fail-if", condition)
    assert result.exit_code == code, result.output


def test_a_configuration_of_selection_chooses_among_clusters(tmp_path):
    config = tmp_path / "rainbow.yaml"
    steps = [{"sort_descending": "cores"}, {"select": "first"}]
    selection = {"name": "constraint", "options": {"priorities": [{"priority": 1, "steps": steps}]}}
    config.write_text(json.dumps({"scheduler": {"algorithms": {"selection": selection}}}))
    for name, cores in (("oak", 16), ("ash", 64)):
        node = {"n": {"metadata": {"type": "node"}}, "k": {"metadata": {"type": "core", "count": cores}}}
        nodes = {"c": {"metadata": {"type": "cluster"}}, **node}
        edges = [{"source": "c", "target": "n"}, {"source": "n", "target": "k"}]
        (tmp_path / "clusters" / name).mkdir(parents=True)
        graph = json.dumps({"graph": {"nodes": nodes, "edges": edges}})
        (tmp_path / "clusters" / name / "cluster.json").write_text(graph)
    both = str(tmp_path / "clusters")
    alone = json.loads(run("simulate", SMALL, "--clusters", f"{both}/ash", "--json").stdout)
    chosen = json.loads(run("simulate", SMALL, "--clusters", both, "--policy", str(config), "--json").stdout)
    drawn = json.loads(run("simulate", SMALL, "--clusters", both, "--json").stdout)
    assert chosen["figures"]["wait"] == alone["figures"]["wait"]
    assert drawn["figures"] != chosen["figures"]
