"""`python -m rainbow` is the `rainbow` command."""

from rainbow.cli import main

main(prog_name="rainbow")
