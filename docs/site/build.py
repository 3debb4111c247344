"""Build the site: `python docs/site/build.py` writes build/site/index.html. A warning is an error.

The pages of docs/ and those of pages.py are put together in build/pages, which Sphinx reads.
"""

import json
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(HERE)]

from pages import PAGES  # noqa: E402
from sphinx.cmd.build import main  # noqa: E402 - after the path is set


def gather(folder: Path) -> None:
    """Put the written and the generated pages into a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path in (ROOT / "docs").iterdir():
        if path.suffix in (".md", ".ipynb", ".svg", ".json"):
            shutil.copy(path, folder)
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8")


def redirect(folder: Path) -> None:
    """Let the address of each page that has moved lead to the page that has its text now."""
    for old, new in json.loads((ROOT / "docs" / "moved.json").read_text()).items():
        (folder / f"{old}.html").write_text(
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Moved: {new}</title>'
            f'<meta http-equiv="refresh" content="0; url={new}.html"><link rel="canonical" href="{new}.html">'
            f'<p>This page is now <a href="{new}.html">{new}</a>.</p></html>\n'
        )


if __name__ == "__main__":
    gather(ROOT / "build" / "pages")
    words = ["-W", "--keep-going", "-q", "-j", "auto", "-E", "-c", str(HERE)]
    failed = main([*words, str(ROOT / "build" / "pages"), str(ROOT / "build" / "site"), *sys.argv[1:]])
    redirect(ROOT / "build" / "site")
    sys.exit(failed)
