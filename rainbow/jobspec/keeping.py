"""A jobspec that was read as a mapping → what a store that knows JSON can keep of it without loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from rainbow.jobspec.text import Limits
from rainbow.jobspec.written import WrittenFloat, WrittenInt


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent(tag: str) -> Any:
    return lambda dumper, number: dumper.represent_scalar(f"tag:yaml.org,2002:{tag}", str(number))


_Dumper.add_representer(WrittenInt, _represent("int"))
_Dumper.add_representer(WrittenFloat, _represent("float"))
_COMPACT: dict[str, Any] = {"default_flow_style": True, "sort_keys": False, "allow_unicode": True, "width": 1 << 20}


def keeping(document: Any) -> Any:
    """Return a document as it is, or as YAML where its numbers have texts of their own, which JSON would drop.

    >>> from rainbow.jobspec.text import load
    >>> keeping({"a": 1.1}), keeping(load("a: 1.10", Limits())[0])
    ({'a': 1.1}, '{a: 1.10}\\n')
    """
    if not _has_texts(document):
        return document
    text: str = yaml.dump(document, Dumper=_Dumper, **_COMPACT)
    return text if len(text) <= Limits().size else document  # what is kept must be read again


def _has_texts(document: Any) -> bool:
    stack = [document]
    while stack:
        part = stack.pop()
        if isinstance(part, (WrittenInt, WrittenFloat)):
            return True
        stack.extend(part.values() if isinstance(part, Mapping) else part if isinstance(part, list) else ())
    return False
