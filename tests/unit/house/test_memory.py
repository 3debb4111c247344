"""What the service remembers between two calls is declared, and forgotten where it must be."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rainbow.service.core import memory
from rainbow.service.core.memory import DECLARED, IMMUTABLE, VERSION, Table, age
from rainbow.store.engine import Store
from tests.support.stores import store

__all__ = ["store"]  # fixtures
SERVICE = Path(__file__).parents[3] / "rainbow" / "service"
CACHES = {"LruCache", "lru_cache", "cache", "WeakKeyDictionary", "WeakValueDictionary", "TTLCache"}
MUTABLE = {"dict", "list", "set", "deque", "defaultdict", "Counter", "OrderedDict", "LruCache"}
# of a module, and no memory of the store: what is written to a metric, and how many requests wait
OF_MODULES = {
    "counters.py": {"_gauges", "_metrics"},
    "event_stream.py": {"_open"},
    "memory.py": {"DECLARED", "SHARED"},
}
# made for one call, or part of a picture that is declared and bounds them
OF_PICTURES = {"matcher_cache.py", "match_cache.py", "candidates.py", "service.py"}


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(SERVICE.rglob("*.py")):
        yield path, ast.parse(path.read_text())


def name_of(node: ast.AST) -> str:
    if isinstance(node, ast.Subscript):
        return name_of(node.value)
    if isinstance(node, ast.Call):
        return name_of(node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def test_nothing_is_cached_beside_the_registry() -> None:
    results = [
        f"{path.relative_to(SERVICE)}:{node.lineno} {name_of(node)}"
        for path, tree in modules()
        for node in ast.walk(tree)
        if path.name not in OF_PICTURES | {"memory.py"} and isinstance(node, ast.Call | ast.FunctionDef)
        for each in ([node] if isinstance(node, ast.Call) else node.decorator_list)
        if name_of(each) in CACHES
    ]
    assert results == []


def test_no_module_holds_what_changes() -> None:
    results = []
    for path, tree in modules():
        for node in tree.body:
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            made = isinstance(node.value, ast.Call) and name_of(node.value) in MUTABLE
            is_mutable = made or isinstance(node.value, ast.Dict | ast.List | ast.Set)
            name = name_of(target)
            if is_mutable and not name.isupper() and name not in OF_MODULES.get(path.name, ("__all__",)):
                results.append(f"{path.relative_to(SERVICE)}:{node.lineno} {name}")
    assert results == []


def test_each_state_that_is_asked_for_is_declared() -> None:
    requests = {
        name_of(node.args[0])
        for _, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and name_of(node) == "state" and len(node.args) == 1
    }
    declared = {cls.__name__ for cls in DECLARED}
    assert requests - declared - {"kind", "connection"} == set()


def test_each_memory_says_its_size_and_why_it_is_true() -> None:
    names = [one.name for one in DECLARED.values()]
    assert len(set(names)) == len(names)
    assert all(one.most and one.why and one.kind in ("table", "picture", "place") for one in DECLARED.values())


class Ages(Table[str, int], name="test-ages", most=2, valid=age(10), key="name"):
    """Two values of ten seconds."""


class Versions(Table[str, int], name="test-versions", most=4, valid=VERSION, key="name"):
    """Values of a version."""


class Weights(Table[str, int], name="test-weights", most=10, valid=IMMUTABLE, key="name"):
    """Ten in all."""


@pytest.fixture(autouse=True)
def remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "IS_OFF", False)


def test_values_are_used_while_they_are_true() -> None:
    ages, versions, weights = Ages(), Versions(), Weights()
    ages.put("a", 1, 100.0)
    assert [ages.get("a", now) for now in (100.0, 109.0, 110.0, 99.0)] == [1, 1, None, None]
    ages.put("b", 2, 100.0)
    ages.get("a", 100.0)
    ages.put("c", 3, 100.0)
    assert [ages.get(key, 100.0) for key in "abc"] == [1, None, 3]
    versions.put("a", 1, 7)
    assert [versions.get("a", mark) for mark in (7, 8)] == [1, None]
    for name in "abcd":
        weights.put(name, 1, weight=4)
    assert [weights.get(name) for name in "abcd"] == [None, None, 1, 1]
    assert (weights.hits, weights.misses) == (2, 2)


def test_off_forgets_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "IS_OFF", True)
    weights = Weights()
    assert weights.put("a", 1) == 1
    assert weights.get("a") is None


def test_what_a_transaction_remembers_is_its_own_until_it_commits(store: Store) -> None:
    weights, seen = Weights(), list[Any]()

    def part(connection: Any) -> None:
        weights.put("a", 1)
        seen.append((weights.get("a"), len(weights)))

    def refused(connection: Any) -> None:
        weights.put("b", 2)
        raise KeyError("b")

    store.all_together([part, refused])
    assert seen == [(1, 0)]
    assert (weights.get("a"), weights.get("b")) == (1, None)
