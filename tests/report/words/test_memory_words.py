"""What is said of those that hold memory."""

from pinchpoint.diagnosis.finding import Location
from pinchpoint.report.documents.memory import HolderItem
from pinchpoint.report.words.memory import holder_words, holders_by_words


def holder(size, stack, category="optimizer state"):
    place = Location(file="train.py", line=264, function="train")
    return HolderItem(
        category=category, bytes=size, blocks=4, largest_bytes=size // 2, phase="optimizer",
        confidence="high", operation="_init_group", location=place, stack=(stack,),
    )  # fmt: skip


def test_holders_that_read_alike_are_one():
    moments = (holder(60, "adam.py:150"), holder(60, "adam.py:154"))
    (both,) = holders_by_words(moments)
    assert (both.bytes, both.blocks, both.largest_bytes) == (120, 8, 30)
    assert holder_words(both) == "train.py:264 in train (_init_group) × 8"


def test_other_categories_stay_apart_and_the_largest_is_first():
    held = (holder(60, "a", category="temporaries"), holder(40, "b"), holder(40, "c"))
    assert [one.bytes for one in holders_by_words(held)] == [80, 60]
