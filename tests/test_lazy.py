"""An attribute is worked out once, and no thread waits for another that works one out."""

from __future__ import annotations

import ast
import threading
from pathlib import Path

from rainbow.lazy import cached_property

CODE = Path(__file__).parents[1] / "rainbow"


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
    found: list[list[int]] = []
    threads = [threading.Thread(target=lambda: found.append(search.found), daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join(5)
    assert found[0] is found[1]


def test_nothing_uses_the_property_that_holds_a_lock() -> None:
    users = [
        str(path)
        for path in CODE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "functools"
        if "cached_property" in {name.name for name in node.names}
    ]
    assert not users
