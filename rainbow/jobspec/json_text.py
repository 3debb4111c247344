"""JSON is YAML but for two things: pairs of escapes for one character, and numbers with an exponent and no point."""

from __future__ import annotations

import json
import re
from typing import Any

_PAIR = re.compile(r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


def is_json(text: str) -> bool:
    """Tell whether a text is a JSON object; what json cannot read for its depth or size is left to YAML's limits."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def join_pairs(text: str) -> str:
    r"""Write a character for each pair of escapes, which YAML takes for two broken ones.

    >>> join_pairs(r'["\\ud83d\\ude00", "\ud83d\ude00"]')
    '["\\\\ud83d\\\\ude00", "😀"]'
    """
    return _PAIR.sub(lambda pair: pair[1] + _character(pair[2], pair[3]), text)


def _character(high: str, low: str) -> str:
    return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)


def number(node: Any) -> float | None:
    """Read a word without quotes: in JSON it is a number, where YAML 1.1 sees text in 1e-05."""
    return None if node.style in ("'", '"') else float(node.value)
