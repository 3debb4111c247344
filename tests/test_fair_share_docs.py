"""The page on fair shares tells what happens: its trace, its settings and its reasons are those of the code."""

import re
from pathlib import Path

import yaml

from benchmarks import sharing
from rainbow.scheduling.fair_share.checking import DEFAULTS, check_settings
from rainbow.scheduling.fair_share.classes import ALL
from rainbow.scheduling.fair_share.figures import TEXTS
from rainbow.scheduling.fair_share.nodepools import KEYS
from rainbow.scheduling.written import read_settings

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "fair-share.md").read_text()


def test_trace_and_plot_of_the_page_are_what_happens(tmp_path):
    moments = list(sharing.play(tmp_path))
    assert sharing.trace(moments) in PAGE
    assert (ROOT / "docs" / "fair-share.svg").read_text() == sharing.plot(moments)


def test_jobspec_of_the_page_is_that_of_the_trace():
    (text,) = re.findall(r"```yaml\n(version: 1.*?)```", PAGE, re.S)
    assert yaml.safe_load(text) == sharing.share_job(2, 32)


def test_every_setting_reason_and_order_of_the_page_exists_and_the_other_way_round():
    for name in (*DEFAULTS, *ALL, *KEYS, *TEXTS, "not-authorised", "no-class", "no-single-host", "preemptions"):
        assert f"`{name}`" in PAGE, name
    for why in ("shrink", "defragmentation", "reservation", "offline", "blacklisted"):
        assert f"`{why}`" in PAGE, why


def test_example_settings_of_the_page_are_taken():
    examples = re.findall(r"```yaml\n(quantum.*?)```", PAGE, re.S)
    assert examples
    for example in examples:
        assert read_settings(example, check_settings)["classes"]
