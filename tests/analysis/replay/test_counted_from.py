"""A prediction as a share of another step."""

import pytest

from pinchpoint.analysis.replay.prediction import Prediction


@pytest.mark.parametrize(("of_host", "left"), [(True, (40, 38, 45)), (False, (50, 50, 50))])
def test_what_a_step_cannot_go_below_is_a_share_where_it_is_host_time(of_host, left):
    """80 of 100 are left, at least 70; the same in a step half as long: work of a device stays."""
    said = Prediction(80, (75, 90), 100, None, 70, of_host=of_host).counted_from(50)
    assert (said.base_ns, said.step_ns, *said.range_ns) == (50, *left)
