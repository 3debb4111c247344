"""Models of run times: the runs of each group, their line and its band."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rainbow.page.frame import guarded, page, render, service, who
from rainbow.service.scheduler import model_fits

WIDTH, HEIGHT, EDGE = 640, 240, 24
MOST = 50  # groups


@page.get("/models")
@guarded
def models() -> Any:
    """Show the model of each group of finished runs, the largest groups first."""
    found = sorted(model_fits.listing(service(), who(), None), key=lambda one: (-one["runs"], one["group"]))
    shown = [{**one, "drawn": _drawn(one) if one["used"] else None} for one in found[:MOST]]
    return render("models.html", here="models", models=shown)


def _drawn(one: Mapping[str, Any]) -> dict[str, Any]:
    """Return where a plot has its points, its line and its band."""
    low, high = one["lowest"], one["highest"]
    ends = [(value, one["slope"] * value + one["intercept"]) for value in (low, high)]
    top = max(*(seconds for _, seconds in one["points"]), *(seconds + one["above"] for _, seconds in ends))

    def at(value: float, seconds: float) -> tuple[float, float]:
        across = EDGE + (value - low) / ((high - low) or 1) * (WIDTH - 2 * EDGE)
        return round(across, 1), round(HEIGHT - EDGE - max(0.0, seconds) / (top or 1) * (HEIGHT - 2 * EDGE), 1)

    above = [at(value, seconds + one["above"]) for value, seconds in ends]
    below = [at(value, seconds + one["below"]) for value, seconds in reversed(ends)]
    return {
        "points": [at(*point) for point in one["points"]],
        "line": _joined(at(*end) for end in ends),
        "band": _joined([*above, *below]),
        "top": top,
    }


def _joined(places: Any) -> str:
    return " ".join(f"{x},{y}" for x, y in places)
