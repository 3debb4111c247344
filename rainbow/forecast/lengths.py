"""How long a task is predicted to run: by the last runs like it, never by its limit alone.

    limit    the duration its user asks for: an upper bound; policies plan reservations with it
    length   what runs like it took: for forecasts alone; nothing is stopped or promised by it
    seconds  the median of them: when the task itself is expected to end
    mean     what counts for those that wait behind it: a sum of medians of skewed lengths would be too small

Users ask for several times what they use. The last 20 runs of the same name say within a factor of 2 how long the
next one takes in 7 of 10 cases; the limit does in 1 or 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, exp, floor, inf, log
from statistics import fmean, median

RUNS = 20  # of one key that are remembered
RATIOS = 500  # of one cluster
FEWEST = 30  # scores below which a band is a guess
GUESS = 4.0  # the factor either way of a band that is a guess
COVER = 0.8


@dataclass(frozen=True, slots=True)
class Key:
    """What makes runs alike. An empty field, or no slots, stands for any."""

    cluster: str
    requestor: str = ""
    name: str = ""
    task: str = ""
    slots: int = 0

    def levels(self) -> Iterator[tuple[Key, str]]:
        """Yield the key and the wider ones, the most specific first, each with what its predictions are called."""
        if self.name:
            yield self, "name"
            yield replace(self, slots=0), "name"
        if self.requestor:
            yield Key(self.cluster, self.requestor), "requestor"
        yield Key(self.cluster), "cluster"


@dataclass(frozen=True, slots=True)
class RunHistory:
    """What is remembered: seconds of the last runs of each key; log(actual / predicted) of a cluster's last runs."""

    recent: Mapping[Key, Sequence[float]]
    ratios: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Length:
    """Seconds, infinite if unknown, and where 8 in 10 lie; `source`: name, requestor, cluster, limit or unknown."""

    seconds: float
    low: float
    high: float
    runs: int
    source: str
    mean: float

    @classmethod
    def exactly(cls, seconds: float, source: str) -> Length:
        """Return a length of which no other is expected."""
        return cls(seconds, seconds, seconds, 1, source, seconds)


UNKNOWN = Length(inf, inf, inf, 0, "unknown", inf)


def length_of(known: RunHistory, key: Key, limit: float) -> Length:
    """Return how long a task is predicted to run; `limit` 0: it has none.

    >>> length_of(RunHistory({Key("oak", "ann"): [50.0, 70.0, 90.0]}), Key("oak", "ann", "train", "a", 2), 3600.0)
    Length(seconds=70.0, low=17.5, high=280.0, runs=3, source='requestor', mean=70.0)
    """
    most = limit or inf
    runs, source = _runs(known, key)
    seconds = min(median(runs), most) if runs else limit / 2 if limit else inf
    if seconds == inf:
        return UNKNOWN
    mean = fmean(min(one, most) for one in runs) if runs else seconds
    low, high = quantiles(known.ratios[-RATIOS:], COVER)
    return Length(seconds, seconds * exp(low), min(most, seconds * exp(high)), len(runs), source, mean)


def left(known: RunHistory, key: Key, ran: float, limit: float) -> float:
    """Return how many more seconds a task that has run so long is predicted to run; infinite if unknown.

    It is the mean of the runs that took longer, each at most the limit. One that outlasts everything like it takes as
    long again, at most until its limit.
    """
    runs, _ = _runs(known, key)
    longer = [min(one, limit or inf) for one in runs or ((limit / 2,) if limit else ()) if one > ran]
    if not longer and not runs and not limit:
        return inf
    more = fmean(longer) - ran if longer else max(ran, 1.0)
    return max(0.0, min(more, limit - ran)) if limit else more


def _runs(known: RunHistory, key: Key) -> tuple[Sequence[float], str]:
    for level, source in key.levels():
        if runs := known.recent.get(level):
            return runs[-RUNS:], source
    return (), "limit"


def ratios(medians: Iterable[Mapping[str, float]], cluster: str) -> dict[str, float]:
    """Return {other cluster: how many times as long runs take there}, by the keys that both have run.

    `medians` has the seconds of each key by cluster. The median is one of logarithms: there and back is 1.

    >>> ratios([{"slow": 60.0, "fast": 20.0}, {"slow": 80.0, "fast": 40.0}, {"slow": 9.0, "fast": 3.0}], "slow")
    {'slow': 1.0, 'fast': 0.3333333333333333}
    """
    results: dict[str, list[float]] = {}
    for by_cluster in medians:
        here = by_cluster.get(cluster, 0.0)
        for other, there in by_cluster.items() if here > 0 else ():
            if there > 0:
                results.setdefault(other, []).append(log(there / here))
    return {other: exp(median(logarithms)) for other, logarithms in results.items()}


def quantiles(scores: Sequence[float], cover: float) -> tuple[float, float]:
    """Return between which logarithms the next score lies in `cover` of all cases, by those before it (conformal).

    >>> quantiles(range(-50, 50), 0.8)
    (-41, 40)
    """
    if len(scores) < FEWEST:
        return -log(GUESS), log(GUESS)
    ordered, miss = sorted(scores), (1 - cover) / 2
    count = len(ordered)
    low, high = floor((count + 1) * miss), ceil((count + 1) * (1 - miss))
    return ordered[max(0, low - 1)], ordered[min(count, high) - 1]
