"""What is found for one request on one root: yes or no at once, all else when it is looked at.

quick check ─► columns over kinds ─► search on the reduced layout, where siblings may collide
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

from rainbow.matching.answer import totals_of
from rainbow.matching.apart import cannot_collide
from rainbow.matching.batch import LARGEST
from rainbow.matching.catalogue import batch_of
from rainbow.matching.copies import Standing, closed_form, successive
from rainbow.matching.explain import shortfall
from rainbow.matching.reduced import Reach, Reduced
from rainbow.matching.search import BUDGET, Allowance
from rainbow.matching.slots import parts_above
from rainbow.matching.standing import capacities
from rainbow.matching.taken import Taken
from rainbow.matching.tallied import Tallied
from rainbow.matching.totals import quick_check
from rainbow.matching.verdict import Answer, Reason, Take
from rainbow.matching.walk import MOST_LOOKED_AT, search, taken_copies

if TYPE_CHECKING:
    from collections.abc import Callable

    from rainbow.graph import Cluster
    from rainbow.jobspec import Resource
    from rainbow.matching.answer import Piece
    from rainbow.matching.question import Question
    from rainbow.matching.rooted import Rooted


MANY = 64  # kinds below a root that are worth arrays


class Placed(NamedTuple):
    """Copies of the job on a reduced layout: the first one, and what it is made of."""

    take: Take
    pieces: list[Piece]
    reduced: Reduced
    taken: Taken


class Trial:
    """One variant of a request on one root; `refusal` says why not, if not."""

    def __init__(
        self,
        question: Question,
        rooted: Rooted,
        resources: tuple[Resource, ...],
        allowance: Allowance | None = None,
    ) -> None:
        self.allowance = allowance
        self.question = question
        self.rooted = rooted
        self.resources = resources
        self.apart = cannot_collide(resources, rooted)
        self.refusal = self._refusal()
        self.allowance = None  # of the query, which is over when more is asked

    @cached_property
    def tallied(self) -> Tallied:
        """What the root offers to the parts of the variant."""
        return Tallied(self.rooted, self.resources, self.question.satisfied(self.rooted), self.question.passes)

    def _refusal(self) -> Callable[[], Reason | None] | None:
        reason = quick_check(self.resources, self.rooted.totals, self.rooted)
        if reason:
            return lambda: reason
        if not self._is_enough():
            return partial(shortfall, self.resources, self.tallied)
        if not self.apart and isinstance(self.placed, Reason):
            return lambda: self.placed if isinstance(self.placed, Reason) else None
        return None

    def _is_enough(self) -> bool:
        """Tell whether the root offers enough for each part; many kinds are counted as arrays."""
        if len(self.rooted.closure) > MANY and self.rooted.largest < LARGEST:
            holds = batch_of((self.rooted,)).holds(self.question, self.resources)
            if holds is not None:
                return bool(holds[0])
        return all(self.tallied.units(r) >= r.count.min for r in self.resources)

    def forget(self) -> None:
        """Forget what has been worked out; it is worked out again if it is asked for."""
        self.__dict__.pop("tallied", None)
        self.__dict__.pop("placed", None)

    @cached_property
    def placed(self) -> Placed | Reason:
        """One copy of the job, or why there is none."""
        return self._place(1)

    def _place(self, copies: int) -> Placed | Reason:
        barring = self.question.passes is not None
        reduced = Reduced(self.rooted, Reach(self.resources, self.rooted, copies, barring))
        passes = self.question.passes
        taken = Taken(reduced, [i for i in reduced.workers if passes and not passes(reduced.kind_at[i])])
        found = search(self.resources, reduced, taken, None if self.apart else BUDGET, self.allowance)
        return found if isinstance(found, Reason) else Placed(*found, reduced, taken)

    def copies(self) -> tuple[int, bool]:
        """Count how many copies fit: in closed form where there is one, else by taking them."""
        top = self.resources[0]
        above = parts_above(top, self.rooted.worker_type, self.rooted.worker_level_types, hosted=False)
        form = closed_form(self.resources, self.rooted, top.is_slot and above.has_place)
        if isinstance(form, Standing):
            runs = capacities(form, self.tallied.tally())
            if runs is not None:
                return successive(runs, form.units), True
        elif form is not None:
            return self.tallied.units(top) // top.count.min, True
        return self._taken_copies()

    def _taken_copies(self) -> tuple[int, bool]:
        placed = self._place(2 + MOST_LOOKED_AT // self.rooted.kind.vertices)
        if isinstance(placed, Reason):
            return 1, False
        return taken_copies(self.resources, placed.reduced, placed.taken, placed.pieces)


class Finding:
    """One request on one root: the first variant that fits decides."""

    def __init__(self, question: Question, rooted: Rooted, allowance: Allowance | None = None) -> None:
        self.trials: list[Trial] = []
        for resources in question.request.variants:
            self.trials.append(Trial(question, rooted, resources, allowance))
            if self.trials[-1].refusal is None:
                break
        self.matched = self.trials[-1].refusal is None
        # what was given up because others of the query had used up its steps is not known for good
        self.holds_good = allowance is None or allowance.left > 0

    @cached_property
    def answer(self) -> Answer:
        """The answer for every cluster with the root; what is held is each one's own, see `take`."""
        found = self._fitting(self.trials[-1]) if self.matched else self._refused(self.trials[0])
        # what it was worked out from is a hundred times as large, and there may be many findings
        for trial in self.trials:
            trial.forget()
        return found

    def _refused(self, trial: Trial) -> Answer:
        reason = trial.refusal() if trial.refusal else None
        trial.refusal = lambda: reason
        return Answer(reason=reason)

    def _fitting(self, trial: Trial) -> Answer:
        fits, exact = trial.copies()
        if isinstance(trial.placed, Reason):
            raise RuntimeError(f"counted as fitting, but: {trial.placed.text}")
        return Answer(fits, exact, totals_of(trial.placed.take, trial.rooted.worker_type))

    def take(self, cluster: Cluster) -> Take | None:
        """Return what one copy would hold of one cluster with the root."""
        if not self.matched:
            return None
        trial = self.trials[-1]
        placed = trial.placed
        trial.forget()
        return placed.reduced.translate(placed.take, cluster) if isinstance(placed, Placed) else None
