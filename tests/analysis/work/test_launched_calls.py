import numpy as np

from builders import TraceBuilder
from device_steps import Work, device_bound
from pinchpoint.analysis.work.pointwise_chains import launched_calls


def test_equal_calls_are_kept_once():
    a = Work("a", 10, "aten::mm", [[2, 3], [3, 4]], ["float", "float"], [[3, 1], [1, 3]])
    b = Work("b", 10, "aten::relu", [[2, 4]], ["float"])
    found = launched_calls(device_bound([a, b, a], steps=2))
    assert len(found.calls) == 2
    names = [found.calls[i].call.name for i in found.which]
    assert names == ["aten::mm", "aten::relu", "aten::mm"] * 2
    product = found.calls[found.which[0]]
    assert product.call.shapes == ((2, 3), (3, 4))
    assert product.stride(1) == (1, 3)
    assert product.stride(7) is None


def test_values_and_lists_of_tensors():
    work = Work("k", 10, "aten::cat", [[[2, 3], [4, 3]], []], ["TensorList", "Scalar"],
                [[[3, 1], [3, 1]], []], ["", "0"])  # fmt: skip
    (call,) = launched_calls(device_bound([work])).calls
    assert call.call.shape_list(0) == ((2, 3), (4, 3))
    assert call.call.values == ("", "0")
    assert call.stride(0) is None


def test_a_launch_without_an_operator_has_no_call():
    b = TraceBuilder()
    b.launch(0, 5, "kernel", 10, 20)
    found = launched_calls(b.trace())
    assert found.which.tolist() == [0]
    assert not found.where(lambda c: True).any()
    assert np.isnan(found.numbers(lambda c: 1.0)).all()
