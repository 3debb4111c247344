"""`rainbow match` on files: one jobspec or many against graphs, without a server; explained in words and as JSON."""

import json
import os
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from rainbow.cli import main
from rainbow.cli.exit_codes import Exit
from rainbow.graph import write_jgf
from rainbow.testing.backends import cluster
from tests.support.shell import HOSTILE

ROOT = Path(__file__).parents[3]
FORM = jsonschema.Draft202012Validator(json.loads((ROOT / "docs" / "match.schema.json").read_text()))
ALONE = {"RAINBOW_URL": "http://127.0.0.1:9", "NO_COLOR": "1", "COLUMNS": "200"}  # nobody answers there


def run(*words, stdin=None):
    result = CliRunner().invoke(main, ["match", *map(str, words)], input=stdin, env={**os.environ, **ALONE})
    assert "Traceback" not in result.output
    assert isinstance(result.exception, SystemExit | None)
    return result


def written(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def nodes(count, cores):
    return write_jgf(cluster(f"cluster(node*{count}(core*{cores}))"))


def job(cores, count=1):
    inner = [{"type": "core", "count": cores}]
    return {"resources": {"work": {"type": "node", "replicas": count, "with": inner}}, "tasks": [{"command": ["a"]}]}


@pytest.fixture
def folder(tmp_path):
    written(tmp_path / "graphs" / "elm" / "nodes.json", nodes(2, 4))
    written(tmp_path / "graphs" / "oak10" / "cluster.json", nodes(2, 16))
    written(tmp_path / "graphs" / "oak9" / "cluster-nodes.json", nodes(1, 8))
    io = {"nodes": {"s": {"metadata": {"type": "shm"}}}, "edges": [{"source": "node0", "target": "s"}]}
    written(tmp_path / "graphs" / "oak9" / "cluster-io-subsystem.json", {"graph": io})
    written(tmp_path / "jobs" / "few" / "two.yaml", job(2))
    written(tmp_path / "jobs" / "many" / "eight.yaml", job(8))
    written(tmp_path / "jobs" / "many" / "none.yaml", job(99))
    return tmp_path


def test_one_jobspec_is_answered_as_the_server_does(folder):
    words = (folder / "jobs" / "many" / "eight.yaml", "--graph", folder / "graphs")
    result = run(*words)
    assert result.exit_code == Exit.OK
    lines = [line.split()[:2] for line in result.stdout.splitlines()[1:]]
    assert lines == [["elm", "no"], ["oak9", "yes"], ["oak10", "yes"]]
    answer = json.loads(
        run(folder / "jobs" / "many" / "eight.yaml", "--graph", folder / "graphs", "-o", "json").stdout
    )
    assert [one["cluster"] for one in answer["candidates"]] == ["oak9", "oak10"]
    FORM.validate(answer)


def test_explained_it_says_tree_numbers_and_change(folder):
    words = (folder / "jobs" / "many" / "eight.yaml", "--graph", folder / "graphs", "--explain")
    text = run(*words).stdout
    assert text.index("elm: ") < text.index("oak9: matches") < text.index("oak10: matches")
    assert "core × 8: 4 in each of 2 nodes ✗ blocks the match" in text
    assert "vertex-too-small: core, wanted 8, found 4" in text
    assert "would match if  core ≤ 4" in text
    answer = json.loads(run(*words, "-o", "json").stdout)
    FORM.validate(answer)
    change = answer["refusals"][0]["explanation"]["change"]
    assert (change["text"], change["edits"][0]["count"]) == ("core ≤ 4", 4)


def test_many_jobspecs_are_counted_by_jobspec_and_by_folder(folder):
    words = (folder / "jobs", "--graph", folder / "graphs", "--explain")
    swept = json.loads(run(*words, "-o", "json").stdout)
    rows = {Path(row["jobspec"]).stem: row for row in swept["jobspecs"]}
    assert {name: row["matched"] for name, row in rows.items()} == {"two": 3, "eight": 2, "none": 0}
    assert rows["none"]["refusals"] == {"total-too-small": 3}
    assert rows["none"]["changes"] == {"core ≤ 16": 1, "core ≤ 4": 1, "core ≤ 8": 1}
    counts = [(Path(f["folder"]).name, f["jobspecs"], f["matched"], f["of"]) for f in swept["folders"]]
    assert counts == [("few", 1, 3, 3), ("many", 2, 2, 6)]
    shown = run(*words)
    assert shown.exit_code == Exit.OK
    assert "FOLDER" in shown.stdout
    assert "core ≤ 16: 1" in shown.stdout


def test_nothing_that_matches_is_3(folder):
    none = folder / "jobs" / "many" / "none.yaml"
    assert run(none, "--graph", folder / "graphs").exit_code == Exit.NO_MATCH
    assert run(none, none.parent / "none.yaml", "--graph", folder / "graphs").exit_code == Exit.NO_MATCH


def test_subsystems_beside_a_graph_hang_on_it(folder):
    requirement = job(1)
    requirement["resources"]["work"]["requires"] = [{"name": "io", "field": "type", "match": "shm"}]
    path = written(folder / "io.json", requirement)
    answer = json.loads(run(path, "--graph", folder / "graphs", "-o", "json").stdout)
    assert [one["cluster"] for one in answer["candidates"]] == ["oak9"]


def test_commands_stdin_and_named_clusters(folder):
    graphs = ("--graph", folder / "graphs")
    results = json.loads(run("-n", "2", "-c", "8", *graphs, "-o", "json", "--", "true").stdout)
    assert [one["cluster"] for one in results["candidates"]] == ["oak10"]
    results = json.loads(run("-", *graphs, "--cluster", "elm", "-o", "json", stdin=json.dumps(job(2))).stdout)
    assert [one["cluster"] for one in results["candidates"]] == ["elm"]
    assert run("-", *graphs, "--cluster", "ash", stdin=json.dumps(job(2))).exit_code == Exit.NOT_FOUND


def test_clusters_of_one_name_are_called_by_their_paths(folder):
    other = written(folder / "more" / "elm" / "nodes.json", nodes(1, 1)).parent
    words = (folder / "jobs" / "few" / "two.yaml", "--graph", folder / "graphs", "--graph", other, "-o", "json")
    answer = json.loads(run(*words).stdout)
    assert str(other) in [one["cluster"] for one in answer["refusals"]]


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [("job.yaml", "resources: [", Exit.ERROR), ("job.yaml", "\x00", Exit.ERROR), ("graph.json", "{", Exit.ERROR)],
)
def test_a_broken_file_is_named_in_one_line(folder, name, content, code):
    path = folder / name
    path.write_text(content)
    good = (folder / "jobs" / "few" / "two.yaml", folder / "graphs" / "elm")
    words = (path, "--graph", good[1]) if name == "job.yaml" else (good[0], "--graph", path)
    result = run(*words)
    assert result.exit_code == code
    assert str(path) in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_what_is_no_jobspec_in_a_folder_is_skipped_and_said(folder):
    (folder / "jobs" / "few" / "readme.yaml").write_text("just: text")
    result = run(folder / "jobs", "--graph", folder / "graphs")
    assert result.exit_code == Exit.OK
    assert "skipped" in result.stderr
    assert "readme.yaml" in result.stderr


@pytest.mark.parametrize("words", [["--graph", "jobs"], ["--selector", "random"], ["--graph", "nowhere"]])
def test_a_wrong_command_line_is_2(folder, words, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "empty").mkdir()
    assert run("jobs/few/two.yaml", "--graph", "graphs", *words).exit_code == Exit.USAGE
    assert run("empty", "--graph", "graphs").exit_code == Exit.USAGE


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_any_file_gives_one_line_and_no_traceback(folder, content):
    path = folder / "hostile.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    good = folder / "jobs" / "few" / "two.yaml"
    for words in ((good, "--graph", path), (path, "--graph", folder / "graphs")):
        result = run(*words, "--explain")
        assert result.exit_code == Exit.ERROR, result.output
        assert len(result.stderr.splitlines()) == 1
        assert "set RAINBOW_DEBUG=1 for a traceback and please report it" not in result.stderr
        assert "\x1b" not in result.output


def test_nodes_that_are_down_are_counted_and_said(tmp_path):
    graph = nodes(2, 4)
    down = next(one for one in graph["graph"]["nodes"].values() if one["metadata"]["type"] == "node")
    down["metadata"]["unavailable"] = "DOWN"
    reported = run(
        written(tmp_path / "j.json", job(4)), "--graph", written(tmp_path / "elm.json", graph), "-o", "json"
    )
    answer = json.loads(reported.stdout)
    assert (answer["candidates"][0]["fits"], len(answer["warnings"])) == (2, 1)
    assert answer["warnings"][0].endswith(": counted 1 unavailable node as if available")
