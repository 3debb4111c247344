"""A job's page: headline, definition, elements; the list of jobs: one search box; changes with before and after."""

from __future__ import annotations

import re

import pytest

from tests.conftest import ADMIN, Api, Clock, Cluster, jobspec
from tests.support.page_client import Browser, read, submit


def test_a_job_that_failed_begins_with_what_failed(api: Api, oak: Cluster) -> None:
    job = submit(api, oak.token, name="train")[0]
    oak.take()  # now its agent is known
    [offer] = oak.take()
    oak.end(offer, output="reading\nno such file: input.13\n", result="exited", exit_code=5)
    page = Browser(api, oak.token).get(f"/jobs/{job}")
    head = page.index("failed with exit code 5")
    assert "no such file: input.13" in page[head : head + 200]
    assert head < page.index("What it is") < page.index("Which clusters can run it?")
    read(page)


def test_the_definition_is_shown_with_what_comes_before_and_after(api: Api, oak: Cluster) -> None:
    first = api.good("POST", "/v1/jobs", {"jobspec": jobspec(), "name": "fetch"}, oak.token)
    system = {"dependencies": [{"scheme": "afterok", "value": first["id"]}], "cwd": "/srv/net", "duration": 600}
    spec = jobspec(2, ["./train.sh", "a b"], **system)
    second = api.good("POST", "/v1/jobs", {"jobspec": spec, "name": "train"}, oak.token)
    page = Browser(api, oak.token).get(f"/jobs/{second['id']}")
    for text in ("./train.sh a b", "/srv/net", "Jobspec, as submitted", f'<a href="/jobs/{first["id"]}">'):
        assert text in page
    assert f'<a href="/jobs/{second["id"]}">' in Browser(api, oak.token).get(f"/jobs/{first['id']}")


def test_jobs_up_to_two_steps_away_are_drawn_as_links(api: Api, oak: Cluster) -> None:
    """A chain of seven, of which the middle is looked at, and a second one that waits for it."""
    ids: list[str] = []
    for name, after in (*zip("abcdefg", [[], [0], [1], [2], [3], [4], [5]], strict=True), ("side", [3])):
        waits = [{"scheme": "afterok", "value": ids[one]} for one in after]
        made = api.good(
            "POST",
            "/v1/jobs",
            {"jobspec": jobspec(**({"dependencies": waits} if waits else {})), "name": name},
            oak.token,
        )
        ids.append(made["id"])
    page = Browser(api, oak.token).get(f"/jobs/{ids[3]}")
    drawn = re.findall(r'<a href="/jobs/([0-9a-f]+)" aria-label="job \d+ (\w+): (\w+)">', page)
    assert sorted(drawn) == sorted(
        (ids[k], name, "waiting") for k, name in ((1, "b"), (2, "c"), (4, "e"), (5, "f"), (7, "side"))
    )
    assert page.count("<path d=") == 5
    read(page)
    assert 'id="relatives"' not in Browser(api, oak.token).get(f"/jobs/{submit(api, oak.token)[0]}")


def test_each_element_of_an_array_is_a_link_with_its_state(api: Api, oak: Cluster) -> None:
    job = submit(api, oak.token, jobspec=jobspec(array="1-40"), name="sweep")[0]
    oak.take()  # now its agent is known
    offer = oak.take()[0]
    oak.end(offer, result="exited", exit_code=5)
    page = Browser(api, oak.token).get(f"/jobs/{job}")
    labels = re.findall(r'<a href="\?after=-?\d+#tasks" aria-label="([^"]+)">', page)
    assert len(labels) == 40
    assert sum(label.endswith(": failed, exit code 5") for label in labels) == 1
    assert "element 40: waiting" in labels


@pytest.mark.parametrize(
    ("search", "shown"),
    [("state:waiting user:ann", ["one", "two"]), ("wo", ["two"]), ("user:bob", []), ("user: state:", ["one", "two"])],
)
def test_one_box_finds_jobs(api: Api, oak: Cluster, search: str, shown: list[str]) -> None:
    for name in ("one", "two"):
        submit(api, oak.token, name=name, requestor="ann")
    answer = Browser(api, oak.token).client.get("/jobs", query_string={"q": search})
    names = re.findall(r'<a href="/jobs/[0-9a-f]+">(\w+)</a>', answer.get_data(as_text=True))
    assert (answer.status_code, sorted(names)) == (200, shown)


def test_a_number_or_a_name_opens_its_job(api: Api, oak: Cluster) -> None:
    made = api.good("POST", "/v1/jobs", {"jobspec": jobspec(), "name": "train"}, oak.token)
    browser = Browser(api, oak.token)
    for text in (str(made["number"]), "train", made["id"][:20]):
        answer = browser.client.get("/jobs", query_string={"q": text})
        assert (answer.status_code, answer.headers["Location"]) == (303, f"/jobs/{made['id']}"), text
    for text in ("\u202e", "-y", "a\nb", "$(x)", "1042"):
        read(browser.client.get("/jobs", query_string={"q": text}).get_data(as_text=True))
    assert browser.client.get("/jobs", query_string={"q": "color:red"}).status_code == 400


def test_changes_have_before_and_after_and_a_policy_is_one_row(api: Api, oak: Cluster, clock: Clock) -> None:
    api.good("PATCH", "/v1/clusters/oak/scheduler", {"limits": {"max_retries": 7}}, oak.secret)
    clock.now += 60
    api.good("PATCH", "/v1/clusters/oak/scheduler", {"policy": "priority"}, oak.secret)
    page = Browser(api, ADMIN).get("/clusters/oak?tab=settings")
    rows = re.findall(
        r'data-label="What">(.*?)</td>.*?Before.*?<code>(.*?)</code>.*?After.*?<code>(.*?)</code>', page
    )
    assert [row[0] for row in rows].count("policy") == 1
    assert len(rows) == 2
    assert rows[0][1:] == ("load_based", "priority")
    assert rows[1][2] == "7"
