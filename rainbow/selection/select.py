"""The entry to selection, the registry of selectors, and the selector `random`."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, Any

from rainbow.errors import SelectionError
from rainbow.matching import candidates_of, is_in_order, names_of
from rainbow.plugins import Registry
from rainbow.selection.choice import Choice, DeclaresReads, Scalar, Selector, Step
from rainbow.selection.constraint import ConstraintSelector
from rainbow.text import natural

if TYPE_CHECKING:
    from rainbow.jobspec import Request
    from rainbow.matching import Verdict


selectors: Registry[Selector] = Registry("rainbow.selectors")
selectors.add("constraint")(ConstraintSelector())


class RandomSelector:
    """Draws uniformly from all candidates."""

    def check(self, options: Mapping[str, Any]) -> Sequence[str]:
        """Warn of every option: there are none."""
        return [f"random takes no options: {name!s:.60} is not used" for name in options]

    def reads(self, options: Mapping[str, Any]) -> Collection[str]:
        """Name no variable."""
        return ()

    def select(
        self,
        candidates: Sequence[Verdict],
        states: Mapping[str, Mapping[str, Scalar]],
        parameters: Mapping[str, Any],
        options: Mapping[str, Any],
        rng: random.Random,
    ) -> Choice:
        """Draw one of the candidates."""
        if not candidates:
            return Choice(None, NAME, reason="no cluster matches")
        chosen = candidates[rng.randrange(len(candidates))].cluster
        among = len(candidates)
        note = f"random of {among}"
        return Choice(chosen, NAME, (Step(0, "select", "random", (chosen,), note=note, among=among),), note)


selectors.add("random")(RandomSelector())


def select(
    request: Request,
    verdicts: Sequence[Verdict],
    states: Mapping[str, Mapping[str, Scalar]],
    selector: str = "random",
    options: Mapping[str, Any] | None = None,
    seed: int | str = 0,
) -> Choice:
    """Choose one of the clusters that match, or none with the reason.

    `states` are {cluster: {variable: value}}. `seed` is the only chance there is: the same arguments give an
    equal Choice. Raises SelectionError for options that cannot be used, UnknownPlugin for an unknown selector.

    >>> from rainbow.jobspec import Request
    >>> from rainbow.matching import Verdict
    >>> verdicts = [Verdict("alpha", True, totals={"nodes": 2}), Verdict("bravo", False)]
    >>> select(Request(((),), ()), verdicts, states={}).cluster
    'alpha'
    """
    plugin = selectors.get(selector)
    options = {} if options is None else options
    check_options(selector, options)
    candidates = candidates_of(verdicts)
    if not candidates:
        return Choice(None, selector, reason="no cluster matches")
    rng = Random(seed)  # noqa: S311  # to be replayed, not to be secret
    ordered = candidates if is_in_order(verdicts) else [candidates[at] for at in _in_order(names_of(candidates))]
    choice = plugin.select(ordered, states, request.parameters, options, rng)
    return choice if not selectors.is_installed(selector) else _checked(choice, ordered, selector)


def _checked(choice: Any, candidates: Sequence[Verdict], selector: str) -> Choice:
    """Return the choice of a third party's selector, if it is among the candidates."""
    known = {None, *names_of(candidates)}
    if isinstance(choice, Choice) and choice.cluster in known:
        return choice
    text = f"it chose {choice.cluster!r:.80}" if isinstance(choice, Choice) else f"it returned {choice!r:.80}"
    raise selectors.fault(selector, ValueError(f"{text}, which is no choice among the candidates"))


def check_options(selector: str, options: Mapping[str, Any]) -> Sequence[str]:
    """Return warnings about a selector's options; SelectionError if they cannot be used."""
    if not isinstance(options, Mapping):
        raise SelectionError("the options of a selector must be a mapping", pointer="")
    return selectors.get(selector).check(options)


def reads(selector: str, options: Mapping[str, Any], variable: str) -> bool:
    """Return whether a decision may read a variable: expensive values are left out where no rule reads them.

    >>> reads("constraint", {"priorities": [{"priority": 1, "steps": [{"filter": "cost > 1"}]}]}, "state.age")
    False
    """
    return bool(read_of(selector, options, [variable]))


def read_of(selector: str, options: Mapping[str, Any], variables: Collection[str]) -> list[str]:
    """Return which of these variables a decision may read."""
    plugin = selectors.get(selector)
    known = plugin.reads(options) if isinstance(plugin, DeclaresReads) else variables
    return [name for name in variables if name in known]


def reads_states(selector: str) -> bool:
    """Return whether a decision may read any cluster's state."""
    return not isinstance(selectors.get(selector), RandomSelector)


def matched_read(selector: str, options: Mapping[str, Any]) -> list[str] | None:
    """Return which `matched.*` a decision of ours may read, without the prefix; None: it may read anything."""
    plugin = selectors.get(selector)
    if selectors.is_installed(selector) or not isinstance(plugin, DeclaresReads):
        return None
    return sorted(name.removeprefix(OF_MATCH) for name in plugin.reads(options) if name.startswith(OF_MATCH))


@lru_cache(maxsize=16)  # the same clusters come again with every job
def _in_order(names: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(sorted(range(len(names)), key=lambda at: natural(names[at])))


NAME = "random"
OF_MATCH = "matched."
