"""The shape of the code holds: imports go down the floors of docs/design/floors.json, and the pure part is pure."""

import json
import re
from pathlib import Path

import pytest

from tests.support import architecture
from tests.support.architecture import Code, Floors

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def code():
    return Code(ROOT)


@pytest.fixture(scope="module")
def floors():
    return Floors(ROOT / "docs" / "design" / "floors.json")


def test_imports_go_down_the_floors(code, floors):
    assert list(architecture.uphill(code, floors)) == []


def test_every_part_has_its_floor(code, floors):
    assert list(architecture.without_floor(code, floors)) == []
    assert floors.parts <= architecture.MOST_PARTS


def test_nothing_is_imported_in_a_ring(code):
    assert list(architecture.knots(code)) == []


def test_a_file_holds_one_idea(code):
    assert list(architecture.sizes(code)) == []


def test_a_file_is_named_by_a_noun(code):
    assert list(architecture.participles(code)) == []


def test_the_pure_part_is_pure(code):
    assert list(architecture.impurities(code)) == []


def test_migrations_are_one_chain():
    """Two that are made at the same time have the same number; then no store opens."""
    folder = ROOT / "rainbow" / "store" / "migrations" / "versions"
    texts = [path.read_text() for path in sorted(folder.glob("[0-9]*.py"))]
    revisions = [re.search(r'^revision = "(\w+)"', text, re.M)[1] for text in texts]
    before = [(re.search(r'^down_revision = "(\w+)"', text, re.M) or [None, None])[1] for text in texts]
    assert before == [None, *revisions[:-1]]


def test_nothing_is_keyed_by_the_address_of_an_object(code):
    assert list(architecture.keyed_by_address(code)) == []


def test_files_beside_the_package_hold_one_idea_each():
    files = [path for folder in ("tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    assert [str(path) for path in files if len(path.read_text().splitlines()) > architecture.MOST_LINES] == []


FILES = {
    "": "",
    "low/": "",
    "low/one.py": "X = 1\n",
    "low/two.py": "from rainbow.low.one import X\n",
    "high/": "from rainbow.high.verb import act\n",
    "high/verb.py": "from rainbow.low.two import X\n",
}
FLOORS = {"rainbow": [["low"], ["high"]], "rainbow/low": [["one"], ["two"]], "rainbow/high": [["verb"]]}
LONG = "def long():\n" + "    pass\n" * 60


@pytest.fixture
def house(tmp_path):
    """A small house that is in order; call it with files to change."""

    def build(changes, floors=FLOORS):
        for name, text in {**FILES, **changes}.items():
            path = tmp_path / "rainbow" / (f"{name}__init__.py" if name == "" or name.endswith("/") else name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (tmp_path / "floors.json").write_text(json.dumps(floors))
        return Code(tmp_path), Floors(tmp_path / "floors.json")

    return build


WRONG = [
    ("uphill", {"low/one.py": "from rainbow.low.two import Y\n"}, "one imports rainbow.low.two"),
    ("uphill", {"low/one.py": "def f():\n    from rainbow.high import act\n"}, "low imports rainbow.high.verb"),
    ("uphill", {"low/one.py": "if TYPE_CHECKING:\n    from ..high.verb import act\n"}, "low imports rainbow.high"),
    ("uphill", {"low/": "Y = 1\n", "low/one.py": "from rainbow.low import Y\n"}, "rainbow/low/__init__.py defines"),
    ("without_floor", {"low/three.py": ""}, "rainbow/low/three is on no floor"),
    ("knots", {"low/one.py": "from rainbow.low.two import Y\n"}, "files: rainbow.low.one, rainbow.low.two import"),
    ("knots", {"low/one.py": "from rainbow.high import act\n"}, "rainbow: high, low import each other"),
    ("sizes", {"low/one.py": "X = 1\n" * 501}, "one.py has 501 lines"),
    ("sizes", {}, "rainbow/low/one.py has 1 lines, and rainbow.low.two alone imports it"),
    ("sizes", {"low/one.py": LONG}, "long has 61 lines"),
    ("sizes", {f"low/part{k}.py": "" for k in range(15)}, "rainbow/low has 17 files"),
    ("participles", {"low/placed.py": ""}, "rainbow/low/placed.py"),
    ("participles", {"low/re_reading.py": ""}, "rainbow/low/re_reading.py"),
    ("impurities", {"jobspec/clock.py": "from time import time\n"}, "imports time"),
    ("impurities", {"matching/chance.py": "from random import choice\n"}, "imports random"),
    ("impurities", {"selection/day.py": "from datetime import date\nTODAY = date.today()\n"}, "reads the clock"),
    ("keyed_by_address", {"low/one.py": "def key(thing):\n    return id(thing)\n"}, "low/one.py:2"),
    ("impurities", {"agent/loop.py": "from rainbow.service import Service\n"}, "rainbow.service"),
]


@pytest.mark.parametrize(("check", "changes", "fault"), WRONG, ids=[f"{w[0]}-{k}" for k, w in enumerate(WRONG)])
def test_what_is_wrong_is_noticed(check, changes, fault, house):
    code, floors = house(changes)
    inputs = (code, floors) if check in ("uphill", "without_floor") else (code,)
    assert any(fault in result for result in getattr(architecture, check)(*inputs))


@pytest.mark.parametrize("check", [architecture.uphill, architecture.without_floor, architecture.knots])
def test_a_house_in_order_has_no_faults(check, house):
    code, floors = house({})
    assert list(check(*((code, floors) if check is not architecture.knots else (code,)))) == []


def test_a_part_that_is_gone_is_noticed(house):
    code, floors = house({}, {**FLOORS, "rainbow/low": [["one"], ["two", "gone"]]})
    assert list(architecture.without_floor(code, floors)) == ["rainbow/low/gone has a floor and is not there"]


def test_migrations_are_numbered_one_after_the_other():
    """Two of the same number leave two heads, and no store opens any more."""
    files = sorted((ROOT / "rainbow" / "store" / "migrations" / "versions").glob("[0-9]*.py"))
    answers = [
        re.findall(r'^(?:down_)?revision = (?:"(\d+)"|None)', path.read_text(), re.MULTILINE) for path in files
    ]
    numbers = [path.name[:4] for path in files]
    assert numbers == [f"{k + 1:04}" for k in range(len(files))]
    assert answers == [[number, before] for number, before in zip(numbers, ["", *numbers], strict=False)]


def test_no_folder_of_tests_is_a_heap():
    folders = {path.parent for path in (ROOT / "tests").rglob("*.py")}
    counts = {str(folder.relative_to(ROOT)): len([*folder.glob("*.py")]) for folder in folders}
    assert {name: count for name, count in counts.items() if count > 40} == {}
