"""The page on fair shares tells what happens: its trace, its settings and its reasons are those of the code."""

import re
from pathlib import Path

import pytest
import yaml

from benchmarks import sharing
from rainbow.cli.main import topics
from rainbow.scheduling.fair_share.policy import TEXTS
from rainbow.scheduling.fair_share.settings import ALL, KEYS, SCHEMA, check_settings
from tests.conftest import SHARED
from tests.support.settings_documents import read_settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "fair-share.md").read_text()


def test_trace_and_plot_of_the_page_are_what_happens(tmp_path):
    moments = list(sharing.play(tmp_path))
    assert sharing.trace(moments) in PAGE
    assert (ROOT / "docs" / "fair-share.svg").read_text() == sharing.plot(moments)


def test_jobspec_of_the_page_is_that_of_the_trace():
    (text,) = re.findall(r"```yaml\n(version: 1.*?)```", PAGE, re.S)
    assert yaml.safe_load(text) == sharing.share_job(2, 32)


def test_every_setting_reason_and_order_of_the_page_exists_and_the_other_way_round():
    for name in (*TEXTS, "not-authorised", "no-class", "no-single-host", "preemptions"):
        assert f"`{name}`" in PAGE, name
    explained = set(re.findall(r"[a-z_]{3,}", topics()["fair_share"]))
    assert {*SCHEMA, *ALL, *KEYS} <= explained
    for why in ("shrink", "defragmentation", "reservation", "offline", "blacklisted"):
        assert f"`{why}`" in PAGE, why


def test_example_settings_of_the_page_are_taken():
    examples = re.findall(r"^cat > \S+\.yaml <<'EOF'\n(quantum.*?)^EOF", PAGE, re.S | re.M)
    assert examples
    for example in examples:
        assert read_settings(example, check_settings)["classes"]


# no words of the trade, or misspelt
ORDINARY = {"already", "apportionqsares", "nodepoolschedler", "nodpoolscheduler"}


def words_of(tex):
    """Every word the text emphasises, every item it explains and every section it has, without arguments."""
    text = re.sub(r"(?m)^\s*%.*$", "", tex)
    result = re.findall(r"\{\\em\s+([^{}]+)\}|\\item\[([^\]]+)\]|\\(?:sub)*section\{([^{}]+)\}", text)
    for word in {part for parts in result for part in parts if part}:
        for name in re.split(r"\(\),", word):
            plain = re.sub(r"\(.*\)|\[O\]|\.java$|^.*\.(?=\w+\()|\s+Jobs$", "", name.replace("\\_", "_"))
            yield re.sub(r"[^a-z0-9]", "", plain.lower())


def test_every_word_of_the_text_has_its_place():
    if not SHARED.exists():
        pytest.skip("the shared texts are not beside this repository")
    tex = (SHARED / "seeds/ducc-resource-manager.tex").read_text()
    places = yaml.load((ROOT / "tests" / "cases" / "seeds" / "places.yaml").read_text(), yaml.CSafeLoader)["ducc"]
    page = re.sub(r"[^a-z0-9]", "", f"{places}{PAGE}{topics()['fair_share']}".lower())
    words = set(words_of(tex)) - ORDINARY
    assert len(words) > 100
    assert sorted(word for word in words if word not in page and word.removesuffix("s") not in page) == []
