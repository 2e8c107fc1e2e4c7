from builders import TraceBuilder
from pinchpoint.analysis.time.accounting import breakdown
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.analysis.time.idle_causes import idle_causes
from pinchpoint.trace import ApiKind

US = 1000


def looping(stalls=()):
    """Steps of 400 µs: two items, after each of which the device idles 60 µs.

    Steps in ``stalls`` are followed by a save of 1 ms.
    """
    b, at = TraceBuilder(), 0
    for number in range(6):
        length = 400 + (1000 if number in stalls else 0)
        b.step(number, at * US, length * US)
        b.python("train.py(9): step", at * US, length * US)
        for half in (0, 200):
            b.launch((at + half + 50) * US, 5 * US, "gemm", (at + half + 60) * US, 140 * US)
            b.op("aten::item", (at + half + 70) * US, 130 * US)
            b.api(
                "cudaStreamSynchronize",
                (at + half + 75) * US,
                125 * US,
                kind=ApiKind.SYNC_STREAM,
            )
        if number in stalls:
            b.python("torch/serialization.py(9): save", (at + 400) * US, 1000 * US)
        at += length
    return b.trace()


def test_causes_are_summed_by_kind_frame_and_operator():
    first, *others = idle_causes(looping())
    assert first.kind == GapKind.AFTER_SYNC
    assert (first.place.file, first.place.line) == ("train.py", 9)
    assert first.place.operator == "aten::item"
    assert first.name == "cudaStreamSynchronize"
    assert first.gaps_per_step == 2
    assert first.ns_per_step == 120 * US
    assert all(cause.ns_per_step <= first.ns_per_step for cause in others)


def test_causes_add_up_to_the_idle_time_of_the_step():
    trace = looping()
    told = sum(cause.ns_per_step for cause in idle_causes(trace))
    assert told == breakdown(trace).of_group("idle")


def test_evidence_can_be_found_in_the_trace():
    cause = idle_causes(looping())[0]
    assert cause.longest in cause.pieces.tolist()
    assert cause.at_ns % US == 0


def test_rare_stalls_are_told_over_all_steps():
    trace = looping(stalls=(4,))
    typical = {cause.kind for cause in idle_causes(trace)}
    assert GapKind.CHECKPOINT not in typical
    rare = {c.kind: c.ns_per_step for c in idle_causes(trace, all_steps=True)}
    assert rare[GapKind.CHECKPOINT] == 1000 * US // 5


def test_no_device_work_no_causes():
    assert idle_causes(TraceBuilder().trace()) == ()
