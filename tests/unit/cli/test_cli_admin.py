"""The admin token works for every command, wherever a token or a secret is accepted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from rainbow.cli import main, session
from rainbow.cli.exit_codes import Exit
from tests.conftest import ADMIN, grid, jobspec
from tests.support.live import rainbow_at

COMMANDS = [
    "cluster register --name oak GRAPH",
    "cluster list",
    "cluster show oak",
    "state set --cluster oak STATE",
    "state show oak",
    "subsystem register --cluster oak --name io SUBSYSTEM",
    "subsystem delete io --cluster oak",
    "match JOB",
    "submit JOB",
    "submit --queue --cluster oak JOB",
    "jobs",
    "scheduler show oak",
    "scheduler set oak --max-retries 1",
    "scheduler plan oak",
    "scheduler timeline oak",
    "worker list oak",
    "worker offline n0 --cluster oak",
    "worker reinstate n0 --cluster oak",
    "receive --cluster oak --wait 0",
    "token mint --cluster oak",
    "token list",
    "account create physics",
    "config reload",
    "config show --memory",
    "events --no-follow --after 0",
    "cluster drain oak",
    "cluster reinstate oak",
    "cluster delete oak --drain",
]


@pytest.mark.parametrize("how", ["RAINBOW_TOKEN", "RAINBOW_TOKEN_FILE", "RAINBOW_SECRET", "RAINBOW_SECRET_FILE"])
def test_admin_token_is_enough_for_every_command(tmp_path: Path, how: str) -> None:
    graph, job = tmp_path / "graph.json", tmp_path / "job.json"
    graph.write_text(json.dumps(grid(2, 2)))
    job.write_text(json.dumps(jobspec()))
    state, io = tmp_path / "state.json", tmp_path / "io.json"
    state.write_text("{}")
    nodes = {"io": {"metadata": {"type": "io"}}}
    io.write_text(json.dumps({"graph": {"nodes": nodes, "edges": [{"source": "n0", "target": "io"}]}}))
    saved, admin = tmp_path / "credentials.json", tmp_path / "admin"
    admin.write_text(ADMIN)
    options = {how: str(admin) if how.endswith("_FILE") else ADMIN}
    with rainbow_at(tmp_path) as url:
        session.save(saved, url, "elm", "rbt_of_another_cluster", "rbs_of_another_cluster")
        files = {"GRAPH": str(graph), "JOB": str(job), "STATE": str(state), "SUBSYSTEM": str(io)}
        known = {"RAINBOW_URL": url, "RAINBOW_CREDENTIALS": str(saved)}
        for command in COMMANDS:
            words = [files.get(word, word) for word in command.split()]
            result = CliRunner().invoke(main, words, env={**known, **options})
            assert result.exit_code not in (Exit.NOT_ALLOWED, Exit.USAGE), (command, result.output)
            assert "credential" not in result.output.lower(), (command, result.output)
