"""Tables at the width of a terminal: ids, states and times are whole, and no word is broken."""

from __future__ import annotations

import ast
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from rainbow.cli.output import printer
from rainbow.cli.output.printer import FREE, KEPT, WHOLE, fitted
from tests.support.shell import ROOT, Shell, server, shell

__all__ = ["server", "shell"]  # fixtures

TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?"
ID = "0123456789abcdef01234567"
WHY = "no worker of the cluster is ready and what runs there ends no sooner than tomorrow"
TITLES = ["JOB", "NAME", "STATE", "CLUSTER", "USER", "SUBMITTED", "REASON"]
ROWS = [
    [ID, "a name of some length", "WAITING", "willow", "annabelle-the-requestor", "2026-11-21 15:28:01", WHY],
    [ID, None, "RUNNING", "oak", "ann", "2026-11-21 15:28:01", ""],
]


def drawn(width: int, titles: list[str] = TITLES, rows: list[list[object]] = ROWS) -> list[str]:
    into = io.StringIO()
    Console(file=into, width=width, markup=False, emoji=False, highlight=False).print(printer.table(titles, rows))
    return into.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_what_is_told_is_whole_and_in_the_terminal(width: int) -> None:
    lines = drawn(width)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= width
    assert len(re.findall(rf"^{ID} ", text, re.MULTILINE)) == 2
    assert len(re.findall(TIME, text)) == 2
    assert "WAITING" in text
    assert set(re.findall(r"[\w-]+(?!\w*…)", WHY)) <= set(text.split())
    assert " ".join(text.split()).count("no sooner than tomorrow") == 1 or width == 120


def test_a_column_without_room_stands_below_and_nothing_stands_below_of_nothing() -> None:
    assert drawn(80)[3].startswith("    no sooner") or drawn(80)[3].startswith("    no worker")
    assert [line.split()[0] for line in drawn(80, rows=ROWS[1:])] == ["JOB", ID]


@given(st.dictionaries(st.text(max_size=9), st.text(max_size=90), max_size=4), st.integers(40, 200))
def test_no_line_of_facts_ends_with_blanks_and_all_is_there(pairs: dict[str, str], width: int) -> None:
    into = io.StringIO()
    Console(file=into, width=width, markup=False, emoji=False, highlight=False).print(printer.facts(pairs))
    lines = into.getvalue().split("\n")
    assert [line for line in lines if line != line.rstrip(" ")] == []
    shown = "".join("".join(lines).split())
    assert len(shown) == len("".join("".join(map(printer.clean, (*pairs, *pairs.values()))).split()))


def test_an_id_is_whole_in_a_terminal_that_is_narrower(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    printer.console().print(printer.table(["ID", "STATE"], [[ID, "WAITING"]]))
    assert capsys.readouterr().out.splitlines()[1] == f"{ID}  WAITING"


def test_words_are_cut_with_an_ellipsis_and_not_broken() -> None:
    assert drawn(20, ["A", "B"], [["x", "y" * 40]])[1] == "x  " + "y" * 16 + "…"


@given(
    st.lists(st.tuples(st.integers(1, 90), st.sampled_from([FREE, KEPT, WHOLE])), min_size=1, max_size=9),
    st.integers(20, 220),
)
def test_widths_fit_unless_what_is_whole_does_not(columns: list[tuple[int, int]], room: int) -> None:
    natural, ranks = [width for width, _ in columns], [rank for _, rank in columns]
    widths = fitted(natural, ranks, room)
    assert len(natural) - len(widths) in (0, 1)
    assert all(width == most for width, (most, rank) in zip(widths, columns, strict=False) if rank == WHOLE)
    least = [
        most if rank == WHOLE else min(most, 2 if k < len(columns) - 1 else 16)
        for k, (most, rank) in enumerate(columns)
    ]
    if sum(least) + 2 * (len(columns) - 1) <= room:
        assert sum(widths) + 2 * (len(widths) - 1) <= room


def test_lists_at_80_columns(shell: Shell) -> None:
    name = "quarterly-sums-of-the-department"
    words = ("--name", name, "--requestor", "annabelle-of-the-water-works", "--", "true")
    job = shell("submit", "--parsable", *words).stdout.strip()
    token = shell.json(
        "token", "mint", "--cluster", "oak", "--requestor", "annabelle", "--expires", "2999-01-01T12:00:00Z"
    )
    shown = {
        "jobs": (shell("jobs", "--all", COLUMNS="80").stdout, rf"^{job} .* (WAITING|RUNNING|COMPLETED) "),
        "clusters": (shell("cluster", "list", COLUMNS="80").stdout, r"^oak +up +2/2 "),
        "tokens": (shell("token", "list", COLUMNS="80").stdout, rf"^{token['id']} +token .* 2999-01-01 \d\d:\d\d "),
        "workers": (
            shell("worker", "list", "--cluster", "oak", COLUMNS="80").stdout,
            rf"^n0 +READY +{TIME} +0 +core 4",
        ),
    }
    for what, (text, row) in shown.items():
        assert re.search(row, text, re.MULTILINE), (what, text)
        assert max(map(len, text.splitlines())) <= 80, (what, text)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (7.776e6, "7776000"),
        (1795270000.25, "1795270000.25"),
        (0.1 + 0.2, "0.3"),
        (1e-9, "1e-09"),
        (float("inf"), "inf"),
    ],
)
def test_numbers_are_written_in_full(number: float, text: str) -> None:
    assert printer.words(number) == text


LISTS = [
    *("jobs --all", "history", "nodes", "cluster list", "worker list --cluster oak", "token list"),
    *("reserve list --cluster oak", "scheduler changes oak"),
]


@pytest.mark.parametrize("command", LISTS)
def test_headers_of_every_list_are_whole_and_a_short_id_is_taken(shell: Shell, command: str) -> None:
    made = shell.json("submit", "-n", "1", "--", "true")["id"]
    titles = shell(*command.split(), COLUMNS="500").stdout.partition("\n")[0].split()
    for width in ("80", "200"):
        lines = shell(*command.split(), COLUMNS=width).stdout.splitlines()
        first = lines[0].split()
        assert first, command
        assert max(map(len, lines)) <= int(width)
        assert first == titles[: len(first)], width  # the last may be below its row, or left out of sacct's columns
    assert shell.json("job", "show", made[:22])["id"] == made


def test_history_leaves_columns_out_where_there_is_no_room_unless_they_are_named(shell: Shell) -> None:
    made = shell.json("submit", "--wait", "-n", "1", "--name", "n" * 60, "--", "true")["id"]
    titles = ["JOBID", "JOBNAME", "USER", "CLUSTER", "STATE", "EXITCODE", "ELAPSED", "NNODES", "END"]
    for width, shown in (("60", titles[:-2]), ("80", titles[:-1]), ("110", titles)):
        head, row, *_ = shell("history", "--job", made, COLUMNS=width).stdout.splitlines()
        assert head.split() == shown
        assert len(row) <= int(width)
    named = shell("history", "--format", "JobID,State,Start,End,Submit", COLUMNS="80").stdout.splitlines()[0]
    assert named.split() == ["JOBID", "STATE", "START", "END", "SUBMIT"]


def titles_in_the_source() -> list[list[str]]:
    """Return the titles of every table that a command draws, as they are written in its source."""
    results = []
    for path in sorted((ROOT / "rainbow" / "cli").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            words = [getattr(one, "value", None) for one in node.elts] if isinstance(node, ast.List) else []
            if len(words) > 1 and all(
                isinstance(word, str) and word[:1].isupper() and word.upper() == word for word in words
            ):
                results.append(words)
    return results


def test_titles_of_every_table_have_room_in_80_columns() -> None:
    results = titles_in_the_source()
    assert len(results) > 20
    for titles in results:
        rows = [["x" * 12, *("x" * 40 for _ in titles[1:])]]
        lines = drawn(80, titles, rows)
        head = lines[0].split()
        assert head == " ".join(titles).split()[: len(head)], titles
        assert max(map(len, lines)) <= 80, titles
