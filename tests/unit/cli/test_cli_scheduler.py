"""`rainbow scheduler show` draws figures whose lines are alike as tables, whatever the policy."""

import io
import re

import pytest
from rich.console import Console

from rainbow.cli.commands.scheduler import draw_scheduling
from rainbow.scheduling import FairShare
from tests.support.policies.small_clusters import EAGER, FIXED, cluster, job


def drawn(figures):
    out = io.StringIO()
    shown = {"policy": "p", "settings": {}, "figures": figures, "fault": None}
    draw_scheduling(Console(file=out, width=200), shown)
    return out.getvalue()


def test_figures_of_fair_share_are_tables_by_class_user_job_and_machine():
    there = cluster([4, 4], {"c": EAGER}, [job(1, "ann", "c"), job(2, "bob", "c", 2)])
    there.step()
    text = drawn(FairShare().plan(there.view()).figures)
    assert re.search(r"^users +jobs +deserved +counted +held", text, re.MULTILINE)
    assert re.search(r"^ann +1 +4 +4 +4", text, re.MULTILINE)
    assert re.search(r"^m0 +top +4 +4 ", text, re.MULTILINE)
    assert re.search(r"^nodepools +machines +open +quanta +used +free +largest_free", text, re.MULTILINE)
    assert re.search(r"^top +2 +2 +8 +8 +0 +0", text, re.MULTILINE)


def test_figures_say_why_every_job_below_its_cap_has_no_more():
    jobs = [job(1, "ann", "c", 3), job(2, "bob", "c", 9), job(3, "ann", "f"), job(4, "eve", "c", max_shares=1)]
    there = cluster([4, 4], {"c": EAGER, "f": {**FIXED, "nodepool": "top"}}, jobs, user_allotment_gb={"ann": 1})
    there.step()
    figures = FairShare().plan(there.view()).figures
    below = {name: one["reason"] for name, one in figures["jobs"].items() if one["held"] < one["cap"]}
    assert below == {"j0001": "fair-share", "j0002": "no-single-host", "j0003": "allotment"}
    answer = drawn(figures)
    assert all(re.search(rf"^{name} .* {why} *$", answer, re.MULTILINE) for name, why in below.items())


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
