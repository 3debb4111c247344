"""Sphinx's configuration; `python docs/site/build.py` builds the site."""

import re
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).resolve().parent))

from rainbow import __version__

project, author, release = "Rainbow", "the Rainbow authors", __version__
project_copyright = "the Rainbow authors"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton"]
html_theme = "furo"
html_title = f"Rainbow {release}"
html_logo = None
html_show_sourcelink = False
# pictures in two themes are named by HTML that Sphinx does not read
html_extra_path = [
    str(path) for path in Path(__file__).parents[1].glob("*-*.*") if path.stem.endswith(("-light", "-dark"))
]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
nb_execution_mode = "force"  # the notebook is stored without outputs
nb_execution_raise_on_error = True
nb_execution_timeout = 120
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_class_signature = "separated"
python_use_unqualified_type_names = True
SOURCE = "https://github.com/rainbow-scheduler/rainbow/blob/main/"
# a link that leaves the pages: to a file of the repository, or to a record of a decision
OUTSIDE = re.compile(r"\]\((?:\.\./([^)\s]+)|((?:design|site)/[^)\s]+|[^):#/\s]+\.(?:json|py|yaml)))\)")


def outward(page: str) -> str:
    """Let links that leave the pages lead to the repository."""
    return OUTSIDE.sub(lambda result: f"]({SOURCE}{result[1] or f'docs/{result[2]}'})", page)


def sidebar(index: str) -> str:
    """Return the tables of contents of the sidebar: the links of each section of the index."""
    parts = re.split(r"^## (.*)$", index, flags=re.M)[1:]
    trees = []
    for title, section in zip(parts[::2], parts[1::2], strict=True):
        pages = dict.fromkeys(re.findall(r"\]\(([\w-]+)\.(?:md|ipynb)\)", section))
        trees.append(
            f"```{{toctree}}\n:hidden:\n:caption: {title.partition(':')[0]}\n\n" + "\n".join(pages) + "\n```\n"
        )
    return "\n".join(trees)


GENERATED = """
- [HTTP API: every operation](http-api.md)
- [Python API](python-api.md)
- [Codes](codes.md)
"""


def read(app: Sphinx, name: str, source: list[str]) -> None:
    """Prepare a page: its links, and in the index the generated pages and the sidebar."""
    from reference import filled

    page = filled(outward(source[0]))
    if name == "index":
        page = re.sub(r"(?m)^(## Reference.*)$", rf"\1\n{GENERATED}", page, count=1)
        page = f"{page}\n\n{sidebar(page)}"
    source[0] = page


def as_rst(app: Any, what: str, name: str, of: Any, options: Any, lines: list[str]) -> None:
    """Write a docstring, whose only marks are backticks and examples, as reStructuredText."""
    for at, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            quoted = re.split(r"(`[^`]+`)", line)
            lines[at] = "".join(
                f"`{part}`" if part.startswith("`") else re.sub(r"([*|\\_])", r"\\\1", part) for part in quoted
            )


def setup(app: Sphinx) -> None:
    """Connect what prepares pages and docstrings."""
    app.connect("source-read", read)
    app.connect("autodoc-process-docstring", as_rst)
