from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine is no failure.
settings.register_profile("without deadlines", deadline=None)
settings.load_profile("without deadlines")


def pytest_addoption(parser):
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite expected outputs, to be reviewed"
    )


@pytest.fixture
def golden(request):
    """Compare a text with the file ``golden/NAME`` beside the test."""

    def check(name, text):
        path = Path(request.path).parent / "golden" / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
        assert text == path.read_text("utf-8")

    return check
