"""Make what is released, in `dist/`, with equal bytes from equal commits: `python -m release 0.2.0 --cache DIR`.

    rainbow_hpc-*.whl, .tar.gz   built by hatchling, without isolation, with the time of the commit
    sbom.json                    CycloneDX 1.6: every distribution of a fresh environment with the wheel
    SHA256SUMS, SHA256SUMS.sig   of all that; signed where SIGNING_KEY names a private key for SSH

The cache keeps the wheels of everything that the wheel needs: the first run fills it, and later runs need no network.
In the fresh environment the wheel must say its version and run the demo, else nothing is written.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import uuid
import venv
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DISTRIBUTION = "rainbow-hpc"
NAMESPACE = "release@rainbow"  # of signatures


class ReleaseError(Exception):
    """Something that keeps a release from being made."""


def main() -> int:
    """Make a release; return 0, or 1 with what is wrong on standard error."""
    parser = argparse.ArgumentParser(prog="python -m release", description="Make a release in dist/.")
    parser.add_argument("version", help="must be that of pyproject.toml and have its section in CHANGELOG.md")
    parser.add_argument("--cache", type=Path, default=ROOT / "build" / "release", help="wheels; filled at first")
    parser.add_argument("--into", type=Path, default=ROOT / "dist")
    parser.add_argument("--offline", action="store_true", help="take everything from the cache")
    parser.add_argument("--key", default=os.environ.get("SIGNING_KEY"), help="private key for SSH that signs")
    requests = parser.parse_args()
    try:
        check_tree(requests.version)
        made = make(requests.version, requests.cache.absolute(), offline=requests.offline)
        write(made, requests.into, requests.key)
        tag(requests.version, requests.key)
    except (ReleaseError, subprocess.CalledProcessError) as fault:
        print(f"release: {fault}", file=sys.stderr)
        return 1
    return 0


def check_tree(version: str) -> None:
    """Raise ReleaseError unless all of the tree is committed and says this version everywhere."""
    if changed := _git("status", "--porcelain"):
        raise ReleaseError(f"the checkout has changes that are not committed:\n{changed}")
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    own = re.search(r'^__version__ = "(.+)"$', (ROOT / "rainbow" / "__init__.py").read_text(), re.M)
    if {stated, own and own[1]} != {version}:
        raise ReleaseError(
            f"VERSION is {version}, pyproject.toml says {stated}, rainbow/__init__.py {own and own[1]}"
        )
    if not re.search(
        rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.M
    ):
        raise ReleaseError(f"CHANGELOG.md has no section `## [{version}] - DATE`")


def make(version: str, cache: Path, *, offline: bool) -> dict[str, bytes]:
    """Return the files of a release by name, tried in a fresh environment."""
    epoch = _git("log", "-1", "--format=%ct")
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder, "dist")
        options = {**os.environ, "SOURCE_DATE_EPOCH": epoch}
        _run(sys.executable, "-m", "hatchling", "build", "-d", str(built), env=options)
        [wheel] = built.glob("*.whl")
        python = environment(Path(folder, "venv"), wheel, cache, offline=offline)
        try_out(python, version)
        files = {path.name: path.read_bytes() for path in built.iterdir() if path.suffix in (".whl", ".gz")}
        return files | {"sbom.json": sbom(version, distributions(python), int(epoch))}


def environment(folder: Path, wheel: Path, cache: Path, *, offline: bool) -> str:
    """Make a fresh environment with the wheel and what it needs, all from the cache; return its Python."""
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    cache.mkdir(parents=True, exist_ok=True)
    if not offline:
        _run(python, "-m", "pip", "download", "--quiet", "--prefer-binary", "-d", str(cache), str(wheel))
        for path in cache.glob(wheel.name):
            path.unlink()
    words = ["--quiet", "--no-index", "--find-links", str(cache), str(wheel)]
    _run(python, "-m", "pip", "install", *words, env={**os.environ, "PIP_CONFIG_FILE": os.devnull})
    return python


def try_out(python: str, version: str) -> None:
    """Raise ReleaseError unless the installed command says this version and runs its demo."""
    own = {key: value for key, value in os.environ.items() if not key.startswith(("RAINBOW_", "PYTHON"))}
    said = _run(python, "-m", "rainbow", "--version", env=own)
    if said.split()[-1] != version:
        raise ReleaseError(f"the wheel says {said.strip()}")
    with tempfile.TemporaryDirectory() as folder:
        _run(python, "-m", "rainbow", "demo", env={**own, "HOME": folder}, cwd=folder)


def distributions(python: str) -> list[dict[str, Any]]:
    """Return every distribution of an environment as `pip list` names it, with its license and what it needs."""
    script = (
        "import importlib.metadata as m, json\n"
        "print(json.dumps([{'name': d.metadata['Name'], 'version': d.version, 'requires': d.requires or [],"
        " 'license': d.metadata.get('License-Expression') or ''} for d in m.distributions()]))"
    )
    return sorted(json.loads(_run(python, "-c", script)), key=lambda one: canonical(one["name"]))


def canonical(name: str) -> str:
    """Return the name of a distribution as indexes compare it.

    >>> canonical("PyYAML"), canonical("prometheus_client")
    ('pyyaml', 'prometheus-client')
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def sbom(version: str, results: list[dict[str, Any]], epoch: int) -> bytes:
    """Write the distributions as CycloneDX 1.6: equal bytes for equal distributions and commits."""
    refs = {canonical(one["name"]): f"pkg:pypi/{canonical(one['name'])}@{one['version']}" for one in results}
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([version, epoch, sorted(refs.values())]))
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": _component(next(one for one in results if canonical(one["name"]) == DISTRIBUTION), refs),
        },
        "components": [_component(one, refs) for one in results if canonical(one["name"]) != DISTRIBUTION],
        "dependencies": [
            {"ref": refs[canonical(one["name"])], "dependsOn": sorted(set(_needs(one, refs)))} for one in results
        ],
    }
    return json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"


def _component(one: dict[str, Any], refs: dict[str, str]) -> dict[str, Any]:
    ref = refs[canonical(one["name"])]
    kind = "application" if canonical(one["name"]) == DISTRIBUTION else "library"
    license_ = {"licenses": [{"expression": one["license"]}]} if one["license"] else {}
    return {"type": kind, "bom-ref": ref, "name": one["name"], "version": one["version"], "purl": ref, **license_}


def _needs(one: dict[str, Any], refs: dict[str, str]) -> Iterator[str]:
    """Yield what a distribution needs of those that are there, extras left out."""
    for text in one["requires"]:
        name = re.match(r"[A-Za-z0-9._-]+", text)
        if name and "extra ==" not in text and (ref := refs.get(canonical(name[0]))):
            yield ref


def write(files: dict[str, bytes], into: Path, key: str | None) -> None:
    """Write the files and their sums, signed where there is a key, in place of what was there."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    for name, content in files.items():
        (into / name).write_bytes(content)
    sums = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(files.items()))
    (into / "SHA256SUMS").write_text(sums)
    print(sums, end="")
    if key:
        _run("ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", NAMESPACE, str(into / "SHA256SUMS"))
    else:
        print("no SIGNING_KEY: the sums are not signed, and no tag is made")


def tag(version: str, key: str | None) -> None:
    """Tag the commit, signed by the key, unless it has that tag."""
    if key and f"v{version}" not in _git("tag", "--points-at", "HEAD").split():
        own = ("-c", "gpg.format=ssh", "-c", f"user.signingkey={key}")
        _run("git", *own, "tag", "-s", f"v{version}", "-m", f"Rainbow {version}", cwd=ROOT)


def _git(*words: str) -> str:
    return _run("git", *words, cwd=ROOT).strip()


def _run(*words: str, **options: Any) -> str:
    options.setdefault("cwd", ROOT)
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)  # noqa: S603 - our own words
    if done.returncode:
        raise ReleaseError(f"{' '.join(words)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return str(done.stdout)


if __name__ == "__main__":
    sys.exit(main())
