from dataclasses import replace

import numpy as np
import pytest

from builders import TraceBuilder
from exceptional_programs import now_and_then
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.accounting import breakdown
from pinchpoint.compare.profiles import compare_profiles, doubt_of_one_program
from pinchpoint.compare.step_groups import NO_OP, step_groups, step_pieces
from pinchpoint.trace import ApiKind, Source

US = 1_000


def _training(
    layers, *, steps_=4, gemm_us=40, kernel="gemm_bf16", sync=False, extra=0, jitter=(0, 0, 0, 0)
):
    """Each layer: a product and a relu; the host is far ahead unless it waits for the device."""
    builder = TraceBuilder()
    host = device = 0
    for step in range(steps_):
        begin = host
        for _ in range(layers):
            device = max(device, host + 4 * US)
            for name, what, us in (
                ("aten::mm", kernel, gemm_us + jitter[step]),
                ("aten::relu", "relu_kernel", 10),
            ):
                builder.op(name, host, 2 * US)
                builder.launch(host, US, what, device, us * US)
                host, device = host + 3 * US, device + us * US
            if sync:
                builder.op("aten::item", host, max(device - host, 0) + 6 * US)
                builder.api(
                    "cudaStreamSynchronize",
                    host + US,
                    max(device - host, 0) + 4 * US,
                    kind=ApiKind.SYNC_STREAM,
                )
                host = max(host, device) + 8 * US
        for _ in range(extra):
            builder.op("aten::add", host, 2 * US)
            builder.launch(host, US, "add_kernel", device, 5 * US)
            host, device = host + 3 * US, device + 5 * US
        builder.step(step, begin, host - begin)
    return builder.trace()


def _sums(found):
    return (
        sum(p.change_ns for p in found.parts),
        sum(r.change_ns for r in found.rows),
        found.change_ns,
    )


CHANGES = {
    "two more layers": (_training(4), _training(6)),
    "slower product": (_training(4), _training(4, gemm_us=90)),
    "another kernel": (_training(4), _training(4, gemm_us=20, kernel="gemm_fp8")),
    "a wait in every layer": (_training(4), _training(4, sync=True)),
    "operations at the end": (_training(4), _training(4, extra=7)),
    "nothing": (_training(4), _training(4)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_add_up_to_the_change_of_the_step(name):
    a, b = CHANGES[name]
    for pair in ((a, b), (b, a)):
        found = compare_profiles(*pair)
        parts, rows, change = _sums(found)
        assert parts == rows == change
        assert all(r.change_ns == r.appeared_ns - r.went_ns + r.moved_ns for r in found.rows)


@pytest.mark.parametrize("name", CHANGES)
def test_pieces_agree_with_the_accounting_in_every_step(name):
    for trace in CHANGES[name]:
        windows, pieces, accounted = steps(trace), step_pieces(trace), breakdown(trace)
        total = np.zeros(len(windows), np.int64)
        np.add.at(total, pieces.step, pieces.ns)
        assert (total == windows.end_ns - windows.start_ns).all()
        groups = step_groups(trace).groups
        for position, part in enumerate(accounted.parts):
            mine = sum(g.by_step_ns for g in groups if g.key.part == part.id)
            assert (mine == accounted.by_step[:, position]).all()
        assert (pieces.op[pieces.gap == NO_OP] != NO_OP).all()


def test_nothing_changed():
    found = compare_profiles(*CHANGES["nothing"])
    assert found.change_ns == 0
    assert found.matched.matched == found.matched.a == found.matched.b
    assert all(r.change_ns == 0 for r in found.rows)


def test_inserted_layers_appear_and_the_others_stay():
    found = compare_profiles(*CHANGES["two more layers"])
    m = found.matched
    assert (m.matched, m.went, m.appeared) == (8, 0, 4)
    gemm = next(r for r in found.rows if r.what == "aten::mm" and r.group == "device")
    assert gemm.appeared_ns == pytest.approx(80 * US)
    assert (gemm.went_ns, gemm.moved_ns) == (0, 0)
    assert (gemm.a_count, gemm.b_count) == (4.0, 6.0)


def test_a_slower_operation_moved():
    row = compare_profiles(*CHANGES["slower product"]).rows[0]
    assert (row.part, row.what) == ("gemm", "aten::mm")
    assert row.moved_ns == row.change_ns == 4 * 50 * US
    assert row.sure


def test_another_kernel_of_the_same_operator():
    found = compare_profiles(*CHANGES["another kernel"])
    assert found.matched.kernel_changed == 4
    row = found.rows[0]
    assert (row.a_kernels, row.b_kernels) == (("gemm_bf16",), ("gemm_fp8",))
    assert row.change_ns == -80 * US


def test_a_wait_is_named_with_its_operator():
    found = compare_profiles(*CHANGES["a wait in every layer"])
    idle = [r for r in found.rows if r.group == "idle"]
    assert idle[0].what == "aten::item"
    assert idle[0].part in ("idle-after-sync", "idle-sync")
    assert idle[0].b_count > idle[0].a_count


def test_operations_that_went():
    a, b = CHANGES["operations at the end"]
    found = compare_profiles(b, a)
    row = found.rows[0]
    assert row.what == "aten::add"
    assert (row.went_ns, row.appeared_ns) == (7 * 5 * US, 0)
    assert row.b_count == 0


def test_step_noise():
    noisy = {"steps_": 10, "jitter": (0, 30, -20, 5, 10, -10, 25, -5, 15, -15)}
    found = compare_profiles(_training(4, **noisy), _training(4, gemm_us=42, **noisy))
    assert found.sure is False
    sure = compare_profiles(_training(4, **noisy), _training(4, gemm_us=200, **noisy))
    assert sure.sure is True


def test_one_long_step_does_not_hide_a_change():
    long = {"steps_": 10, "jitter": (0, 0, 0, 0, 0, 0, 5000, 0, 0, 0)}
    found = compare_profiles(
        _training(4, steps_=10, jitter=(0,) * 10), _training(4, gemm_us=90, **long)
    )
    low, high = found.change_range_ns
    assert found.sure is True
    assert low == 4 * 50 * US
    assert high >= found.change_ns


def test_few_steps_cannot_tell():
    found = compare_profiles(_training(2, steps_=2), _training(3, steps_=2))
    assert found.sure is None
    assert "four complete steps" in found.unknown["noise_ns"]
    assert sum(r.change_ns for r in found.rows) == found.change_ns


def test_without_a_device_parts_are_compared():
    traces = []
    for us in (20, 50):
        builder = TraceBuilder()
        for step in range(4):
            at = step * 100 * US
            builder.step(step, at, 90 * US)
            builder.op("aten::mm", at, us * US)
        traces.append(builder.trace())
    found = compare_profiles(*traces)
    assert found.rows == ()
    assert found.matched is None
    assert "no device" in found.unknown["matched"]
    assert sum(p.change_ns for p in found.parts) == found.change_ns


def test_different_devices_are_said():
    other = _training(2)
    amd = replace(other, devices=(replace(other.devices[0], name="AMD Instinct MI300X"),))
    found = compare_profiles(_training(2), amd)
    assert found.warnings[0] == ("different devices: NVIDIA H100 80GB HBM3 and AMD Instinct MI300X")
    assert any("bench ab" in w for w in found.warnings)


def test_the_mean_step_is_compared_where_it_is_not_the_typical_one():
    torch = Source("a", "kineto", recorder="torch.profiler")
    rare, usual = (
        replace(now_and_then(*of), source=torch) for of in (("checkpoint", (4,)), ("nothing", ()))
    )
    found = compare_profiles(rare, usual)
    assert found.a.mean_step_ns - found.a.unprofiled_step_ns == pytest.approx(10e6, rel=0.05)
    assert found.b.mean_step_ns == found.b.unprofiled_step_ns


def test_few_partners_leave_open_whether_both_are_one_program():
    one, other = _training(layers=2), _training(layers=9)
    same = _training(layers=2)
    assert doubt_of_one_program(one, same, compare_profiles(one, same).matched) is None
    found = compare_profiles(one, other)
    doubt = doubt_of_one_program(one, other, found.matched)
    assert doubt is not None
    assert any(warning.startswith(doubt) for warning in found.warnings)
