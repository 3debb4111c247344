"""The picture of shares in the documentation is what the benchmark draws, and the small class has its share in it."""

from benchmarks.shares import PERCENTS, PICTURE, ROUNDS, WORKERS, drawn, simulate
from docs.pictures.__main__ import pictures
from tests.support.pages import ROOT


def test_picture_is_what_is_simulated():
    assert PICTURE.read_text() == drawn(*simulate())


def test_every_class_runs_its_share_over_three_hundred_rounds():
    ran, requirement = simulate()
    assert (WORKERS, ROUNDS, min(PERCENTS.values())) == (50, 300, 1)
    for name, percent in PERCENTS.items():
        assert abs(sum(ran[name]) / ROUNDS - WORKERS * percent / 100) < 1
    assert sum(ran["tryout"]) > 60  # half a worker over 300 rounds is 150; the original ran none
    assert all(sum(row) == WORKERS for row in zip(*requirement.values(), strict=True))


def test_pictures_of_recorded_runs_are_what_is_drawn():
    for name, text in pictures().items():
        assert (ROOT / "docs" / name).read_text() == text, "run: python -m docs.pictures"
        assert "<title" in text
        assert "<desc" in text
