"""The command line: one module a command. Only this package prints and chooses exit codes."""

from pinchpoint.cli.dispatch import main

__all__ = ["main"]
