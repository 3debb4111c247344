"""What the index keeps of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rainbow.matching.kinds import hides_names, root_of
from rainbow.matching.memory import Memory
from rainbow.matching.rooted import Rooted, rooted

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.matching.filling import Offers
    from rainbow.matching.question import Question
    from rainbow.matching.verdict import Verdict

MOST_OWN = 1_024


class Compiled:
    """What the index keeps of a cluster: its root, and the verdicts that are its own."""

    def __init__(self, cluster: Cluster) -> None:
        self.hides_names = hides_names(cluster)
        self.rooted: Rooted = rooted(cluster, root_of(cluster))
        self.is_plain = cluster.levels != "strict" and not self.rooted.has_nested_workers
        self.own: Memory[bytes, Verdict] = Memory(MOST_OWN)
        self.offers: Memory[bytes, Offers | None] = Memory(MOST_OWN)

    def by_kinds(self, question: Question) -> bool:
        """Tell whether the kinds of the cluster can answer a question; else the plain search does."""
        return self.is_plain and question.by_kinds and not (question.asks_names and self.hides_names)

    def answers(self, question: Question) -> bool:
        """Tell whether the answer holds for every cluster with this root."""
        return self.by_kinds(question) and not question.names_workers
