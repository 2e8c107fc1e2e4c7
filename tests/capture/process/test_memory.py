"""The allocator's history, on a stand-in for torch.cuda that notes what is asked of it."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pinchpoint.capture.process.memory import MOST_ENTRIES, MemoryHistory


@pytest.fixture
def torch(monkeypatch):
    made = SimpleNamespace(queued=[], recorded=[], observers=[])
    memory = SimpleNamespace(
        _record_memory_history=lambda **options: made.recorded.append(options),
        _dump_snapshot=lambda path: Path(path).write_bytes(b"snapshot"),
    )
    made.cuda = SimpleNamespace(_lazy_call=made.queued.append, memory=memory)
    made._C = SimpleNamespace(_cuda_attach_out_of_memory_observer=made.observers.append)
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


def test_history_begins_with_the_programs_own_use_of_the_device(torch, tmp_path):
    history = MemoryHistory(tmp_path, "rank0")
    history.start(torch.cuda)
    assert torch.recorded == []
    assert history.write("end") is None
    torch.queued[0]()
    assert torch.recorded == [{"max_entries": MOST_ENTRIES}]
    assert history.write("end") == tmp_path / "rank0.end.pickle"
    assert [p.name for p in tmp_path.iterdir()] == ["rank0.end.pickle"]


def test_a_failed_request_is_kept_at_its_moment(torch, tmp_path):
    history = MemoryHistory(tmp_path, "rank0")
    history.start(torch.cuda)
    torch.queued[0]()
    torch.observers[0](0, 1 << 30, 0, 0)
    assert (tmp_path / "rank0.out-of-memory.pickle").exists()
