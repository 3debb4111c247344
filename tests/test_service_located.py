"""What starts beside others has cores, sockets and devices that nobody else holds, under every policy."""

import pytest
import yaml

from tests import shapes
from tests.jobspecs import ROOT

KNOWN = yaml.safe_load((ROOT / "tests/cases/scheduler/occupied.yaml").read_text())["cases"]
POLICIES = {
    "load_based": {"name": "load_based", "settings": {"unit": "core"}},
    "fair_share": {
        "name": "fair_share",
        "settings": {
            "quantum": {"type": "core", "amount": 1},
            "classes": {"fixed": {"policy": "FIXED_SHARE", "default": True}},
        },
    },
    "priority": {"name": "priority"},
}


def asking(job):
    """A jobspec of one task in some slots, or over a group."""
    if "group" in job:
        tasks = [{"command": ["true"], "resources": "it"}]
        return {"version": 1, "resources": {"it": job["group"]}, "tasks": tasks}
    return {
        "version": 1,
        "resources": [{"type": "slot", "count": job.get("slots", 1), "label": "it", "with": [job["asks"]]}],
        "tasks": [{"command": ["true"], "slot": "it", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": 0}},
    }


def site(api, case, policy):
    hung = {"subsystems": shapes.subsystems(case["hung"])} if "hung" in case else {}
    there = api.register("oak", shapes.document(case["shape"]), policy=POLICIES[policy], **hung)
    there.say("heartbeat", running=[])
    return there


def submit(api, there, job):
    return api.good("POST", "/v1/jobs", {"jobspec": asking(job), "requestor": "ann"}, there.token)["id"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("case", KNOWN, ids=lambda case: case["name"])
def test_starts_where_it_fits_and_says_why_it_does_not(api, case, policy):
    there = site(api, case, policy)
    for job in case["jobs"]:
        told = submit(api, there, job)
        offers = {offer["job"]: offer["placement"] for offer in there.take()}
        if "holds" in job:
            assert offers == {told: job["holds"]}
        else:
            assert offers == {}
            wait = api.good("GET", f"/v1/jobs/{told}/why", None, there.token)["wait"]
            assert job["waits"] in wait["text"]
            assert wait["facts"]["fragmented"]["worker"] == "node0"
