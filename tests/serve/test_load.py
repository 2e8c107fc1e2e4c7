"""Many connections that say nothing beside others that ask; the long one is in benchmarks/."""

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")
ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_silent_connections_cost_no_answer_and_requests_no_memory(tmp_path):
    spec = importlib.util.spec_from_file_location("serve_load", ROOT / "benchmarks/serve_load.py")
    script = importlib.util.module_from_spec(spec)
    sys.modules["serve_load"] = script  # dataclasses look their module up
    spec.loader.exec_module(script)
    shutil.copy(ROOT / "src/pinchpoint/data/item_sync.json.gz", tmp_path)
    with script.served(tmp_path) as (port, pid):
        found = script.load(port, pid, 1000, 100, None)
    assert set(found.answers) == {"200"}
    assert found.lost == 0
    assert found.growth_bytes <= script.MOST_GROWTH_BYTES
