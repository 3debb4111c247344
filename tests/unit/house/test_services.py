"""The set-up of the tests: what is missing is said, skipped here and failed where CI is set."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.scenarios.test_end_to_end import ROOT
from tests.support import services
from tests.support.services import Wanted


def nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(services.SERVICES, "Nothing", Wanted(("no-such-package",), ("no-such-program",)))


def test_service_that_is_not_there_skips_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing(monkeypatch)
    monkeypatch.setattr(services, "CI", False)
    with pytest.raises(pytest.skip.Exception, match="no no-such-program"):
        services.require("Nothing")


def test_service_that_is_not_there_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing(monkeypatch)
    monkeypatch.setattr(services, "CI", True)
    with pytest.raises(pytest.fail.Exception, match="apt-get install no-such-package"):
        services.require("Nothing")


@pytest.mark.parametrize(("ci", "code"), [(True, 1), (False, 0)])
def test_what_cannot_be_installed_fails_in_ci_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ci: bool, code: int
) -> None:
    nothing(monkeypatch)
    monkeypatch.setattr(services, "CI", ci)
    monkeypatch.setattr(services, "_install", lambda packages: "there is no network")
    assert services.main() == code
    assert "no-such-program" in capsys.readouterr().out


@pytest.mark.parametrize(("ci", "left"), [(True, pytest.fail.Exception), (False, pytest.skip.Exception)])
def test_package_that_is_not_installed_fails_in_ci_and_skips_elsewhere(
    monkeypatch: pytest.MonkeyPatch, ci: bool, left: type[BaseException]
) -> None:
    monkeypatch.setattr(services, "CI", ci)
    with pytest.raises(left, match="no_such_package is not installed"):
        services.package("no_such_package")
    assert services.package("json").dumps({}) == "{}"


def test_folder_that_was_named_is_looked_in_first(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("RAINBOW_POSTGRES_BIN", str(tmp_path))
    assert services.SERVICES["PostgreSQL"].absent() == ["initdb", "pg_ctl"]


def test_set_up_says_nothing_where_all_is_there() -> None:
    for service in services.SERVICES:
        services.require(service)
    done = subprocess.run([sys.executable, "-m", "tests.support.services"], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
