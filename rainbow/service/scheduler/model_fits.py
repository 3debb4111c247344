"""Fits the linear models of run times to the runs that the store remembers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rainbow.errors import Forbidden, RainbowError
from rainbow.forecast.linear_model import LinearModel, fit
from rainbow.service.jobs.jobspecs import reading
from rainbow.service.jobs.run_models import GROUP, VARIABLE, Model, RunModels, group_of, text_of, variable_of
from rainbow.service.placement.ledger import state_at
from rainbow.store import statistics

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.core.access import Caller
    from rainbow.service.core.service import Service

HOUR = 3600.0
MOST_RUNS = 5_000  # the newest
PARAMETER = "parameter."


def fit_if_due(service: Service) -> None:
    """Fit the models in force again if that was an hour ago, and the configuration wants them."""
    if not service.settings.models:
        return
    stored, now = service.state(RunModels), service.monotonic()
    if stored.fitted < 0 or now - stored.fitted >= HOUR:
        stored.fitted = now
        stored.by_group = fitted(service, None, GROUP, VARIABLE)


def fitted(service: Service, since: float | None, keys: Sequence[str], by: str) -> dict[str, Model]:
    """Return the model of each group of finished runs, or why it has none."""
    with service.store.read() as connection:
        runs = statistics.completed(connection, since or 0.0, MOST_RUNS)
        points: dict[str, tuple[list[float], list[float]]] = {}
        known: dict[str, tuple[str, float | None]] = {}
        for run in runs:
            if run.job not in known:
                known[run.job] = _placed(connection, run, keys, by)
            group, value = known[run.job]
            if value is not None:
                values, seconds = points.setdefault(group, ([], []))
                values.append(value)
                seconds.append(run.seconds)
    return {group: fit(*both) for group, both in sorted(points.items())}


def _placed(
    connection: sa.Connection, run: statistics.CompletedRun, keys: Sequence[str], by: str
) -> tuple[str, float | None]:
    """Return a job's group, and the variable by which its runs are fitted; None where it is not known."""
    try:
        parameters: Mapping[str, Any] = reading(connection, run.job).request.parameters
    except RainbowError:  # stored by a version that read what this one refuses
        return "", None
    named = {"name": run.name, "requestor": run.requestor}
    if by.startswith(PARAMETER):
        return group_of(named, parameters, keys), variable_of(parameters, by.removeprefix(PARAMETER))
    return group_of(named, parameters, keys), variable_of(state_at(connection, run.job, run.cluster), by)


def listing(
    service: Service, who: Caller, since: float | None, keys: Sequence[str] = GROUP, by: str = VARIABLE
) -> list[dict[str, Any]]:
    """Fit models now and list them by group; those in force are not changed."""
    if not who.admin:
        raise Forbidden("admin token required to read models")
    return [_shown(group, model, by) for group, model in fitted(service, since, keys, by).items()]


def _shown(group: str, model: Model, by: str) -> dict[str, Any]:
    if not isinstance(model, LinearModel):
        return {"group": group, "by": by, "runs": model.runs, "used": False, "text": model.why}
    return {
        "group": group,
        "by": by,
        "runs": model.runs,
        "used": True,
        "text": text_of(model, by),
        "slope": model.slope,
        "slope_error": model.slope_error,
        "intercept": model.intercept,
        "intercept_error": model.intercept_error,
        "lowest": model.lowest,
        "highest": model.highest,
        "error": model.error,
        "relative_error": model.relative_error,
        "median_error": model.median_error,
        "r_squared": model.r_squared,
        "below": model.below,
        "above": model.above,
        "points": [list(point) for point in model.points],
    }
