"""The judge of histories is judged: each rule finds faults made by hand, or says that it is blind."""

from __future__ import annotations

import ast
import itertools
import json
from collections.abc import Sequence
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import SHARED
from tests.history import check, linear, model
from tests.history.attack import BREAKS, Break
from tests.history.by_hand import FAULTS, Lines, jobs_everywhere, op, put, right
from tests.history.check import RULES, judge, main, report
from tests.history.linear import IS, IS_NOT, WRITE, Access, unexplained
from tests.history.model import History
from tests.history.places import ROOT

EACH = [pytest.param(rule, fault, id=f"{rule}: {fault}") for rule, faults in FAULTS.items() for fault in faults]


def broken(lines: Lines) -> list[str]:
    return [name for name, one in judge(History(lines)).items() if one.word == "broken"]


def written(lines: Lines, path: Path) -> str:
    path.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    return str(path)


def test_right_history_every_rule_holds_and_has_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([written(right(), tmp_path / "h.jsonl")]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[:2] for row in rows[:-1]] == [["holds", name] for name in RULES]
    assert rows[-1].startswith("10 rules hold, ")


@pytest.mark.parametrize(("rule", "fault"), EACH)
def test_fault_made_by_hand_breaks_its_rule(rule: str, fault: str) -> None:
    lines = right()
    FAULTS[rule][fault](lines)
    assert rule in broken(lines), fault


def test_every_rule_has_two_faults_and_most_break_no_other() -> None:
    assert set(FAULTS) == set(RULES)
    assert all(len(faults) >= 2 for faults in FAULTS.values())
    alone = 0
    for rule, faults in FAULTS.items():
        for make in faults.values():
            lines = right()
            make(lines)
            alone += broken(lines) == [rule]
    assert alone >= 0.75 * len(EACH)


OF_RULES = {  # what a rule judges: without it the rule is blind
    "answers": {"read", "cancel", "submit", "batch", "figures"}
    | {"register", "put-state", "get-state", "open", "rotate", "revoke"},
    "submits": {"final-jobs"},
    "reads": {"read", "cancel"},
    "ends": {"final-events"},
    "runs": {"runs"},
    "registers": {"get-state", "open"},
    "events": {"final-events"},
    "bookings": {"figures", "final-free"},
    "usage": {"final-usage"},
    "registrations": {"final-clusters"},
}


@pytest.mark.parametrize("rule", RULES)
def test_rule_that_judged_nothing_is_blind_and_the_history_is_not_judged(
    rule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [each for each in right() if each["f"] not in OF_RULES[rule]]
    if rule == "answers":
        lines = [each for each in lines if each["f"] in ("setup", "nemesis")]
    judgment = judge(History(lines))[rule]
    assert (judgment.word, judgment.judged) == ("blind", 0)
    assert main([written(lines, tmp_path / "h.jsonl")]) == 2
    assert f"it cannot be judged: rule {rule} looked at nothing" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("gone", "reason"),
    [
        ({"open", "rotate", "revoke"}, "rule registers saw no tokens"),
        ({"followed"}, "rule events saw no followed"),
        ({"final-free"}, "rule bookings saw no final figures"),
        ({"cancel"}, "rule reads saw no cancels"),
        ({"nemesis"}, "nemesis kill never acted"),
    ],
)
def test_recorded_history_lacks_a_part_it_cannot_be_judged(gone: set[str], reason: str) -> None:
    history = History([each for each in right() if each["f"] not in gone])
    code, text = report(history, judge(history), "h.jsonl")
    assert f"it cannot be judged: {reason}" in text
    assert code == 2


def test_nemesis_that_failed_has_not_acted() -> None:
    lines = right()
    put(lines, "nemesis", status=500)
    history = History(lines)
    assert "nemesis kill never acted" in report(history, judge(history), "")[1]


def test_short_history_is_not_judged() -> None:
    history = History([each for each in right() if each["f"] != "read"])
    assert "answered operations; at least 200 are needed" in report(history, judge(history), "")[1]


def test_broken_rule_shows_five_examples_and_counts_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = right()
    jobs_everywhere(lines, lambda jobs: jobs.clear())
    assert main([written(lines, tmp_path / "h.jsonl")]) == 1
    rows = capsys.readouterr().out.splitlines()
    at = next(k for k, row in enumerate(rows) if row.startswith("broken submits"))
    assert all("is not there" in row for row in rows[at + 1 : at + 6])
    assert rows[at + 6].split()[0] == "and"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no JSON", "line 1 is not JSON"),
        ("[1]", "line 1 must be an object with f"),
        ('{"f": "setup"}\n{"f": "submit", "ask": {}}', "line 2: submit must have name in ask"),
    ],
)
def test_file_that_is_no_history_cannot_be_judged(
    text: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "h.jsonl").write_text(text)
    assert main([str(tmp_path / "h.jsonl")]) == 2
    assert capsys.readouterr().out.startswith(f"it cannot be judged: {reason}")
    assert main([str(tmp_path / "absent.jsonl")]) == 2


def _cases() -> dict[str, list[str]]:
    file = SHARED / "inputs" / "trust" / "expected.json"
    return json.loads(file.read_text()) if file.exists() else {}


@pytest.mark.skipif(not _cases(), reason="../shared/inputs/trust is not there")
@pytest.mark.parametrize(("name", "expected"), _cases().items())
def test_case_is_judged_as_expected(name: str, expected: list[str]) -> None:
    history = History.read((SHARED / "inputs" / "trust" / f"{name}.jsonl").read_text())
    judgments = judge(history)
    assert [rule for rule, one in judgments.items() if one.word == "broken"] == expected
    assert report(history, judgments, name)[0] == (1 if expected else 2)  # too short to show that all is right


def test_judge_imports_nothing_of_rainbow() -> None:
    for module in (check, linear, model):
        tree = ast.parse(Path(str(module.__file__)).read_text())
        names = {
            name
            for node in ast.walk(tree)
            for name in (
                [each.name for each in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        }
        assert not [name for name in names if name.startswith("rainbow")]
        assert {name for name in names if name.startswith("tests")} <= {"tests.history.linear", "tests.history.model"}


# ── the two searches agree with trying everything ──


def explained(accesses: Sequence[Access]) -> bool:
    """Whether some order, with or without each access that may not have been, fits real time and values."""
    certain = [each for each in accesses if each.end < inf]
    unsure = [each for each in accesses if each.end == inf]
    return any(
        _fits(order)
        for count in range(len(unsure) + 1)
        for some in itertools.combinations(unsure, count)
        for order in itertools.permutations([*certain, *some])
    )


def _fits(order: Sequence[Access]) -> bool:
    value = None
    for at, each in enumerate(order):
        if any(later.end < each.call for later in order[at + 1 :]):
            return False
        if each.kind == WRITE:
            value = each.value
        elif (each.kind == IS) != (each.value == value):
            return False
    return True


@st.composite
def accesses(draw: st.DrawFn) -> Access:
    kind, call = draw(st.sampled_from([WRITE, WRITE, IS, IS, IS_NOT])), draw(st.integers(0, 8))
    lost = kind == WRITE and draw(st.booleans())
    return Access(call, inf if lost else call + draw(st.integers(0, 4)), kind, draw(st.sampled_from([None, 1, 2, 3])))


@given(st.lists(accesses(), max_size=6))
def test_register_is_linearizable_exactly_if_some_order_explains_it(line: list[Access]) -> None:
    assert (unexplained(line) is None) == explained(line)


def test_register_of_many_writes_without_an_answer_is_judged_soon() -> None:
    line = [Access(k, inf, WRITE, k) for k in range(60)]
    line += [Access(100 + 2 * k, 101 + 2 * k, IS, k) for k in range(60)]
    assert unexplained(line) is None
    assert unexplained([*line, Access(300, 301, IS, 0)]) is not None


@given(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3), st.sampled_from("abc")), max_size=4),
)
def test_reads_fit_a_path_exactly_if_some_places_rise_with_time(
    path: list[str], seen: list[tuple[int, int, str]]
) -> None:
    """Places of reads on the path: one that returned before another was called is never further on."""
    lines: Lines = [op("submit", -9, {"name": "n"}, 201, {"id": "j"})]
    for call, lasts, state in seen:
        lines.append({**op("read", call, {"job": "j"}, 200, {"tasks": {"j-0": state}}), "return": call + lasts})
        lines[-1]["answer"]["state"] = "WAITING"
    moves = [{"id": k, "kind": "task", "data": {"task": "j-0", "state": state}} for k, state in enumerate(path)]
    lines.append({"f": "final-events", "answer": [*moves]})
    whole = ["WAITING", *path]
    fits = any(
        all(whole[place] == state for place, (_, _, state) in zip(places, seen, strict=True))
        and all(
            places[one] <= places[two]
            for one, two in itertools.permutations(range(len(seen)), 2)
            if seen[one][0] + seen[one][1] < seen[two][0]
        )
        for places in itertools.product(range(len(whole)), repeat=len(seen))
    )
    faults = [fault for fault in judge(History(lines))["reads"].faults if fault.startswith("task")]
    assert (not faults) == fits


@pytest.mark.parametrize("one", BREAKS, ids=[one.name for one in BREAKS])
def test_break_of_the_attack_applies_to_the_code_as_it_is(one: Break) -> None:
    text = (ROOT / one.file).read_text()
    assert text.count(one.old) >= 1
    compile(text.replace(one.old, one.new, 1), one.file, "exec")
