"""Two users with elastic jobs on the demo's cluster, with a real server, a real agent and real processes."""

from collections import Counter

from benchmarks.sharing import CLUSTER, SHARE, share_job
from rainbow.cli.demo import examples
from rainbow.client import Client
from tests.conftest import REGISTRATION
from tests.scenarios.test_end_to_end import until
from tests.support.live import agent_of, rainbow_at

WORK = 'until [ -e "$1/go" ]; do sleep 0.2; done; echo "$RAINBOW_TASK" >> "$1/done"'


def spec(folder, most):
    job = share_job(1, most)
    job["tasks"][0]["command"] = ["sh", "-c", WORK, "work", str(folder)]
    return job


def states(client, job):
    return Counter(task["state"] for task in client.job(job)["tasks"])


def test_second_users_arrival_shrinks_the_first_to_half_and_nothing_is_lost(tmp_path):
    willow = next(cluster for cluster in examples.clusters() if cluster.name == CLUSTER)
    policy = {"name": "fair_share", "settings": {"quantum": {"type": "memory", "amount": SHARE}}}
    with rainbow_at(tmp_path) as url:
        registration = Client(url, REGISTRATION).register_cluster(CLUSTER, willow.graph, policy=policy)
        client, secret = Client(url, registration["token"]), Client(url, registration["secret"])
        with agent_of(url, CLUSTER, registration["secret"]):
            ann = client.submit(spec(tmp_path, 16), requestor="ann")["id"]
            until(lambda: states(client, ann) == {"RUNNING": 16}, seconds=90)
            bob = client.submit(spec(tmp_path, 16), requestor="bob")["id"]
            half = {"RUNNING": 8, "WAITING": 8}
            until(lambda: states(client, ann) == states(client, bob) == half, seconds=90)
            held = {user: one["held"] for user, one in secret.scheduler(CLUSTER)["figures"]["users"].items()}
            assert held == {"ann": 8, "bob": 8}
            assert client.job(ann)["wait"]["reason"] == "fair-share"
            (tmp_path / "go").touch()
            until(lambda: states(client, ann) == states(client, bob) == {"COMPLETED": 16}, seconds=120)
            attempts = Counter(task["attempt"] for task in client.job(ann)["tasks"])
    assert attempts == {1: 8, 2: 8}, "what was stopped ran again, and nothing else did"
    done = (tmp_path / "done").read_text().split()
    assert sorted(done) == sorted({f"{job}-{k}" for job in (ann, bob) for k in range(16)}), "each item was done once"
