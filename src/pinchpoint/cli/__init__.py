"""The command line: one module a command. Only this package prints and chooses exit codes."""

try:
    from pinchpoint.cli.dispatch import main
except KeyboardInterrupt:  # Ctrl-C right after the start: nothing has begun that could be told of
    raise SystemExit(130) from None

__all__ = ["main"]
