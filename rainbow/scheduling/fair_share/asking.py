"""What a gang would hold, asked of the matcher once for every kind of worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rainbow.scheduling.fair_share.model import Amounts
from rainbow.scheduling.fair_share.sizes import order_of_share
from rainbow.scheduling.policy import GangView, Placement, View

CLUSTER = ""  # placements name what lies outside every worker under it


@dataclass(slots=True)
class Wish:
    """What may start of one size: a gang a share. `amounts` by kind of worker that can host one."""

    order: int
    asked: int = 0  # the largest amount of the type that is counted
    amounts: dict[str, dict[str, int]] = field(default_factory=dict)
    gangs: list[GangView] = field(default_factory=list)


class Asking:
    """Asks the matcher about gangs on one worker of every kind; workers of a kind are alike."""

    def __init__(self, view: View, counted: str | None) -> None:
        self.view = view
        self.counted = counted
        self.example = {worker.kind: worker for worker in sorted(view.workers, key=lambda w: w.id, reverse=True)}

    def wishes(self, gangs: Sequence[GangView], alike: bool, quantum: int) -> dict[int, Wish]:
        """Sort gangs by the order of their share; 0 is the order of what no single worker can host."""
        if alike and gangs:
            only = self._wish(gangs[0], quantum)
            only.gangs.extend(gangs)
            return {only.order: only}
        wishes: dict[int, Wish] = {}
        for gang in gangs:
            found = self._wish(gang, quantum)
            wish = wishes.setdefault(found.order, Wish(found.order))
            wish.gangs.append(gang)
            wish.asked = max(wish.asked, found.asked)
            for kind, amounts in found.amounts.items():
                _raise(wish.amounts.setdefault(kind, {}), amounts)
        return wishes

    def _wish(self, gang: GangView, quantum: int) -> Wish:
        wish = Wish(0)
        for kind in sorted(self.view.hosts(gang.demand) & set(self.example)):
            worker = self.example[kind]
            take = self.view.place(gang.demand, (worker.id,))
            if take is None:
                continue
            amounts: dict[str, int] = {}
            for _, held in take.placed:
                for t, amount in held.get(worker.id, {}).items():
                    amounts[t] = amounts.get(t, 0) + amount
            wish.amounts[kind] = amounts
            wish.asked = max(wish.asked, amounts.get(self.counted or "", 0))
            wish.order = max(wish.order, order_of_share(amounts, worker.capacity, self.counted, quantum))
        return wish

    def placements(self, gang: GangView, worker: str, kind: str) -> Sequence[Placement]:
        """Say for each task of a gang what it holds on this worker: what it would hold on the example of its kind."""
        example = self.example[kind].id
        take = self.view.place(gang.demand, (example,))
        if take is None:
            return ()
        divided = self.view.divide(gang.demand, take)
        return [{worker if name == example else name: held for name, held in part.items()} for part in divided]


def _raise(most: dict[str, int], amounts: Amounts) -> None:
    for kind, amount in amounts.items():
        most[kind] = max(most.get(kind, 0), amount)
