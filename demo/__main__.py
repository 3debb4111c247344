"""`python -m demo` is `rainbow demo`."""

from rainbow.cli import main

main(["demo"])
