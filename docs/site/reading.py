"""How the pages read: `python docs/site/reading.py` prints the measures of every page; -v adds the sentences.

Only prose counts: code, tables, headings and directives are left out. The measures are a floor. They find habits that
make a page hard to read; whether a page answers a question, only its readers can say.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GUIDES = ("Tutorials", "How-to")  # the sections of the index whose pages are mostly to be read from top to bottom
ABSTRACT = re.compile(r"^(of|what|who|whose|whoever|whatever|nobody|somebody|beside|besides)\b", re.I)
VAGUE = re.compile(r"\b(what|who|nobody)\b", re.I)  # in the first line of a docstring


@dataclass
class Measures:
    """The measures of a page, or of several."""

    sentences: int = 0
    words: int = 0  # of the sentences
    all_words: int = 0  # of the file, with code and tables
    semicolons: int = 0
    you: int = 0
    abstract: list[str] = field(default_factory=list)
    crammed: list[str] = field(default_factory=list)

    def figures(self) -> dict[str, float]:
        """Return the figures that have limits."""
        sentences, words = max(self.sentences, 1), max(self.words, 1)
        return {
            "semicolons": 1000 * self.semicolons / words,
            "abstract": 100 * len(self.abstract) / sentences,
            "crammed": 100 * len(self.crammed) / sentences,
            "you": 1000 * self.you / words,
            "prose": 100 * self.words / max(self.all_words, 1),
        }


def sentences(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each sentence of a page of Markdown with its words; fewer than four words are no sentence."""
    text = re.sub(r"\A---\n.*?\n---\n|<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r"(?ms)^[ \t]*(```+|~~~+|:::+).*?^[ \t]*\1[^\n]*$", "\n", text)
    text = re.sub(r"(?m)^[ \t]*(\||\+[-=]|#|</?[a-z]|<[A-Z]|import |!\[|\{|=+$|>>>|\.\.\.).*$", "\n", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"``?([^`]+)``?", lambda code: "code" if re.search(r"\W", code[1].strip("-")) else code[1], text)
    text = re.sub(r"[*_]{1,2}(\S.*?\S|\S)[*_]{1,2}", r"\1", text)
    for block in re.split(r"\n\s*\n|\n(?=[ \t]*(?:[-*+•]|\d+[.)])[ \t])", text):
        line = " ".join(re.sub(r"^[ \t]*(?:[-*+•]|\d+[.)])[ \t]+", "", block.strip()).split())
        for sentence in re.split(r"(?<=[.!?])[\"')\]]?\s+(?=[A-Z`\"'(\[0-9])", line):
            words = re.findall(r"[A-Za-z][A-Za-z'’\-]*", sentence)
            if len(words) >= 4:
                yield sentence, [word.lower() for word in words]


def measure(texts: Iterable[str]) -> Measures:
    """Return the measures of texts."""
    sums = Measures()
    for text in texts:
        sums.all_words += len(text.split())
        for sentence, words in sentences(text):
            sums.sentences += 1
            sums.words += len(words)
            sums.semicolons += sentence.count(";")
            sums.you += sum(word in ("you", "your", "we", "our") for word in words)
            if ABSTRACT.match(sentence) and not sentence.rstrip().endswith("?"):
                sums.abstract.append(sentence)
            if sentence.count(";") + sentence.count(": ") + sentence.count(" – ") >= 2:
                sums.crammed.append(sentence)
    return sums


def pages() -> dict[str, str]:
    """Return the text of every page, the README first."""
    return {path.name: path.read_text() for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}


def guides(index: str) -> set[str]:
    """Return the pages of Markdown that the index lists as tutorials and how-to guides."""
    sections = re.split(r"^## (.*)$", index, flags=re.M)[1:]
    lists = [text for title, text in zip(sections[::2], sections[1::2], strict=True) if title.startswith(GUIDES)]
    return set(re.findall(r"\]\(([\w-]+\.md)\)", "".join(lists)))


def docstrings() -> Iterator[tuple[str, str]]:
    """Yield every docstring of the package with its place."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for path in sorted((ROOT / "rainbow").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, kinds) and (text := ast.get_docstring(node)):
                yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}", text


def whole() -> dict[str, float]:
    """Return the figures of all pages: the share of prose is that of the guides, vague that of the docstrings."""
    texts = pages()
    figures = measure(texts.values()).figures()
    prose = measure(texts[name] for name in guides(texts["index.md"])).figures()["prose"]
    firsts = [text.partition("\n")[0] for _, text in docstrings()]
    vague = 100 * sum(bool(VAGUE.search(first)) for first in firsts) / len(firsts)
    return {**figures, "prose": prose, "vague": vague}


if __name__ == "__main__":
    for name, text in pages().items():
        found = measure([text])
        print(f"{name:26}", *(f"{key} {figure:5.1f}" for key, figure in found.figures().items()), sep="  ")
        if "-v" in sys.argv:
            print(*(f"    abstract  {one}" for one in found.abstract), sep="\n")
            print(*(f"    crammed   {one}" for one in found.crammed), sep="\n")
    print(f"{'all':26}", *(f"{key} {figure:5.1f}" for key, figure in whole().items()), sep="  ")
