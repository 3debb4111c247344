"""The linear model of the founding text, learned from runs: seconds = slope × variable + intercept.

A line is fitted by least squares, with weights by Huber so that a few runs that went wrong do not bend it. What it is
worth is judged by leaving one run out after the other: a model that errs no less than the median of the other runs,
without any line, is not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt

import numpy as np
from numpy.typing import NDArray

FEWEST_RUNS = 20
FEWEST_VALUES = 3  # different ones of the variable
ROUNDS = 3  # of weights
BEND = 1.345  # residuals beyond so many scales weigh less (Huber 1964): 95 % as good as least squares on normal ones
GAIN = 0.9  # the error of a line is at most this part of the median's
SURE = 3.0  # standard errors that a slope is from 0: few runs on no line look like one now and then
CAUTION = 1.12  # a tenth wider, because the weights are of the same runs
COVER = 0.8  # of the runs lie in the band
POINTS = 500  # that are kept for a plot

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LinearModel:
    """A line that has earned its use. Errors are those of runs left out: medians, in seconds and as a part."""

    slope: float
    intercept: float
    slope_error: float  # one standard error
    intercept_error: float
    runs: int
    lowest: float  # the range of the variable that was seen
    highest: float
    error: float
    relative_error: float
    median_error: float  # of the median alone, as a part of which `error` was judged
    r_squared: float
    below: float  # 80 % of the runs lie between the line plus this
    above: float  # and the line plus this
    points: tuple[tuple[float, float], ...] = ()

    def seconds(self, value: float) -> float:
        """Return the run time at a value; outside the range that was seen that of its edge."""
        return max(0.0, self.slope * min(max(value, self.lowest), self.highest) + self.intercept)

    def band(self, value: float) -> tuple[float, float]:
        """Return between which run times 80 % of the runs at a value lie."""
        middle = self.slope * min(max(value, self.lowest), self.highest) + self.intercept
        return max(0.0, middle + self.below), max(0.0, middle + self.above)

    def is_outside(self, value: float) -> bool:
        """Return whether no run has been seen as far."""
        return not self.lowest <= value <= self.highest


@dataclass(frozen=True, slots=True)
class NoModel:
    """Why runs earn no model."""

    why: str
    runs: int


def fit(values: Sequence[float], seconds: Sequence[float]) -> LinearModel | NoModel:
    """Fit a line to runs: `values` of the variable, and how long each took.

    >>> made = fit([1.0, 2.0, 4.0, 8.0] * 6, [12.0, 14.0, 18.0, 26.0] * 6)
    >>> round(made.slope, 6), round(made.intercept, 6), made.runs, round(made.seconds(16), 6)
    (2.0, 10.0, 24, 26.0)
    >>> fit([1.0], [2.0])
    NoModel(why='1 of 20 runs', runs=1)
    """
    x, y = np.asarray(values, float), np.asarray(seconds, float)
    usable = np.isfinite(x) & np.isfinite(y)
    x, y = x[usable], y[usable]
    if len(x) < FEWEST_RUNS:
        return NoModel(f"{len(x)} of {FEWEST_RUNS} runs", len(x))
    different = len(np.unique(x))
    if different < FEWEST_VALUES:
        return NoModel(f"{different} of {FEWEST_VALUES} different values", len(x))
    weights = weights_of(x, y)
    slope, intercept = line(x, y, weights)
    errors, by_median = np.abs(left_out(x, y, weights)), np.abs(y - medians_of_others(y))
    error, median_error = float(np.median(errors)), float(np.median(by_median))
    residuals = y - slope * x - intercept
    slope_error, intercept_error = _standard_errors(x, residuals)
    better = error <= GAIN * median_error and float(np.mean(errors)) <= GAIN * float(np.mean(by_median))
    if not better or abs(slope) < SURE * slope_error:
        errs = f"a line errs by {error:.3g} s, the median alone by {median_error:.3g} s"
        return NoModel(f"not linear: {errs}", len(x))
    below, above = _band(residuals)
    shown = np.linspace(0, len(x) - 1, min(len(x), POINTS)).astype(int)
    spread = float(np.sum((y - y.mean()) ** 2))
    return LinearModel(
        slope,
        intercept,
        slope_error,
        intercept_error,
        runs=len(x),
        lowest=float(x.min()),
        highest=float(x.max()),
        error=error,
        relative_error=float(np.median(errors / np.maximum(y, 1e-9))),
        median_error=median_error,
        r_squared=1.0 - float(np.sum(residuals**2)) / spread if spread else 1.0,
        below=below,
        above=above,
        points=tuple(zip(x[shown].tolist(), y[shown].tolist(), strict=True)),
    )


def line(x: Floats, y: Floats, weights: Floats) -> tuple[float, float]:
    """Return slope and intercept of the weighted least-squares line."""
    total = weights.sum()
    middle, level = float(weights @ x / total), float(weights @ y / total)
    slope = float(weights @ ((x - middle) * (y - level)) / (weights @ (x - middle) ** 2))
    return slope, level - slope * middle


def weights_of(x: Floats, y: Floats) -> Floats:
    """Return Huber's weights after some rounds."""
    weights = np.ones_like(y)
    for _ in range(ROUNDS):
        slope, intercept = line(x, y, weights)
        residuals = np.abs(y - slope * x - intercept)
        scale = _scale(residuals)
        if not scale:
            break
        weights = np.minimum(1.0, BEND * scale / np.maximum(residuals, 1e-300))
    return weights


def _scale(residuals: Floats) -> float:
    """Return the scale of residuals that a few wild ones do not move: as the standard deviation of normal ones."""
    return 1.4826 * float(np.median(np.abs(residuals)))


def left_out(x: Floats, y: Floats, weights: Floats) -> Floats:
    """Return what each run differs from the line through the others."""
    slope, intercept = line(x, y, weights)
    middle = float(weights @ x / weights.sum())
    leverage = weights * (1 / weights.sum() + (x - middle) ** 2 / float(weights @ (x - middle) ** 2))
    result: Floats = (y - slope * x - intercept) / np.maximum(1 - leverage, 1e-9)
    return result


def medians_of_others(y: Floats) -> Floats:
    """Return for each run the median of all others."""
    ordered, rank = np.sort(y), np.argsort(np.argsort(y))
    count = len(y) - 1
    low, high = (count - 1) // 2, count // 2
    result: Floats = (ordered[low + (rank <= low)] + ordered[high + (rank <= high)]) / 2
    return result


def _standard_errors(x: Floats, residuals: Floats) -> tuple[float, float]:
    """Return the standard errors of slope and intercept of an estimate by Huber's weights.

    The variance is Huber's (1973), corrected for two parameters, and widened as Student's t is for few runs, so that
    two errors hold 95 of 100 slopes whatever their number.
    """
    count, scale = len(x), _scale(residuals)
    if not scale:
        return 0.0, 0.0
    bounded = np.clip(residuals, -BEND * scale, BEND * scale)
    inside = float(np.mean(np.abs(residuals) <= BEND * scale))
    widened = CAUTION * (1 + 2 / count * (1 - inside) / inside) * (1 + 3 / (count - 2))
    variance = float(np.sum(bounded**2)) / (count - 2) / inside**2 if inside else inf
    around = float(np.sum((x - x.mean()) ** 2))
    slope = widened * sqrt(variance / around)
    return slope, widened * sqrt(variance * (1 / count + float(x.mean()) ** 2 / around))


def _band(residuals: Floats) -> tuple[float, float]:
    """Return between which residuals the next one lies in COVER of all cases (split conformal, both ends)."""
    ordered, count = np.sort(residuals), len(residuals)
    miss = (1 - COVER) / 2
    low = max(0, int((count + 1) * miss) - 1)
    high = min(count - 1, int(np.ceil((count + 1) * (1 - miss))) - 1)
    return float(ordered[low]), float(ordered[high])
