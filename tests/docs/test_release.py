"""`make release`: equal bytes from two paths, the second offline; sums and tag verify, a changed byte does not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from release.__main__ import canonical, sbom
from tests.support.shell import ROOT

OWN = {"GIT_AUTHOR_NAME": "r", "GIT_AUTHOR_EMAIL": "r@r", "GIT_COMMITTER_NAME": "r", "GIT_COMMITTER_EMAIL": "r@r"}


def run(*words: object, cwd: Path, code: int = 0, **more: str) -> str:
    env = {**os.environ, **OWN, **more}
    done = subprocess.run([str(word) for word in words], cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_list_of_parts_names_each_and_is_the_same_again() -> None:
    results = [
        {"name": "rainbow-hpc", "version": "0.2.0", "requires": ["PyYAML>=6", "x; extra == 'dev'"], "license": "MIT"},
        {"name": "PyYAML", "version": "6.0", "requires": [], "license": "MIT"},
        {"name": "pip", "version": "25", "requires": [], "license": ""},
    ]
    answer = json.loads(sbom("0.2.0", results, 1_700_000_000))
    assert (answer["bomFormat"], answer["specVersion"], answer["metadata"]["timestamp"]) == (
        "CycloneDX",
        "1.6",
        "2023-11-14T22:13:20Z",
    )
    names = {answer["metadata"]["component"]["name"], *(one["name"] for one in answer["components"])}
    assert names == {one["name"] for one in results}
    assert {"ref": "pkg:pypi/rainbow-hpc@0.2.0", "dependsOn": ["pkg:pypi/pyyaml@6.0"]} in answer["dependencies"]
    assert sbom("0.2.0", list(results), 1_700_000_000) == sbom("0.2.0", results, 1_700_000_000)
    assert canonical("a_B.c") == "a-b-c"


@pytest.mark.soak
def test_two_paths_make_equal_bytes_and_signatures_verify(tmp_path: Path) -> None:
    if not shutil.which("ssh-keygen"):
        pytest.skip("needs ssh-keygen")
    first, second, cache = tmp_path / "one", tmp_path / "a" / "longer" / "path", tmp_path / "cache"
    run("git", "clone", "-q", ROOT, first, cwd=tmp_path)
    text = (first / "CHANGELOG.md").read_text()
    (first / "CHANGELOG.md").write_text(text.replace("## Unreleased", "## Unreleased\n\n## [0.1.0] - 2030-01-31", 1))
    run("git", "commit", "-qam", "changelog: date the release", cwd=first)
    run("git", "clone", "-q", first, second, cwd=tmp_path)
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key", cwd=tmp_path)
    made = (sys.executable, "-m", "release", "0.1.0", "--cache", cache)
    assert "not signed" in run(*made, cwd=first)
    run(*made, "--offline", cwd=second, SIGNING_KEY=str(tmp_path / "key"))
    sums = (second / "dist" / "SHA256SUMS").read_bytes()
    assert sums == (first / "dist" / "SHA256SUMS").read_bytes()
    run("sha256sum", "-c", "SHA256SUMS", cwd=second / "dist")
    allowed = tmp_path / "allowed"
    allowed.write_text(f"me {(tmp_path / 'key.pub').read_text()}")
    verify = (
        "ssh-keygen",
        "-Y",
        "verify",
        "-f",
        allowed,
        "-I",
        "me",
        "-n",
        "release@rainbow",
        "-s",
        "SHA256SUMS.sig",
    )
    for content, good in ((sums, True), (sums[:-2] + b"x\n", False)):
        done = subprocess.run([str(word) for word in verify], cwd=second / "dist", input=content, capture_output=True)
        assert (done.returncode == 0) is good
    own = ("-c", f"gpg.ssh.allowedSignersFile={allowed}", "-c", "gpg.format=ssh")
    assert "Good" in run("git", *own, "tag", "-v", "v0.1.0", cwd=second)
    assert "is 0.9.9" in run(sys.executable, "-m", "release", "0.9.9", cwd=first, code=1)
