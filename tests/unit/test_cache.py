"""What is worked out once is kept and no thread waits for it; an overlay is the list that it is made of."""

from __future__ import annotations

import ast
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rainbow import cache
from rainbow.cache import Overlay, cached_property

CODE = Path(__file__).parents[2] / "rainbow"


class Search:
    def __init__(self, gate: threading.Event | None = None) -> None:
        self.gate = gate
        self.asked = 0

    @cached_property
    def found(self) -> list[int]:
        """What is found."""
        self.asked += 1
        if self.gate:
            self.gate.wait(10)
        return [self.asked]


def test_value_is_worked_out_once_and_kept() -> None:
    search = Search()
    assert search.found is search.found
    assert search.asked == 1
    assert Search.found.__doc__ == "What is found."


def test_hard_search_of_one_thread_keeps_no_other_thread_waiting() -> None:
    gate = threading.Event()
    hard = Search(gate)
    thread = threading.Thread(target=lambda: hard.found, daemon=True)
    thread.start()
    while not hard.asked:
        pass
    easy: list[list[int]] = []
    other = threading.Thread(target=lambda: easy.append(Search().found), daemon=True)
    other.start()
    other.join(5)
    assert easy == [[1]], "the search of another thread was waited for"
    gate.set()
    thread.join(5)


def test_two_threads_that_ask_at_once_get_the_same_value() -> None:
    gate = threading.Event()
    search = Search(gate)
    results: list[list[int]] = []
    threads = [threading.Thread(target=lambda: results.append(search.found), daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join(5)
    assert results[0] is results[1]


def test_nothing_uses_the_property_that_holds_a_lock() -> None:
    users = [
        str(path)
        for path in CODE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "functools"
        if "cached_property" in {name.name for name in node.names}
    ]
    assert not users


SIZE = 6
changes = st.lists(st.dictionaries(st.integers(0, SIZE - 1), st.builds(object), max_size=3), max_size=8)


@given(changes, changes, st.integers(1, SIZE), st.slices(SIZE))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_overlay_is_the_list_it_stands_for(
    monkeypatch: pytest.MonkeyPatch,
    first: list[dict[int, object]],
    second: list[dict[int, object]],
    most: int,
    some: slice,
) -> None:
    monkeypatch.setattr(cache, "MOST_OTHERS", most)
    base = Overlay([object() for _ in range(SIZE)])
    lists = [(_after(base, steps), _after_plainly(base, steps)) for steps in (first, second)]
    for result, plain in lists:
        assert [*result] == plain == [result[at] for at in range(SIZE)]
        assert (len(result), [*result[some]], result[-1]) == (SIZE, plain[some], plain[-1])
    (one, plain), (other, others) = lists
    differing = [at for at in range(SIZE) if plain[at] is not others[at]]
    assert [*one.differing(other)] == [*one.differing(others)] == differing


def _after(made: Overlay[object], steps: list[dict[int, object]]) -> Overlay[object]:
    for step in steps:
        made = made.with_others(step)
    return made


def _after_plainly(base: Overlay[object], steps: list[dict[int, object]]) -> list[object]:
    whole = [*base]
    for step in steps:
        for at, one in step.items():
            whole[at] = one
    return whole
