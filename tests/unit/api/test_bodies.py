"""What a request may bring as its body: gzip or nothing, JSON with every key once, and what curl sends as a form."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from tests.conftest import REGISTRATION, Api, grid, jobspec

YAML = "version: 1\nresources: {work: {type: core}}\ntasks:\n- command: [echo, hello]\n  resources: work\n"


def test_body_in_gzip_is_read(api: Api) -> None:
    oak = api.register()
    body = gzip.compress(json.dumps(jobspec()).encode())
    for kind in ("application/json", "application/yaml"):
        answer = api.call("POST", "/v1/jobs", body, oak.token, Content_Encoding="gzip", Content_Type=kind)
        assert answer.status_code == 201, answer.get_data(as_text=True)
    graph = gzip.compress(json.dumps({"name": "elm", "graph": grid(2, 2)}).encode())
    answer = api.call("POST", "/v1/clusters", graph, REGISTRATION, Content_Encoding="gzip")
    assert answer.status_code == 201


@pytest.mark.parametrize(
    ("encoding", "body", "status", "told"),
    [
        ("br", b"x", 400, "Content-Encoding must be gzip or identity, got br"),
        ("gzip", b"not gzip", 400, "the body is not gzip"),
        ("gzip", gzip.compress(b"{}")[:-3], 400, "it ends before its end"),
        ("gzip", gzip.compress(b"{}") + b"more", 400, "something follows it"),
        ("gzip", gzip.compress(b" " * (20 << 20)), 413, "request body exceeds the limit of"),
    ],
    ids=["another encoding", "not gzip", "cut short", "followed", "a bomb"],  # the bytes hold the time of day
)
def test_other_encodings_are_refused_by_name_and_no_bomb_is_unpacked(
    api: Api, encoding: str, body: bytes, status: int, told: str
) -> None:
    oak = api.register()
    answer = api.call("POST", "/v1/jobs", body, oak.token, Content_Encoding=encoding)
    assert (answer.status_code, told in answer.get_json()["detail"]) == (status, True), answer.get_json()


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/match", "/v1/jobs:batch"])
def test_json_with_a_key_that_comes_twice_is_refused(api: Api, path: str) -> None:
    oak = api.register()
    text = '{"jobspec": {"version": 1, "version": 2}, "name": "a"}'
    answer = api.call("POST", path, text, oak.token, Content_Type="application/json")
    assert answer.status_code == 400
    assert "the key 'version' comes twice" in answer.get_json()["detail"]


def test_curl_with_d_gets_the_hint_it_needs_and_json_sent_so_is_read(api: Api) -> None:
    """`curl -d @file` takes the line breaks out and calls what is left a form."""
    oak = api.register()
    form = "application/x-www-form-urlencoded"
    answer = api.call("POST", "/v1/jobs", YAML.replace("\n", ""), oak.token, Content_Type=form)
    assert answer.status_code in (400, 422)
    assert "--data-binary @FILE -H 'Content-Type: application/yaml'" in answer.get_json()["detail"]
    assert api.call("POST", "/v1/jobs", YAML, oak.token, Content_Type=form).status_code == 201
    assert api.call("POST", "/v1/jobs", json.dumps(jobspec()), oak.token, Content_Type=form).status_code == 201


def test_curl_with_f_gets_the_hint_it_needs(api: Api) -> None:
    oak = api.register()
    body: Any = b'--x\r\nContent-Disposition: form-data; name="f"; filename="j"\r\n\r\n{}\r\n--x--\r\n'
    answer = api.call("POST", "/v1/jobs", body, oak.token, Content_Type="multipart/form-data; boundary=x")
    assert answer.status_code == 400
    assert "the body is a form with files; with curl send the file as it is" in answer.get_json()["detail"]
