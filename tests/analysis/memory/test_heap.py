"""What the driver gave is in use, free inside used ranges, or free: nothing counts twice."""

import pytest

from analysis.memory.recordings import NAMES, history
from pinchpoint.analysis.memory.history import heap


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_the_parts_of_a_heap_add_up(name, share):
    found = history(name)
    at = heap(found, int(share * len(found.replay)))
    used = int(found.replay.size[at.blocks].sum())
    assert used + at.whole_free_bytes + at.split_free_bytes == at.reserved_bytes


def test_pieces_of_an_expandable_segment_are_one_range():
    found = history("expandable_train")
    at = heap(found, len(found.replay) // 2)
    assert all(one.end < two.start for one, two in zip(at.ranges, at.ranges[1:], strict=False))
