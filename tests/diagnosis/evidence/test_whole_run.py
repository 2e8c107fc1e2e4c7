import pytest

from pinchpoint.analysis.mean.rare_steps import RarePlace
from pinchpoint.diagnosis.evidence.whole_run import Looks


def test_a_share_goes_by_time_where_looks_came_late():
    """Half of 400 looks, which came late: three quarters of the time."""
    by_looks = Looks(200, 400, RarePlace(None, None))
    by_time = Looks(200, 400, RarePlace(None, None), 0.75, 0.4)
    assert sum(by_looks.sure_ratios) / 2 == pytest.approx(0.5, abs=0.01)
    assert sum(by_time.sure_ratios) / 2 == pytest.approx(0.75, abs=0.01)
    least, most = by_time.sure_ratios
    assert by_time.most_with_cores == (least, pytest.approx(1 - (1 - most) * 0.4))
    assert by_looks.most_with_cores == by_looks.sure_ratios
