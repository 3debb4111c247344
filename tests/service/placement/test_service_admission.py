"""Admission limits when many submit at once (S3): the original accepted five jobs where one was allowed."""

import threading

import pytest

from tests.conftest import grid, jobspec
from tests.service.core.test_scatter import bag

SENDERS = 16


def at_once(api, token, bodies):
    """Submit all at the same moment; return their statuses."""
    statuses, gate = [], threading.Barrier(len(bodies))

    def send(body):
        gate.wait()
        statuses.append(api.call("POST", "/v1/jobs", body, token).status_code)

    threads = [threading.Thread(target=send, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(statuses)


@pytest.mark.parametrize(
    ("limit", "most", "tasks", "taken"),
    [
        ("max_jobs_per_requestor", 1, 1, 1),
        ("max_jobs_per_requestor", 5, 1, 5),
        ("max_requestors", 3, 1, 3),
        ("max_waiting_tasks", 7, 2, 3),
        ("throttle", 4, 1, 4),
        ("throttle", 0, 1, 0),
    ],
)
def test_limit_holds_however_many_submit_at_once(api, limit, most, tasks, taken):
    oak = api.register("oak", grid(2, 1))
    api.good("PATCH", "/v1/clusters/oak/scheduler", {"limits": {limit: most}}, oak.secret)
    spec = jobspec(1) if tasks == 1 else bag(tasks)
    names = [f"r{k}" if limit == "max_requestors" else "ann" for k in range(SENDERS)]
    result = at_once(api, oak.token, [{"jobspec": spec, "requestor": name} for name in names])
    assert result == [201] * taken + [429] * (SENDERS - taken)
    listed = api.good("GET", "/v1/jobs", None, oak.token)["jobs"]
    assert len(listed) == taken  # what is refused leaves no trace
