"""Frames of other threads are walked without a collection."""

import gc

import pytest

from pinchpoint.capture.process import policy
from pinchpoint.inside.frames import without_collections


@pytest.mark.parametrize("on", [True, False])
def test_no_collection_starts_and_what_the_program_chose_is_back(on):
    before = gc.isenabled()
    try:
        (gc.enable if on else gc.disable)()
        assert without_collections(gc.isenabled)() is False
        assert gc.isenabled() is on
        with pytest.raises(ZeroDivisionError):
            without_collections(lambda: 1 / 0)()
        assert gc.isenabled() is on
    finally:
        (gc.enable if before else gc.disable)()


def test_walks_over_other_threads_are_such():
    assert policy.compiles.__wrapped__ is not None
    assert policy.imports.__wrapped__ is not None
