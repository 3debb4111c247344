"""docs/priority.md and `rainbow help priority` name every setting; the founding text's functions have their place."""

import re
from pathlib import Path

import pytest
import yaml

import rainbow
from rainbow.cli.main import topics
from rainbow.scheduling.priority.config.settings import check_settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "priority.md").read_text()
PLACES = yaml.load((ROOT / "tests" / "cases" / "seeds" / "places.yaml").read_text(), yaml.CSafeLoader)["grid_engine"]
PARTS = Path(rainbow.__file__).parent / "scheduling"


def test_every_setting_is_explained_by_the_help():
    named = set(re.findall(r"[a-z_]{3,}", topics()["priority"]))
    known = check_settings({})
    assert [name for name in (*known, *known["tickets"]) if name not in named] == []


def test_settings_of_the_commonest_policies_are_taken():
    rows = re.findall(r"^\| (.*?) \| (.*) \|$", PAGE.split("| you want |")[1].split("\n\n")[0], re.M)
    assert len(rows) >= 10
    for wish, cell in rows:
        for text in re.findall(r"`([^`]+: [^`]+)`", cell):
            settings = yaml.safe_load(text.replace("{...}", "{name: all, shares: 1}"))
            assert check_settings(settings), wish


def test_every_function_of_the_original_has_its_place():
    seed = ROOT.parent / "shared" / "seeds" / "ocs-scheduler-thread.md"
    if not seed.exists():
        pytest.skip("../shared is not beside this checkout")
    functions = set(re.findall(r"`(\w+)\(\)`", seed.read_text()))
    assert len(functions) > 20
    text = str(PLACES)
    assert sorted(name for name in functions if name not in text) == []


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(\w+)\.(\w+)", str(PLACES)))), ids=".".join)
def test_places_exist(name):
    first, second = name
    if second in ("py", "md", "svg", "sh"):
        assert list(Path(rainbow.__file__).parent.rglob(f"{first}.py"))
        return
    sources = [path.read_text() for path in PARTS.rglob("*.py") if path.stem == first]
    sources += [path.read_text() for path in PARTS.rglob("*.py") if f"class {first}" in path.read_text()]
    assert any(re.search(rf"(def|class) {second}\b|\b{second}:", source) for source in sources) or first == "item"
