"""Programs on CPUs: what can be told without a device, on recordings of our own."""

from pathlib import Path

import pytest

from pinchpoint.diagnosis.engine import diagnose
from pinchpoint.importers.open import load

DATA = Path(__file__).parents[1] / "data" / "kineto"


@pytest.mark.parametrize(
    ("recording", "cause", "summary"),
    [
        ("cpu_loader_workers2", "dataloader-starved", "The training thread waits for worker"),
        ("cpu_files_workers0", "small-file-io", "The training thread opens and reads 32 files a"),
    ],
)
def test_a_loader_starves_a_program_on_the_cpu_too(recording, cause, summary):
    (only,) = diagnose(load(DATA / f"{recording}.json.gz")).found
    assert only.id == cause
    assert only.finding.summary.startswith(summary)
    assert "pin_memory" not in only.finding.hint
