"""The page about tables is the one that the data dictionary gives."""

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "docs/refresh_tables.py"


def test_the_page_is_up_to_date():
    spec = importlib.util.spec_from_file_location("refresh_tables", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text("utf-8") == module.text()
