"""Tables refuse what their columns cannot hold."""

import numpy as np
import pytest

from pinchpoint.trace import table

COUNTERS = {"name": [0, 0], "value": [1.0, 2.0], "device": [0, 0]}


def test_a_number_that_no_integer_holds_is_refused_and_one_without_meaning_is_not():
    times = np.array([-5, 2**63])  # of which numpy makes floats
    with pytest.raises(OverflowError, match="int64"):
        table("counters", {**COUNTERS, "time_ns": times})
    odd = {**COUNTERS, "time_ns": [5, 6], "rank": [3.0, np.nan]}
    made = table("counters", odd, {"rank": np.array([False, True])})
    assert made["rank"][0] == 3
