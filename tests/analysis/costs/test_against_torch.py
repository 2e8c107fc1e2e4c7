"""FLOPs against torch's own counter, on tensors without storage."""

import pytest

from pinchpoint.analysis.costs import OperatorCall, cost_of

pytestmark = pytest.mark.torch

SPELT = {
    "torch.float32": "float", "torch.bfloat16": "c10::BFloat16", "torch.float16": "c10::Half",
    "torch.int64": "long int", "torch.bool": "bool",
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _torch():
    global torch, aten  # not when tests are collected: its import takes seconds in every process
    torch = pytest.importorskip("torch", reason="compares with torch's flop counter")
    aten = torch.ops.aten


def meta(*shape, dtype=None):
    return torch.empty(*shape, device="meta", dtype=dtype or torch.bfloat16)


def as_recorded(name, args):
    """A call as the profiler records it."""
    shapes, dtypes, values = [], [], []
    for arg in args:
        tensor = isinstance(arg, torch.Tensor)
        shapes.append(tuple(arg.shape) if tensor else ())
        dtypes.append(SPELT[str(arg.dtype)] if tensor else "")
        values.append("" if tensor or arg is None else str(arg))
    return OperatorCall(name, tuple(shapes), tuple(dtypes), tuple(values))


def counted(operator, args):
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        operator(*args)
    return counter.get_total_flops()


Q = (2, 4, 128, 64)


def cases():
    """Operators, each with arguments of the kinds that count in their own way."""
    return {
        "aten::mm": [(meta(64, 32), meta(32, 48)), (meta(1, 7), meta(7, 5))],
        "aten::addmm": [(meta(48), meta(64, 32), meta(32, 48))],
        "aten::bmm": [(meta(3, 64, 32), meta(3, 32, 48))],
        "aten::baddbmm": [(meta(3, 64, 48), meta(3, 64, 32), meta(3, 32, 48))],
        "aten::convolution": [
            (meta(2, 8, 20, 22), meta(16, 8, 3, 3), None, [2, 1], [1, 1], [1, 2], False, [0, 0], 1),
            (meta(2, 8, 20, 22), meta(16, 2, 3, 3), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 4),
            (meta(2, 8, 20), meta(8, 6, 4), None, [2], [1], [1], True, [1], 1),
            (meta(1, 4, 6, 7, 8), meta(4, 4, 3, 3, 3), None, [1] * 3, [1] * 3, [1] * 3, False,
             [0] * 3, 1),
        ],
        "aten::convolution_backward": [
            (meta(2, 16, 10, 22), meta(2, 8, 20, 22), meta(16, 8, 3, 3), [16], [2, 1], [1, 1],
             [1, 1], False, [0, 0], 1, [True, True, True]),
            (meta(2, 6, 41), meta(2, 8, 20), meta(8, 6, 4), None, [2], [1], [1],
             True, [1], 1, [True, True, False]),
        ],
        "aten::_scaled_dot_product_flash_attention": [
            (meta(*Q), meta(*Q), meta(*Q), 0.0, False),
            (meta(2, 4, 1, 64), meta(2, 4, 99, 64), meta(2, 4, 99, 64), 0.0, False),
        ],
        "aten::_scaled_dot_product_efficient_attention": [
            (meta(*Q), meta(*Q), meta(*Q), None, True, 0.0, False),
        ],
        "aten::_scaled_dot_product_cudnn_attention": [
            (meta(*Q), meta(*Q), meta(*Q), None, True, 0.0, False),
        ],
    }  # fmt: skip


def test_the_same_count_as_torch():
    for name, args in ((name, args) for name, calls in cases().items() for args in calls):
        cost = cost_of(as_recorded(name, args))
        assert cost is not None, name
        assert cost.matrix, name
        assert cost.flops == counted(getattr(aten, name.removeprefix("aten::")), args), name


def test_torch_counts_weight_gradients_of_grouped_convolutions_once_a_group():
    groups = 4
    args = (
        meta(2, 16, 20, 22), meta(2, 8, 20, 22), meta(16, 2, 3, 3), [16], [1, 1], [1, 1], [1, 1],
        False, [0, 0], groups, [False, True, False],
    )  # fmt: skip
    cost = cost_of(as_recorded("aten::convolution_backward", args))
    assert cost.flops == counted(aten.convolution_backward, args) // groups


def test_torch_ignores_the_causal_mask_and_so_does_one_of_our_counts():
    args = (meta(*Q), meta(*Q), meta(*Q), 0.0, True)
    cost = cost_of(as_recorded("aten::_scaled_dot_product_flash_attention", args))
    whole = counted(aten._scaled_dot_product_flash_attention, args)
    assert cost.unmasked_flops == whole
    length = Q[2]
    assert cost.flops == whole * (length + 1) // (2 * length)


def test_backward_of_attention():
    q, lse = meta(*Q), meta(*Q[:3], dtype=torch.float32)
    seed = torch.empty((), dtype=torch.int64, device="meta")
    args = (q, q, q, q, q, lse, None, None, 128, 128, 0.0, False, seed, seed)
    cost = cost_of(as_recorded("aten::_scaled_dot_product_flash_attention_backward", args))
    assert cost.flops == counted(aten._scaled_dot_product_flash_attention_backward, args)


def test_a_training_step_of_a_small_network():
    """Every operator of forward and backward, caught as the framework dispatches it."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import FlopCounterMode

    calls = []

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            name = f"aten::{function._schema.name.removeprefix('aten::')}"
            flat = [a for a in args if not isinstance(a, torch.dtype)]
            if all(not isinstance(a, list | tuple) or not a or isinstance(a[0], int | bool)
                   for a in flat):  # fmt: skip
                calls.append(as_recorded(name, flat))
            return function(*args, **(kwargs or {}))

    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, stride=2, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * 16 * 16, 10),
    ).to("meta")
    image = torch.empty(4, 3, 32, 32, device="meta")
    with FlopCounterMode(display=False) as counter, Recorder():
        model(image).sum().backward()
    ours = sum(c.flops for call in calls if (c := cost_of(call)) is not None and c.matrix)
    assert ours == counter.get_total_flops() > 0
