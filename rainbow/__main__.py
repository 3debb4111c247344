"""`python -m rainbow` is the `rainbow` command."""

import sys

import rainbow


def run() -> None:
    """Run the command line; its version is said without reading any of it."""
    if sys.argv[1:] == ["--version"]:
        print(f"rainbow, version {rainbow.__version__}")
        return
    from rainbow.cli import main

    main(prog_name="rainbow")


if __name__ == "__main__":
    run()
