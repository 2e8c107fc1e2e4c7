"""Put what ``pinchpoint demo`` prints into the README, between its two markers.

.venv/bin/python docs/refresh_readme.py
"""

import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- begin: pinchpoint demo -->\n", "<!-- end -->\n"


def main() -> None:
    """Run the demo and rewrite the README."""
    words = [sys.executable, "-m", "pinchpoint", "demo", "--html", "/dev/null"]
    shown = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    before, _, rest = README.read_text("utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    README.write_text(f"{before}{BEGIN}```\n$ pinchpoint demo\n{shown}```\n{END}{after}", "utf-8")


if __name__ == "__main__":
    main()
