"""The command line: ``gradpivot COMMAND``. Starts without torch; commands import it when they need it."""

from gradpivot.cli.main import main

__all__ = ["main"]
