"""Whose request it is behind a proxy: what our own proxies say is believed, what strangers write is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rainbow.api.front import Front
from rainbow.api.wire import address_of
from rainbow.errors import ConfigError
from rainbow.service import settings_of
from tests.conftest import ADMIN, Api
from tests.support.asgi import Request, ask

PROXIES = settings_of(b"server: {proxies: [127.0.0.1, 10.1.0.0/16, '::1']}").server.proxies


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("192.0.2.9", [], "192.0.2.9"),
        ("192.0.2.9", ["198.51.100.1"], "192.0.2.9"),  # no proxy of ours says it
        ("127.0.0.1", [], "127.0.0.1"),
        ("127.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("127.0.0.1", ["203.0.113.5, 198.51.100.1"], "198.51.100.1"),  # the first is what a stranger wrote
        ("127.0.0.1", ["203.0.113.5", "198.51.100.1, 10.1.2.3"], "198.51.100.1"),  # two proxies, two headers
        ("::1", ["2001:db8::7"], "2001:db8::7"),
        ("127.0.0.1", ["unknown"], "127.0.0.1"),
        ("127.0.0.1", [", ,"], "127.0.0.1"),
        ("127.0.0.1", ["10.1.0.1"], "10.1.0.1"),  # a request of the proxy's own
    ],
)
def test_address_is_that_which_the_first_proxy_saw(peer: str, forwarded: list[str], address: str) -> None:
    headers = [(b"x-forwarded-for", value.encode()) for value in forwarded]
    assert address_of({"client": (peer, 4711), "headers": headers}, PROXIES) == address
    assert address_of({"client": (peer, 4711), "headers": headers}, ()) == peer


@pytest.mark.parametrize(
    ("written", "pointer"), [("10.1.0.0/16", ""), ("[10.1.0.1/16]", "/0"), ("[proxy.example]", "/0"), ("[7]", "/0")]
)
def test_what_is_no_network_is_refused_by_its_place(written: str, pointer: str) -> None:
    with pytest.raises(ConfigError) as raised:
        settings_of(f"server: {{proxies: {written}}}".encode())
    assert raised.value.pointer == f"/server/proxies{pointer}"


def test_audit_and_logins_count_the_user_behind_a_proxy(api: Api) -> None:
    api.service.settings = replace(api.service.settings, server=replace(api.service.settings.server, proxies=PROXIES))
    front, oak = Front(api.app, api.service), api.register()
    via = {"x-forwarded-for": "198.51.100.1"}
    [answer] = ask(front, Request("POST", "/v1/clusters/oak:drain", b"{}", oak.secret, via))
    assert answer.status == 200, answer.body
    [answer] = ask(front, Request("GET", "/v1/audit", token=ADMIN))
    assert answer.json()["audit"][0]["address"] == "198.51.100.1"
