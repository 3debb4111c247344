"""The page on fair shares tells what happens: its trace, its settings and its reasons are those of the code."""

import re
from pathlib import Path

from rainbow.scheduling.fair_share.checking import DEFAULTS, check_settings, read_settings
from rainbow.scheduling.fair_share.classes import ALL
from rainbow.scheduling.fair_share.figures import TEXTS
from rainbow.scheduling.fair_share.nodepools import KEYS
from tests.small_clusters import EAGER, cluster, counts, job

PAGE = (Path(__file__).parents[1] / "docs" / "fair-share.md").read_text()


def trace(epochs=22):
    """Two users on 8 machines of order 4; the second arrives in epoch 10."""
    doubling = {**EAGER, "expand-by-doubling": True, "initialization-cap": 1}
    there = cluster([4] * 8, {"normal": doubling}, [job(1, "ann", "normal"), job(2, "bob", "normal", arrive=10)])
    yield f"{'epoch':>5} {'ann':>4} {'bob':>4}"
    for epoch in range(epochs):
        there.step()
        held = counts(there)
        ann, bob = held.get(1, 0), held.get(2, 0)
        yield f"{epoch:>5} {ann:>4} {bob:>4}  {'a' * ann}{'b' * bob}"


def test_trace_of_the_page_is_what_happens():
    assert "\n".join(trace()) in PAGE


def test_every_setting_reason_and_order_of_the_page_exists_and_the_other_way_round():
    for name in (*DEFAULTS, *ALL, *KEYS, *TEXTS, "not-authorised", "no-class", "no-single-host", "preemptions"):
        assert f"`{name}`" in PAGE, name
    for why in ("shrink", "defragmentation", "reservation", "offline", "blacklisted"):
        assert f"`{why}`" in PAGE, why


def test_example_settings_of_the_page_are_taken():
    examples = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)
    assert examples
    for example in examples:
        assert check_settings(read_settings(example))["classes"]
