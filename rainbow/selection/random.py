"""The plug-in `random`: one of the candidates, each as likely as the others. It reads no state."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rainbow.selection.choice import Choice, Scalar, Step

if TYPE_CHECKING:
    from rainbow.matching import Verdict

NAME = "random"


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
        note = f"random of {len(candidates)}"
        return Choice(chosen, NAME, (Step(0, "select", "random", (chosen,), note=note),), note)
