import numpy as np

from builders import TraceBuilder
from pinchpoint.analysis.ancestry import nearest, parents


def test_the_innermost_wanted_row_is_found_and_a_row_encloses_itself():
    parent = np.array([5, 0, 1, 2, 5])  # a chain 0 <- 1 <- 2 <- 3, and 4 alone; 5 is nobody
    wanted = np.array([True, False, True, False, False])
    assert nearest(parent, wanted).tolist() == [0, 0, 2, 2, 5]


def test_a_deep_stack_is_followed_to_its_end():
    depth = 1000
    parent = np.append([depth], np.arange(depth - 1))
    wanted = np.zeros(depth, np.bool_)
    wanted[0] = True
    assert np.all(nearest(parent, wanted) == 0)


def test_rows_without_a_parent_point_past_the_end():
    b = TraceBuilder()
    b.op("outer", 0, 10)
    b.op("inner", 1, 2)
    b.op("alone", 20, 2)
    assert parents(b.trace().host_ops).tolist() == [3, 0, 3]
