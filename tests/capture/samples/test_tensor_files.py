"""How much of what is written the tensors hold, with files that torch writes itself."""

from types import SimpleNamespace

import pytest

from pinchpoint.capture.samples.spans import Spans
from pinchpoint.capture.samples.tensor_files import MOST_PLACES, TensorFiles, held_and_stored

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module", autouse=True)
def _torch():
    global torch  # not when tests are collected: its import takes seconds in every process
    torch = pytest.importorskip("torch", reason="looks at tensors")


SIZES = {
    "a row of a batch": (lambda: torch.zeros(8, 100)[3], (400, 3200)),
    "a copy of it": (lambda: torch.zeros(8, 100)[3].clone(), (400, 400)),
    "two rows of one batch": (lambda: list(torch.zeros(8, 100)[:2]), (800, 3200)),
    "all rows of it": (lambda: {"rows": torch.zeros(8, 100).unbind()}, (3200, 3200)),
    "one tensor twice": (lambda: [torch.zeros(100)] * 2, (400, 400)),
    "two looks at the same": (lambda: (x := torch.zeros(100), x.view(10, 10)), (400, 400)),
    "what is expanded": (lambda: torch.zeros(100, 1).expand(100, 9), (400, 400)),
    "a state": (lambda: torch.nn.Linear(4, 8).state_dict(), (160, 160)),
    "values without tensors": (lambda: {"step": 3, "name": ["a", None, 1.5]}, (0, 0)),
}


@pytest.mark.parametrize("what", SIZES)
def test_bytes_of_tensors_and_of_their_storages(what):
    value, expected = SIZES[what]
    assert held_and_stored(value()) == expected


@pytest.mark.parametrize("how", ["object", "sparse", "many"])
def test_what_cannot_be_looked_into(how):
    values = {
        "object": lambda: {"model": SimpleNamespace(weight=torch.zeros(3))},
        "sparse": lambda: torch.eye(3).to_sparse(),
        "many": lambda: [0] * 20_000,
    }
    assert held_and_stored(values[how]()) is None


def test_what_a_program_saves_and_loads_is_noted_by_place(tmp_path):
    module = SimpleNamespace(save=torch.save, load=torch.load)
    spans = Spans()
    spans.watch_saves(module)
    batch = torch.zeros(10, 1000)
    for row in range(3):
        module.save({"row": batch[row]}, tmp_path / f"{row}.pt")
        assert (tmp_path / f"{row}.pt").stat().st_size > 40_000  # the whole batch
    (module.load(tmp_path / "0.pt"), module.load(tmp_path / "1.pt", mmap=True))
    notes = {note["kind"]: note for note in spans.files.document()}
    assert set(notes) == {"save", "load"}
    save, load = notes["save"], notes["load"]
    assert (save["calls"], save["told"]) == (3, 3)
    assert (save["held_bytes"], save["stored_bytes"]) == (3 * 4000, 3 * 40_000)
    assert (load["calls"], load["held_bytes"], load["stored_bytes"]) == (1, 4000, 40_000)
    assert save["at"][0][2] == "test_what_a_program_saves_and_loads_is_noted_by_place"
    assert spans.take()[1] == save["ns"]  # loads are no saves


def test_a_call_that_fails_is_the_programs_own(tmp_path):
    module = SimpleNamespace(save=torch.save, load=torch.load)
    spans = Spans()
    spans.watch_saves(module)
    with pytest.raises(FileNotFoundError):
        module.load(tmp_path / "none.pt")
    assert spans.files.document() == []


def test_places_are_limited():
    files = TensorFiles()
    code = test_places_are_limited.__code__
    for at in range(MOST_PLACES + 5):
        files.called("save", ((code, 2 * at),), 1, 10)
    assert len(files._calls) == MOST_PLACES


def test_what_calls_of_more_bytes_take():
    files, code = TensorFiles(), test_places_are_limited.__code__
    for rows in (1, 2, 3, 4, 5, 9):
        files.called("save", ((code, 0),), torch.zeros(rows, 100)[0], 1000 * rows)
    (note,) = files.document()
    assert note["thirds"] == [(400, 1000), (2000, 5000)]
