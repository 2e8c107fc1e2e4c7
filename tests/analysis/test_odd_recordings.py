"""Recordings that lack a whole side of what an analysis looks at."""

import pinchpoint as pp
from kineto_documents import call, document, event, kernel, launched, op, step, written
from pinchpoint.analysis.mean.step_kinds import step_kinds
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.verdict import verdict
from pinchpoint.importers.kineto import read
from pinchpoint.importers.telemetry import smi


def test_a_prompt_before_the_first_step_belongs_to_no_kind(tmp_path):
    embedding = op("aten::embedding", 0, 1, Input_Dims=[[9, 9], [2, 7]])
    rounds = []
    for number in range(6):
        at = 100 + 10 * number
        rounds += [step(number, at, 9), *launched("gemm", at + 1, at + 3, 5, number + 1)]
    trace = read(written(tmp_path, document(embedding, *rounds)))
    assert len(step_kinds(trace).kinds) == 1


def test_calls_without_any_operator_crash_no_rule(tmp_path):
    place = {"place": (0, 7), "device": 0, "stream": 7, "bytes": 4096}
    events = []
    for number in range(40):
        at, copy, compute = 100 * number, 2 * number + 1, 2 * number + 2
        events += [
            call("cudaMemcpyAsync", at, 5, copy),
            event(
                "Memcpy HtoD (Pageable -> Device)",
                "gpu_memcpy",
                at + 6,
                9,
                correlation=copy,
                **place,
            ),
            call("cudaLaunchKernel", at + 10, 5, compute),
            kernel("gemm", at + 20, 30, compute),
            call("cudaDeviceSynchronize", at + 20, 40, 1000 + number),
        ]
    report = pp.diagnose(str(written(tmp_path, document(*events))))
    assert not report.crashed


def test_one_launch_is_named_in_the_singular(tmp_path):
    trace = read(written(tmp_path, document(*launched("gemm", 1, 3, 5, 1))))
    assert "only 1 launch:" in steps(trace).basis


def test_a_log_without_activity_tells_nothing_of_work(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("timestamp,index,memory.used [MiB]\n2026/11/27 21:38:00.000, 0, 1\n")
    assert "Neither whether the devices worked nor" in verdict(smi.read(path))
