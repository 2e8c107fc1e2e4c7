"""Where ranks that compute the same are said to do so."""

import pytest

from pinchpoint.importers.run_folder.shared_answers import of_ranks
from pinchpoint.run_folder.layout import VALUES, write_json
from pinchpoint.run_folder.values import AnswerNote, ValuesDocument

COMPUTES, MOVES = ("train.py", 70, "main"), ("train.py", 49, "average")
FORWARD = ("model.py", 12, "forward")


def answer(name, place, size, *, backward=False):
    digests = tuple(f"{name}{n}" for n in range(4))
    return AnswerNote(
        name=name, place=place, bytes=size, backward=backward, count=1, digests=digests
    )


@pytest.mark.parametrize(
    ("answers", "first"),
    [
        ([("aten::mm", COMPUTES, 4, True), ("aten::cat", MOVES, 12, False)], COMPUTES),
        ([("aten::mm", COMPUTES, 12, True), ("aten::addmm", FORWARD, 4, False)], FORWARD),
        ([("aten::cat", MOVES, 12, False)], MOVES),
    ],
    ids=["gradients that are laid together", "a forward pass", "nothing else"],
)
def test_the_place_is_where_it_is_computed(tmp_path, answers, first):
    (tmp_path / VALUES).mkdir()
    notes = tuple(answer(*one[:3], backward=one[3]) for one in answers)
    documents = [ValuesDocument(rank=rank, pid=rank + 1, answers=notes) for rank in range(2)]
    for one in documents:
        plain = [
            {"name": a.name, "digests": a.digests, "bytes": a.bytes, "count": 1} for a in notes
        ]
        path = tmp_path / VALUES / f"rank0000{one.rank}.json"
        write_json(path, {"schema": one.schema, "rank": one.rank, "answers": plain})
    (work,) = of_ranks(tmp_path, documents[0])
    assert work.places[0] == first
