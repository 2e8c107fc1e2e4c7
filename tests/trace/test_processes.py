"""Several processes in one recording."""

from builders import TraceBuilder
from pinchpoint.trace import Thread
from pinchpoint.trace.processes import processes


def two_ranks(second_launches=10):
    built = TraceBuilder(threads=[Thread("70", "1", "main"), Thread("60", "2", "main")])
    for number in range(10):
        for thread, device in ((0, 0), (1, 1)):
            if thread and number >= second_launches:
                continue
            at = 1000 * number
            built.op("aten::mm", at, 100, thread=thread)
            built.launch(
                at=at + 10,
                takes=5,
                kernel="gemm",
                runs_at=at + 50,
                for_ns=100 + device,
                thread=thread,
                device=device,
            )
    return built.trace()


def test_each_process_has_its_own_rows():
    first, second = processes(two_ranks())
    assert (first.process, second.process) == ("70", "60")  # by their devices
    for part, lasted, thread in ((first, 100, 0), (second, 101, 1)):
        trace = part.trace
        assert trace.device_ops["duration_ns"].tolist() == [lasted] * 10
        assert set(trace.host_ops["thread"].tolist()) == {thread}
        calls = trace.device_ops["api_call"]
        assert (trace.api_calls["correlation"][calls] == trace.device_ops["correlation"]).all()
        operators = trace.device_ops["host_op"][trace.device_ops.known("host_op")]
        assert (trace.host_ops["thread"][operators] == thread).all()


def test_a_helper_that_does_little_is_no_second_program():
    assert processes(two_ranks(second_launches=0)) == ()


def test_one_process_is_not_split():
    built = TraceBuilder()
    built.launch(at=0, takes=5, kernel="gemm", runs_at=10, for_ns=100)
    assert processes(built.trace()) == ()
