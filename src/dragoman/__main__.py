"""Runs the command line: `python -m dragoman` and the script `dragoman` are the same."""

from __future__ import annotations

import sys

from dragoman.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
