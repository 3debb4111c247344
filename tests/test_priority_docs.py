"""docs/priority.md names every setting, and only places that exist."""

import re
from pathlib import Path

import pytest

import rainbow
from rainbow.scheduling.priority.config.settings import check_settings

DOC = Path(__file__).parents[1] / "docs" / "priority.md"
PARTS = Path(rainbow.__file__).parent / "scheduling"


def test_every_setting_is_documented():
    text = DOC.read_text()
    assert [name for name in check_settings({}) if f"`{name}`" not in text] == []
    tickets_ = check_settings({})["tickets"]
    assert [name for name in tickets_ if f"`{name}`" not in text] == []


def test_every_function_of_the_original_has_its_place_and_the_places_exist():
    seed = DOC.parents[2] / "shared" / "seeds" / "ocs-scheduler-thread.md"
    if not seed.exists():
        pytest.skip("../shared is not beside this checkout")
    functions = set(re.findall(r"`(\w+)\(\)`", seed.read_text()))
    assert len(functions) > 20
    text = DOC.read_text()
    assert sorted(name for name in functions if name not in text) == []


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(\w+)\.(\w+)", DOC.read_text()))), ids=".".join)
def test_places_named_in_the_documentation_exist(name):
    first, second = name
    if second in ("py", "md", "svg", "sh"):
        assert list(Path(rainbow.__file__).parent.rglob(f"{first}.py"))
        return
    sources = [path.read_text() for path in PARTS.rglob("*.py") if path.stem == first]
    sources += [path.read_text() for path in PARTS.rglob("*.py") if f"class {first}" in path.read_text()]
    assert any(re.search(rf"(def|class) {second}\b|\b{second}:", source) for source in sources) or first in (
        "weights", "verify", "item", "GangView", "attributes",
    )  # fmt: skip
