"""The wheel: holds the package alone, and works unpacked where no checkout is."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from rainbow.cli.demo import examples
from tests.conftest import grid, jobspec
from tests.scenarios.test_demo import assert_nothing_is_left
from tests.scenarios.test_end_to_end import until
from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
SECRET = {"RAINBOW_REGISTRATION_SECRET": "rbr_of-the-wheel", "RAINBOW_ADMIN_TOKEN": "rba_of-the-wheel"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built of the checkout, as `pip install` builds it."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(folder),
    ]
    made = subprocess.run([*command, str(ROOT)], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    [result] = folder.glob("*.whl")
    return result


def test_wheel_holds_the_package_alone(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        tops = {name.split("/")[0] for name in packed.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"rainbow"}


@pytest.fixture
def unpacked(wheel: Path, tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A server that runs from the unpacked wheel in a folder of its own: its URL, and its environment."""
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path / "site")
    stored = {key: value for key, value in os.environ.items() if not key.startswith(("RAINBOW_", "PYTHON"))}
    path = os.pathsep.join([str(tmp_path / "site"), sysconfig.get_path("purelib")])
    options = {**stored, **SECRET, "PYTHONPATH": path, "HOME": str(tmp_path), "PYTHONSAFEPATH": "1"}
    port = free_port()
    command = [
        sys.executable,
        "-S",
        "-m",
        "rainbow",
        "serve",
        "--port",
        str(port),
    ]  # -S: the checkout is out of sight
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(command, env=options, cwd=tmp_path, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}", options
    finally:
        server.terminate()
        server.wait(30)


def test_unpacked_wheel_serves_registers_and_takes_a_job(unpacked: tuple[str, dict[str, str]]) -> None:
    url, options = unpacked
    where = subprocess.run(
        [sys.executable, "-S", "-c", "import rainbow; print(rainbow.__file__)"],
        env=options,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(ROOT / "rainbow") not in where.stdout
    until(lambda: _answers(url))
    bearer = {"Authorization": f"Bearer {SECRET['RAINBOW_REGISTRATION_SECRET']}"}
    made = httpx.post(f"{url}/v1/clusters", json={"name": "oak", "graph": grid(1, 2)}, headers=bearer)
    assert made.status_code == 201, made.text
    token = {"Authorization": f"Bearer {made.json()['token']}"}
    placed = httpx.post(f"{url}/v1/jobs", json=jobspec(), headers=token)
    assert (placed.status_code, placed.json()["cluster"]) == (201, "oak"), placed.text


def test_demo_of_the_wheel_runs_every_jobspec_as_expected_and_ends_all_it_started(
    unpacked: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    options, demo = {**unpacked[1], "TMPDIR": str(tmp_path)}, [sys.executable, "-S", "-m", "rainbow", "demo"]
    subprocess.run([*demo, "--files", "there"], env=options, cwd=tmp_path, capture_output=True, check=True)
    assert (tmp_path / "there/graphs/willow/cluster.json").is_file()
    done = subprocess.run(demo, env=options, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert all(file in done.stdout for file in examples.jobspecs())
    assert all(one.name in done.stdout for one in examples.clusters())
    assert "Next, the same by hand" in done.stdout
    assert_nothing_is_left(tmp_path)


def test_wheel_shows_the_pages_of_its_version(unpacked: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    command = [sys.executable, "-S", "-m", "rainbow", "docs", "why"]
    shown = subprocess.run(command, env=unpacked[1], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == (ROOT / "docs" / "why.md").read_text().strip()


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz").status_code == 200
    except httpx.TransportError:
        return False
