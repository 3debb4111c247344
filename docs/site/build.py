"""Build the site: `python docs/site/build.py` writes build/site/index.html. A warning is an error.

The pages of docs/ and those of pages.py are put together in build/pages, which Sphinx reads.
"""

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


if __name__ == "__main__":
    gather(ROOT / "build" / "pages")
    words = ["-W", "--keep-going", "-q", "-j", "auto", "-E", "-c", str(HERE)]
    sys.exit(main([*words, str(ROOT / "build" / "pages"), str(ROOT / "build" / "site"), *sys.argv[1:]]))
