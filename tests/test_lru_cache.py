"""A list in which little changes holds what one made anew would hold, and knows where it differs from another."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rainbow import lru_cache
from rainbow.lru_cache import Overlay

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
    monkeypatch.setattr(lru_cache, "MOST_OTHERS", most)
    base = Overlay([object() for _ in range(SIZE)])
    lists = [(_after(base, steps), _after_plainly(base, steps)) for steps in (first, second)]
    for found, plain in lists:
        assert [*found] == plain == [found[at] for at in range(SIZE)]
        assert (len(found), [*found[some]], found[-1]) == (SIZE, plain[some], plain[-1])
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
