"""Lines learned from made data: they are those it was made with, and where there is none, none is used."""

import numpy as np
import pytest

from rainbow.forecast.linear_model import LinearModel, NoModel, fit, left_out, line, medians_of_others, weights_of

SETS = 100


def made(seed, count=40, slope=2.0, intercept=30.0, noise="normal"):
    rng = np.random.default_rng(seed)
    x = rng.choice([16.0, 32.0, 64.0, 128.0, 256.0], count)
    errors = {
        "normal": rng.normal(0, 20, count),
        "outliers": np.where(rng.random(count) < 0.05, rng.normal(0, 300, count), rng.normal(0, 20, count)),
        "heavy": 15 * rng.standard_t(3, count),
    }
    return x, slope * x + intercept + errors[noise]


@pytest.mark.parametrize("noise", ["normal", "outliers", "heavy"])
@pytest.mark.parametrize("count", [20, 40, 200])
def test_slopes_and_intercepts_are_within_two_standard_errors(noise, count):
    slopes = intercepts = 0
    for seed in range(SETS):
        model = fit(*made(seed, count, noise=noise))
        assert isinstance(model, LinearModel)
        slopes += abs(model.slope - 2.0) <= 2 * model.slope_error
        intercepts += abs(model.intercept - 30.0) <= 2 * model.intercept_error
    assert min(slopes, intercepts) >= 95


SHAPES = {
    "flat": lambda x, rng: 200 + rng.normal(0, 20, len(x)),
    "bowl": lambda x, rng: (x - 128) ** 2 / 50 + rng.normal(0, 5, len(x)),
    "chance": lambda x, rng: rng.lognormal(4, 1, len(x)),
    "wave": lambda x, rng: 100 + 50 * np.sin(x) + rng.normal(0, 3, len(x)),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_not_linear_is_not_used_and_says_so(shape):
    for seed in range(30):
        rng = np.random.default_rng(seed)
        x = rng.uniform(0, 256, 60)
        model = fit(x, SHAPES[shape](x, rng))
        assert isinstance(model, NoModel)
        assert model.why.startswith("not linear: a line errs by ")


def test_a_few_wild_runs_do_not_bend_theline():
    x, y = made(1, 60)
    wild = y.copy()
    wild[:3] *= 20
    straight, bent = fit(x, y), fit(x, wild)
    plain = np.polyfit(x, wild, 1)[0]
    assert abs(bent.slope - straight.slope) < abs(plain - straight.slope) / 3


def test_the_errors_are_those_of_runsleft_out():
    """Executable specification: fit to all but one, again and again, with the same weights."""
    x, y = made(3, 25)
    weights = weights_of(x, y)
    for k, error in enumerate(left_out(x, y, weights)):
        others = np.arange(len(x)) != k
        slope, intercept = line(x[others], y[others], weights[others])
        assert error == pytest.approx(y[k] - slope * x[k] - intercept)
        assert medians_of_others(y)[k] == pytest.approx(np.median(y[others]))


def test_eight_in_ten_runs_lie_in_the_band():
    inside = []
    for seed in range(SETS):
        model = fit(*made(seed, 60))
        for x, y in zip(*made(seed + 1000, 10), strict=True):
            low, high = model.band(x)
            inside.append(low <= y <= high)
    assert 0.77 <= np.mean(inside) <= 0.87


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([1.0] * 19, "19 of 20 runs"),
        ([1.0, 2.0] * 15, "2 of 3 different values"),
        ([float("nan")] * 30, "0 of 20 runs"),
    ],
)
def test_too_little_is_no_model(values, why):
    assert fit(values, range(len(values))).why == why


def test_outside_the_range_the_edge_counts():
    model = fit([1.0, 2.0, 4.0] * 8, [10.0, 20.0, 40.0] * 8)
    assert [round(model.seconds(value), 6) for value in (0.0, 1.0, 3.0, 4.0, 9.0)] == [10, 10, 30, 40, 40]
    assert [model.is_outside(value) for value in (0.9, 1.0, 4.0, 4.1)] == [True, False, False, True]


def test_equal_runs_of_one_line_have_no_error():
    model = fit([1.0, 2.0, 4.0] * 8, [10.0, 20.0, 40.0] * 8)
    assert (model.error, model.slope_error) == (pytest.approx(0, abs=1e-9), pytest.approx(0, abs=1e-9))
