"""`python -m rainbow` is the `rainbow` command."""

import gc
import sys

import rainbow
from rainbow.standard_streams import open_closed

# objects until garbage is looked for: graphs are many objects and no garbage, and half of reading one was this search
SELDOM = 10_000, 20, 20


def run() -> None:
    """Run the command line; its version is said without reading any of it."""
    open_closed()
    if sys.argv[1:] == ["--version"]:
        print(f"rainbow, version {rainbow.__version__}")
        return
    gc.set_threshold(*SELDOM)
    try:
        from rainbow.cli import main

        main(prog_name="rainbow")
    except KeyboardInterrupt:  # while the command is still read, which takes a third of a second
        sys.exit(130)


if __name__ == "__main__":
    run()
