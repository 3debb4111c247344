"""What runs have taught about run times: the models in force, and the variables `model.*` of selection.

With `scheduler.models` they are fitted once an hour (scheduler/model_fits.py), by the state variable that the text
of rainbow's algorithms has. A job's own `seconds_per_gb` comes before a model's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rainbow.forecast.linear_model import FEWEST_RUNS, LinearModel, NoModel
from rainbow.selection.variables import NO_MODEL, OWN_SLOPE, SAME
from rainbow.service.core.memory import picture

if TYPE_CHECKING:
    from rainbow.service.core.service import Service

GROUP = ("name", "requestor", "parameter.package")  # what makes runs alike
VARIABLE = "memory_per_node"
UNFITTED = f"0 of {FEWEST_RUNS} runs"
Model = LinearModel | NoModel


@picture("run-models", most="one for a group", true="fitted again after an hour, as documented")
@dataclass
class RunModels:
    """The models in force, by group; replaced as a whole once an hour."""

    fitted: float = -1.0  # by the monotonic clock; less than 0: not yet
    by_group: Mapping[str, Model] = field(default_factory=dict)


def group_of(fields: Mapping[str, Any], parameters: Mapping[str, Any], keys: Collection[str] = GROUP) -> str:
    """Name the group of a run: the values of the keys, joined; what it lacks is left empty.

    >>> group_of({"name": "build", "requestor": "ann"}, {"package": "zlib"}), group_of({"name": "a"}, {})
    ('build/ann/zlib', 'a//')
    """
    values = (
        parameters.get(key.removeprefix("parameter.")) if key.startswith("parameter.") else fields.get(key)
        for key in keys
    )
    return "/".join("" if value is None else str(value).replace("/", "_") for value in values)


@dataclass(frozen=True, slots=True)
class JobModel:
    """The model of one job's group, and what it says of each cluster."""

    group: str
    model: Model
    own: Any  # the job's own seconds_per_gb
    values: Mapping[str, float]  # the variable, by cluster that states it

    def tell(self, states: Mapping[str, MutableMapping[str, Any]]) -> None:
        """Add the variables `model.*` to what selection reads of each cluster."""
        stated = any(OWN_SLOPE in state for state in states.values())
        for name, state in states.items():
            if isinstance(self.model, NoModel):
                state[NO_MODEL] = self.why
                continue
            state.update({"model.seconds_per_gb": self.model.slope, "model.n": self.model.runs})
            if self.own is None and not stated:
                state[OWN_SLOPE] = self.model.slope
            if name in self.values:
                low, high = self.model.band(self.values[name])
                state.update(
                    {
                        "model.runtime": self.model.seconds(self.values[name]),
                        "model.low": low,
                        "model.high": high,
                    }
                )

    @property
    def why(self) -> str:
        """Say why there is no model."""
        return f"no model of {self.group} ({self.model.why})" if isinstance(self.model, NoModel) else ""

    def as_answer(self, cluster: str | None) -> dict[str, Any]:
        """Return what a decision says of it: the line, its runs and error, and what it expects where the job goes."""
        about: dict[str, Any] = {"group": self.group, "text": self.why}
        if isinstance(self.model, LinearModel):
            about |= {"text": text_of(self.model), "runs": self.model.runs, "error": self.model.error}
            about |= {"slope": self.model.slope, "intercept": self.model.intercept}
            if cluster is not None and cluster in self.values:
                value = self.values[cluster]
                low, high = self.model.band(value)
                about["expected"] = {"runtime": self.model.seconds(value), "low": low, "high": high}
                if self.model.is_outside(value):
                    seen = f"{self.model.lowest:g} to {self.model.highest:g}"
                    about["text"] += f"; {VARIABLE} {value:g} is outside the range seen ({seen}): its edge counts"
        if self.own is not None:
            about[OWN_SLOPE] = self.own
            about["text"] += f"; the job's own seconds_per_gb {self.own} counts"
        return about


def text_of(model: LinearModel, variable: str = VARIABLE) -> str:
    """Write a model in a line."""
    line = f"{model.slope:.4g} s × {variable} {'+' if model.intercept >= 0 else '-'} {abs(model.intercept):.4g} s"
    return f"runtime = {line} from {model.runs} runs, error {model.error:.3g} s ({model.relative_error:.0%})"


def model_for(
    service: Service,
    fields: Mapping[str, Any],
    parameters: Mapping[str, Any],
    states: Mapping[str, Mapping[str, Any]],
) -> JobModel:
    """Return the model of a job that is called and asked for so, and the variable of each cluster."""
    group = group_of(fields, parameters)
    model = service.state(RunModels).by_group.get(group, NoModel(UNFITTED, 0))
    stated = ((name, variable_of(state, VARIABLE)) for name, state in states.items())
    return JobModel(group, model, parameters.get(OWN_SLOPE), {k: v for k, v in stated if v is not None})


def variable_of(values: Mapping[str, Any], name: str) -> float | None:
    """Return a variable as a number, under its own name or its other one; None if it is none."""
    value = values.get(name, values.get(SAME.get(name, name)))
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
