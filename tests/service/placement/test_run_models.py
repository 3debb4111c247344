"""Linear models of run times: learned by the server, read by selection, said by why, shown by the command."""

import json

import pytest
from click.testing import CliRunner

from rainbow.cli.main import main
from rainbow.service.jobs.run_models import RunModels
from rainbow.service.scheduler.forecaster import Forecaster
from tests.conftest import ADMIN, Api, Clock, grid, open_service_at
from tests.support.live import http
from tests.support.page_client import Browser

CHOOSE = {
    "name": "constraint",
    "options": {"priorities": [{"priority": 1, "steps": [{"sort_ascending": "model.runtime"}, {"select": "first"}]}]},
}
MEMORY = {"small": 64, "middle": 128, "large": 256}
SLOPE, START = -0.5, 300.0  # more memory, faster


def build(package="zlib", **parameter):
    spec = {
        "resources": {"w": {"type": "core"}},
        "tasks": [{"command": ["build"], "resources": "w"}],
        "name": "build",
    }
    return {**spec, "attributes": {"parameter": {"package": package, **parameter}, "system": {"duration": 3600}}}


class Site:
    """Three clusters whose memory differs, and runs on them."""

    def __init__(self, folder, models=True):
        self.clock = Clock()
        self.service = open_service_at(folder, self.clock, models=models)
        self.api = Api(self.service)
        self.clusters = {name: self.api.register(name, grid(2, 2)) for name in MEMORY}
        for name, cluster in self.clusters.items():
            self.api.good("PUT", f"/v1/clusters/{name}/state", {"memory_per_node": MEMORY[name]}, cluster.secret)
            cluster.say("heartbeat", running=[])
        self.tokens = [cluster.token for cluster in self.clusters.values()]

    def run(self, name, seconds, spec=None):
        body = {"jobspec": spec or build(), "requestor": "ann"}
        self.api.good("POST", "/v1/jobs", body, self.clusters[name].token)
        self.clusters[name].say("heartbeat", running=[])
        (offer,) = self.clusters[name].take()
        started = {"task": offer["id"], "attempt": offer["attempt"], "event": "started"}
        self.clusters[name].say("events", events=[started])
        self.clock.now += seconds
        self.clusters[name].say("heartbeat", running=[{"id": offer["id"], "attempt": offer["attempt"]}])
        self.clusters[name].end(offer)

    def runs(self, count):
        for k in range(count):
            name = [*MEMORY][k % 3]
            self.run(name, START + SLOPE * MEMORY[name] + (k % 5 - 2))

    def fit(self):
        self.service.state(RunModels).fitted = -1.0
        Forecaster(self.service).turn()

    def submit(self, **parameter):
        body = {"jobspec": build(**parameter), "requestor": "ann", "selector": CHOOSE}
        return self.api.good("POST", "/v1/jobs", body, *self.tokens)


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path)
    yield made
    made.service.close()


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A site whose models are fitted to 24 runs; nothing that a test does changes them."""
    made = Site(tmp_path_factory.mktemp("learned"))
    made.runs(24)
    made.fit()
    yield made
    made.service.close()


def test_a_job_goes_where_the_line_says_it_ends_first_and_why_says_the_line(learned):
    made = learned.submit()
    assert made["cluster"] == "large"
    values = made["decision"]["selection"]["steps"][0]["values"]
    assert {name: round(value) for name, value in values.items()} == {"small": 268, "middle": 236, "large": 172}
    model = learned.api.good("GET", f"/v1/jobs/{made['id']}/why", None, *learned.tokens)["decision"]["model"]
    assert (model["group"], model["runs"]) == ("build/ann/zlib", 24)
    assert model["text"].startswith("runtime = -0.")
    assert "from 24 runs, error " in model["text"]
    assert model["expected"]["low"] < model["expected"]["runtime"] < model["expected"]["high"]
    replayed = learned.api.good("GET", f"/v1/jobs/{made['id']}/replay", None, *learned.tokens)
    assert replayed["equal"], "the decision is stored with what the model said"


def test_without_enough_runs_the_decision_says_so(site):
    site.runs(7)
    site.fit()
    step = site.submit()["decision"]["selection"]["steps"][0]
    assert step["note"].startswith("uninformed: no model of build/ann/zlib (7 of 20 runs)")
    assert site.submit(package="other")["decision"]["model"]["text"] == "no model of build/ann/other (0 of 20 runs)"


def test_a_jobs_own_number_wins_and_both_are_said(learned):
    model = learned.submit(seconds_per_gb=2)["decision"]["model"]
    assert model["seconds_per_gb"] == 2
    assert model["text"].endswith("; the job's own seconds_per_gb 2 counts")
    steps = [{"calc": "cost = seconds_per_gb * memory_per_node"}, {"sort_ascending": "cost"}, {"select": "first"}]
    how = {"name": "constraint", "options": {"priorities": [{"priority": 1, "steps": steps}]}}
    for own, requirement in ((2, 128.0), (None, None)):
        parameter = {} if own is None else {"seconds_per_gb": own}
        body = {"jobspec": build(**parameter), "requestor": "ann", "selector": how}
        answer = learned.api.good("POST", "/v1/jobs", body, *learned.tokens)["decision"]["selection"]["steps"][0]
        assert answer["values"]["small"] == (requirement or pytest.approx(64 * SLOPE, rel=0.1))


def test_a_memory_outside_the_range_counts_as_its_edge_and_the_decision_says_so(learned):
    cluster = learned.clusters["large"]
    learned.api.good("PUT", "/v1/clusters/large/state", {"memory_per_node": 512}, cluster.secret)
    model = learned.submit()["decision"]["model"]
    learned.api.good("PUT", "/v1/clusters/large/state", {"memory_per_node": MEMORY["large"]}, cluster.secret)
    assert "memory_per_node 512 is outside the range seen (64 to 256): its edge counts" in model["text"]
    assert model["expected"]["runtime"] == pytest.approx(START + SLOPE * 256, abs=3)


def test_a_group_that_is_not_linear_is_not_used(site):
    for k in range(24):
        site.run([*MEMORY][k % 3], 100.0 + 40 * ((k * 7) % 5))
    site.fit()
    assert "no model of build/ann/zlib (not linear: a line errs by " in site.submit()["decision"]["model"]["text"]


def test_off_nothing_is_learned(tmp_path):
    site = Site(tmp_path, models=False)
    site.runs(3)
    site.fit()
    assert site.service.state(RunModels).by_group == {}
    assert "model" not in site.submit()["decision"]


def test_commands_fit_and_show(learned):
    with http(learned.api.app) as port:
        env = {"RAINBOW_URL": f"http://127.0.0.1:{port}", "RAINBOW_TOKEN": ADMIN, "COLUMNS": "160"}

        def run(*words):
            return CliRunner().invoke(main, words, env=env)

        answer = run("model", "fit")
        assert answer.exit_code == 0, answer.output
        assert "build/ann/zlib    24  yes   runtime = -0." in answer.output
        shown = run("model", "show", "build/ann/zlib")
        assert "runtime = -0." in shown.output
        assert shown.output.count("o") > 3
        assert "memory_per_node" in shown.output.splitlines()[-1]
        (one,) = json.loads(run("model", "fit", "--group", "name", "-o", "json").output)
        assert (one["group"], one["used"]) == ("build", True)
        assert run("model", "show", "nothing").exit_code == 4
        assert json.loads(run("model", "fit", "--by", "parameter.size", "-o", "json").output) == []
    learned.api.problem(403, "forbidden", "GET", "/v1/models", None, learned.tokens[0])
    learned.api.problem(400, "request-invalid", "GET", "/v1/models?since=1e999", None, ADMIN)


def test_the_page_draws_runs_line_and_band(learned):
    text = Browser(learned.api, ADMIN).get("/models")
    assert "build/ann/zlib" in text
    assert text.count("<circle") == 24
    assert (text.count("<polyline"), text.count("<polygon")) == (1, 1)
    made = learned.submit()["id"]
    assert "Model of build/ann/zlib: runtime = -0." in Browser(learned.api, ADMIN).get(f"/jobs/{made}")
