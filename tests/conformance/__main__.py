"""Run the comparison of one system: a line for every disagreement, last `agree N of M`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

HERE = Path(__file__).parent
SYSTEMS = sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("__"))


def main(arguments: list[str]) -> int:
    """Compare; 0 only if everything agrees and there was something to compare, 2 for wrong usage."""
    if len(arguments) != 2 or arguments[0] not in SYSTEMS or not Path(arguments[1]).is_dir():
        print(f"usage: python -m tests.conformance {{{'|'.join(SYSTEMS)}}} FOLDER", file=sys.stderr)
        return 2
    compare = importlib.import_module(f"tests.conformance.{arguments[0]}").compare
    agreed = total = 0
    for comparison in compare(Path(arguments[1])):
        total += 1
        agreed += comparison.agrees
        if not comparison.agrees:
            print(f"{comparison.label}: {comparison.detail}")
    print(f"agree {agreed} of {total}")
    return 0 if total and agreed == total else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
