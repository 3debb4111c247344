"""One of a thing is told as one."""

import pytest

from rainbow.cli.output.decisions import often
from rainbow.scheduling.fair_share.policy import TEXTS, _text
from rainbow.text import some


@pytest.mark.parametrize(
    ("count", "words", "told"),
    [(1, ["job"], "1 job"), (0, ["job"], "0 jobs"), (3, ["is", "are"], "3 are"), (1, ["is", "are"], "1 is")],
)
def test_counts_agree_with_their_nouns(count, words, told):
    assert some(count, *words) == told


def test_what_fits_once_is_not_told_as_times():
    assert often({"fits": 1, "totals": {"nodes": 2}}) == "once: nodes 2"
    assert often({"fits": 2, "totals": {"nodes": 2}}) == "2 times, using nodes 2 each time"
    assert often({"fits": 1, "fits_exact": False, "totals": {"nodes": 2}}) == "≥ 1 times, using nodes 2 each time"


FACTS = {
    "user": "ann",
    "class": "a",
    "nodepool": "p",
    "held": 1,
    "allotment": 1,
    "least": 1,
    "order": 1,
    "counted": 1,
    "since": "1970-01-01T00:00:00Z",
}


@pytest.mark.parametrize("reason", TEXTS)
def test_reasons_of_fair_share_count_in_english(reason):
    said = _text(reason, {**FACTS, "cap": 1})
    assert "1 shares" not in said
    assert "1 are" not in said
