"""A long journey through the page: no address fails, whatever happens meanwhile."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.conftest import ADMIN, Api, Clock, Cluster, grid, jobspec
from tests.support.page_client import Browser, every_page
from tests.unit.page.test_page import HOSTILE, RULES


@pytest.mark.soak
def test_no_page_fails_while_500_jobs_are_decided_run_and_end(api: Api, oak: Cluster, clock: Clock) -> None:
    """Whatever happens meanwhile: clusters come and go, drain, change; jobs end, are canceled, fit nowhere."""
    chance, browser = random.Random(23), Browser(api, ADMIN, acts=True)
    there, ids, statuses = {"oak": oak}, list[str](), Counter[int]()
    for k in range(500):
        clock.now += chance.random() * 20
        spec, name = jobspec(chance.choice((1, 1, 2, 9))), chance.choice(HOSTILE)
        made = api.call("POST", "/v1/jobs", {"jobspec": spec, "name": name, "requestor": f"user{k % 7}"}, ADMIN)
        ids += [made.json["id"]] if made.status_code in (200, 201) else []
        one = there[chance.choice(sorted(there))]
        for offer in one.take() if chance.random() < 0.6 else []:
            if chance.random() < 0.7:
                one.end(offer, exit_code=chance.choice((0, 0, 1)))
        if k % 20 == 3:
            there[f"c{k}"] = api.register(f"c{k}", grid(chance.randint(1, 4), 2))
        elif k % 20 == 9 and len(there) > 2:
            gone = chance.choice(sorted(set(there) - {"oak"}))
            api.call("DELETE", f"/v1/clusters/{gone}?drain=true", None, there.pop(gone).secret)
        elif k % 20 == 15 and ids:
            api.call("DELETE", f"/v1/jobs/{chance.choice(ids)}", None, ADMIN)
        elif k % 20 == 17:
            browser.post(f"/ui/clusters/oak/{chance.choice(('drain', 'reinstate'))}")
        paths = [f"/jobs/{one}" for one in ids[-1:] + chance.sample(ids, min(2, len(ids)))]
        paths += chance.sample(every_page(api, chance.choice(sorted(there)), ids[-1]), 3)
        statuses.update(browser.client.get(path).status_code for path in paths)
    answer = browser.post("/try", limit="500", config=RULES)
    assert f"{len(ids)} decided again" in answer.get_data(as_text=True)
    assert statuses.keys() <= {200, 404}, statuses
    assert statuses[200] > 2_000, statuses
