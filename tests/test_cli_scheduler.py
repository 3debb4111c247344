"""`rainbow scheduler show` draws figures whose lines are alike as tables, whatever the policy."""

import io
import re

import pytest
from rich.console import Console

from rainbow.cli import scheduler
from rainbow.scheduling import FairShare
from tests.small_clusters import EAGER, cluster, job


def drawn(figures):
    out = io.StringIO()
    shown = {"policy": "p", "settings": {}, "figures": figures, "fault": None}
    scheduler._draw(Console(file=out, width=200), shown)
    return out.getvalue()


def test_figures_of_fair_share_are_tables_by_class_user_job_and_machine():
    there = cluster([4, 4], {"c": EAGER}, [job(1, "ann", "c"), job(2, "bob", "c", 2)])
    there.step()
    text = drawn(FairShare().plan(there.view()).figures)
    assert re.search(r"^users +jobs +deserved +counted +held", text, re.MULTILINE)
    assert re.search(r"^ann +1 +4 +4 +4", text, re.MULTILINE)
    assert re.search(r"^m0 +top +4 +4 ", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("figures", "line"),
    [
        ({"pools": {"default": {"percent": 100.0, "held": 3}}}, r"^default +100 +3"),
        ({"handed_over": 2}, r"^handed_over +2"),
        ({}, r"^policy +p"),
    ],
)
def test_other_figures_stay_readable(figures, line):
    assert re.search(line, drawn(figures), re.MULTILINE)
