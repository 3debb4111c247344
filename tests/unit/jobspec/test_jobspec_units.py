"""Units of a jobspec that say less than they seem to: a warning each."""

import pytest

from rainbow.jobspec import parse_jobspec

KNOWN = (
    "it only matches vertices with exactly this unit "
    "(known units: B, Hz, W, J, and these after one of k, K, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei)"
)
WITHOUT = "memory has no unit and is interpreted in each cluster's own unit; add a unit such as GiB"
CASES = [
    ({"type": "memory", "count": 4, "unit": "GB"}, []),
    ({"type": "memory", "count": 4, "unit": "Gib"}, [f"unknown unit Gib; did you mean GiB? {KNOWN}"]),
    ({"type": "memory", "count": 4, "unit": "byte"}, [f"unknown unit byte; {KNOWN}"]),  # B is
    ({"type": "power", "count": 4, "unit": "quux"}, [f"unknown unit quux; {KNOWN}"]),
    ({"type": "power", "count": 4, "unit": "x" * 100}, [f"unknown unit {'x' * 60}; {KNOWN}"]),
    ({"type": "memory", "count": 4}, [WITHOUT]),
    ({"type": "memory", "count": 4, "unit": ""}, [WITHOUT]),
    ({"type": "core", "count": 4}, []),
]


@pytest.mark.parametrize(("wanted", "warnings"), CASES)
@pytest.mark.parametrize("dialect", ["rfc14", "nextgen", "founding"])
def test_unit_that_is_not_known_and_memory_without_one_are_warnings(dialect, wanted, warnings):
    slot = [{"type": "slot", "count": 1, "label": "a", "with": [wanted, wanted]}]
    command = {"command": ["x"], "slot": "a"}
    whole = {
        "rfc14": {"resources": slot, "tasks": [{**command, "count": {"per_slot": 1}}], "attributes": {}},
        "nextgen": {"resources": {"a": {"type": "node", "with": [wanted]}}, "tasks": [{"command": ["x"]}]},
        "founding": {"resources": slot, "task": command},
    }
    assert list(parse_jobspec({"version": 1, **whole[dialect]}).warnings) == warnings
