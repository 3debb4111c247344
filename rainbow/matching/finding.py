"""What is found for one request on one root: yes or no at once, all else when it is looked at.

quick check ─► columns over kinds ─► search on the reduced layout, where siblings may collide
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rainbow.lazy import cached_property
from rainbow.matching.answer import totals_of
from rainbow.matching.apart import cannot_collide
from rainbow.matching.batch import LARGEST
from rainbow.matching.catalogue import batch_of
from rainbow.matching.copies import Standing, closed_form, successive, totals_standing
from rainbow.matching.explain import shortfall
from rainbow.matching.placed import Placed
from rainbow.matching.reduced import Reach, Reduced
from rainbow.matching.search import BUDGET, Allowance
from rainbow.matching.standing import capacities
from rainbow.matching.taken import Taken
from rainbow.matching.tallied import Tallied
from rainbow.matching.totals import quick_check
from rainbow.matching.verdict import Answer, Reason
from rainbow.matching.walk import MOST_LOOKED_AT, search, taken_copies

if TYPE_CHECKING:
    from collections.abc import Callable

    from rainbow.graph import Cluster
    from rainbow.jobspec import Resource
    from rainbow.matching.answer import Piece
    from rainbow.matching.question import Question
    from rainbow.matching.rooted import Rooted
    from rainbow.matching.verdict import Take


MANY = 64  # kinds below a root that are worth arrays


class Found(NamedTuple):
    """A copy of the job on a reduced layout, and what it is made of."""

    take: Take
    pieces: list[Piece]
    reduced: Reduced
    taken: Taken


class Trial:
    """One variant of a request on one root; `refusal` says why not, if not.

    Thousands are remembered: counts and layouts are made again when they are wanted, and not kept.
    """

    def __init__(
        self,
        question: Question,
        rooted: Rooted,
        resources: tuple[Resource, ...],
        allowance: Allowance | None,
        fits: bool = False,
    ) -> None:
        self.question = question
        self.rooted = rooted
        self.resources = resources
        self.apart = cannot_collide(resources, rooted)
        self.placed: Placed | None = None
        self.refusal = None if fits and self.apart else self._refusal(allowance)

    def tallied(self) -> Tallied:
        """Count what the root offers to the parts of the variant."""
        return Tallied(self.rooted, self.resources, self.question.satisfied(self.rooted), self.question.passes)

    def _refusal(self, allowance: Allowance | None) -> Callable[[], Reason | None] | None:
        reason = quick_check(self.resources, self.rooted.totals, self.rooted)
        if reason is None and not self._is_enough():
            return lambda: shortfall(self.resources, self.tallied())
        if reason is None and not self.apart:
            reason = self._place(allowance)
        return (lambda: reason) if reason else None

    def _is_enough(self) -> bool:
        """Tell whether the root offers enough for each part; many kinds are counted as arrays."""
        if len(self.rooted.closure) > MANY and self.rooted.largest < LARGEST:
            holds = batch_of((self.rooted,)).holds(self.question, self.resources)
            if holds is not None:
                return bool(holds[0])
        tallied = self.tallied()
        return all(tallied.units(r) >= r.count.min for r in self.resources)

    def _place(self, allowance: Allowance | None = None) -> Reason | None:
        """Place one copy of the job, or say why there is none."""
        found = self._search(1, allowance)
        if isinstance(found, Reason):
            return found
        self.placed = Placed.of(found.take, found.reduced)
        return None

    def _search(self, copies: int, allowance: Allowance | None = None) -> Found | Reason:
        """Place one copy of the job on a layout that has room for so many."""
        passes = self.question.passes
        reduced = Reduced(self.rooted, Reach(self.resources, self.rooted, copies, passes is not None))
        taken = Taken(reduced, [i for i in reduced.workers if passes and not passes(reduced.kind_at[i])])
        found = search(self.resources, reduced, taken, None if self.apart else BUDGET, allowance)
        return found if isinstance(found, Reason) else Found(*found, reduced, taken)

    def place(self) -> Placed:
        """Return one copy of the job, where it is known to fit."""
        reason = None if self.placed else self._place()
        if self.placed is None:
            raise RuntimeError(f"counted as fitting, but: {reason.text if reason else ''}")
        return self.placed

    def copies(self) -> tuple[int, bool]:
        """Count how many copies fit: in closed form where there is one, else by taking them."""
        form = self._form()
        if isinstance(form, Standing):
            runs = capacities(form, self.tallied().tally())
            if runs is not None:
                return successive(runs, form.units), True
        elif form is not None:
            return self.tallied().units(form) // form.count.min, True
        return self._taken_copies()

    def _form(self) -> Resource | Standing | None:
        return closed_form(self.resources, self.rooted)

    def totals(self) -> dict[str, int]:
        """Sum what one copy takes: in closed form where it stands on whole workers, else by placing it."""
        form = self._form() if self.apart and self.placed is None else None
        if isinstance(form, Standing) and (sums := totals_standing(form, self.rooted)) is not None:
            return sums
        return totals_of(self.place().take, self.rooted.worker_type)

    def _taken_copies(self) -> tuple[int, bool]:
        found = self._search(2 + MOST_LOOKED_AT // self.rooted.kind.vertices)
        if isinstance(found, Reason):
            return 1, False
        return taken_copies(self.resources, found.reduced, found.taken, found.pieces)


class Finding:
    """One request on one root: the first variant that fits decides; `fits`: its only variant is known to."""

    def __init__(
        self, question: Question, rooted: Rooted, allowance: Allowance | None = None, fits: bool = False
    ) -> None:
        self.trials: list[Trial] = []
        for resources in question.request.variants:
            self.trials.append(Trial(question, rooted, resources, allowance, fits))
            if self.trials[-1].refusal is None:
                break
        self.matched = self.trials[-1].refusal is None
        # what was given up because others of the query had used up its steps is not known for good
        self.holds_good = allowance is None or allowance.left > 0

    @cached_property
    def answer(self) -> Answer:
        """The answer for every cluster with the root; what is held is each one's own, see `take`."""
        trial = self.trials[-1]
        if not self.matched:
            refusal = self.trials[0].refusal
            return Answer(reason=refusal() if refusal else None)
        fits, exact = trial.copies()
        return Answer(fits, exact, trial.totals())

    def take(self, cluster: Cluster) -> Take | None:
        """Return what one copy would hold of one cluster with the root."""
        return self.trials[-1].place().inside(cluster) if self.matched else None
