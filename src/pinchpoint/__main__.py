"""``python -m pinchpoint``."""

from pinchpoint.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
