"""JSON text → value; what Python's reader lets through and JSON does not know is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from rainbow.errors import GraphError
from rainbow.graph.document import mapping


def decode(text: str) -> Mapping[str, Any]:
    """Return the mapping a JSON text holds; GraphError with line and column says where it is none."""
    try:
        value = json.loads(text.removeprefix("\ufeff"), parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise GraphError(f"this is not JSON: {error.msg}", line=error.lineno, column=error.colno) from error
    except RecursionError as error:
        raise GraphError("this is nested too deeply", pointer="") from error
    except ValueError as error:  # an integer of more digits than Python converts
        raise GraphError("a number has too many digits", pointer="") from error
    return mapping(value, "", "the document")


def _refuse(constant: str) -> NoReturn:
    raise GraphError(f"{constant} is not JSON", pointer="")
