import numpy as np

from pinchpoint.analysis.steps.in_steps import inside, sum_per_window, window_of

START, END = np.array([10, 20, 40]), np.array([20, 30, 50])


def test_windows_include_their_start_and_not_their_end():
    times = np.array([9, 10, 19, 20, 30, 45, 50])
    assert window_of(times, START, END).tolist() == [3, 0, 0, 1, 3, 2, 3]
    assert inside(times, START, END).tolist() == [False, True, True, True, False, True, False]


def test_events_and_their_values_are_summed():
    times = np.array([10, 11, 20, 99])
    assert sum_per_window(times, START, END).tolist() == [2, 1, 0]
    assert sum_per_window(times, START, END, np.array([5, 6, 7, 8])).tolist() == [11, 7, 0]


def test_no_windows_hold_nothing():
    none = np.zeros(0, np.int64)
    assert window_of(np.array([1]), none, none).tolist() == [0]
    assert sum_per_window(np.array([1]), none, none).tolist() == []
