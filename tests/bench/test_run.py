import json
import re
import resource
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from pinchpoint.bench.measures import MEASURES
from pinchpoint.bench.metrics import encode, read_metrics
from pinchpoint.bench.run import Arm, Place, RunOptions, measure_run, printed_numbers
from pinchpoint.bench.run.enough import end_of, like, said, steps_for, within
from pinchpoint.bench.run.timed import TimingRules
from pinchpoint.errors import UnreadableFile, UsageError

MARKS = """
import sys
from pinchpoint.inside import step_recorder as r
for i in range(40):
    sum(range(20000)); r.mark(8)
print("tok/s: 1,234.5")
"""


def _run(tmp_path, code, **options):
    arm = Arm("A", (sys.executable, "-c", code))
    return measure_run(arm, RunOptions("test", **options), Place(tmp_path / "000-A"))


def _nulls(value, path=""):
    if value is None:
        yield path
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _nulls(inner, f"{path}.{key}" if path else key)


def test_marked_steps_become_metrics(tmp_path):
    run = _run(tmp_path, MARKS, patterns={"tok": re.compile(r"tok/s: ([\d.,]+)")})
    assert run.status == "ok"
    assert run.steps.source == "mark"
    assert run.steps.clock == "host"
    assert run.warmup.steps + run.steps.count == 39
    assert run.custom == {"tok": 1234.5}
    assert run.throughput.unit == "samples/s"
    assert run.throughput.value == pytest.approx(8e3 / run.steps.step_time_ms.mean)
    raw = np.fromfile(tmp_path / "000-A/steps.f64", "<f8")
    assert np.median(raw) == run.steps.step_time_ms.median
    assert read_metrics(tmp_path / "000-A/metrics.json") == run


def test_every_null_has_a_reason(tmp_path):
    run = _run(tmp_path, MARKS)
    document = msgspec.json.decode(encode(run))
    optional = {"arm", "pair_index", "seed", "env_file", "env_sha256"}  # not asked for
    unexplained = [
        path
        for path in _nulls({k: v for k, v in document.items() if k not in optional})
        if not any(path == p or path.startswith(p + ".") for p in run.unknown)
    ]
    assert unexplained == []


def test_a_program_without_steps_has_its_wall_time(tmp_path):
    run = _run(tmp_path, "pass")
    assert run.steps is None
    assert "--step-function" in run.unknown["steps"]
    assert run.duration_s > 0
    peak = run.memory.host_peak_rss_bytes
    assert (peak is None) == ("memory.host_peak_rss_bytes" in run.unknown)


def test_a_peak_below_our_own_is_not_claimed(tmp_path):
    ours = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    small = _run(tmp_path, "pass")
    assert small.memory.host_peak_rss_bytes is None
    large = _run(tmp_path / "2", f"x = bytearray({ours} + (64 << 20))")
    assert large.memory.host_peak_rss_bytes > ours


def test_warm_up_by_hand(tmp_path):
    run = _run(tmp_path, MARKS, timing=TimingRules(warmup_steps=9, work_per_step=100))
    assert (run.warmup.policy, run.warmup.steps, run.steps.count) == ("fixed", 9, 30)
    assert run.throughput.work == 3000


def test_a_failing_program_is_a_failed_run(tmp_path):
    run = _run(tmp_path, "import sys; print('no data', file=sys.stderr); sys.exit(3)")
    assert (run.status, run.exit_code, run.valid) == ("failed", 3, False)
    assert "no data" in (tmp_path / "000-A/stderr.log").read_text()


def test_a_hanging_program_is_ended_with_its_children(tmp_path):
    code = "import subprocess, sys; subprocess.Popen([sys.executable, '-'], stdin=-1).wait()"
    run = _run(tmp_path, code, timeout_s=0.5)
    assert (run.status, run.valid) == ("timeout", False)


def test_a_command_that_does_not_exist_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="no-such-program"):
        measure_run(Arm("A", ("no-such-program",)), RunOptions("t"), Place(tmp_path / "a"))


def test_the_users_own_sitecustomize_still_runs(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.mine = 7")
    arm = Arm("A", (sys.executable, "-c", "print(mine)"), env={"PYTHONPATH": str(tmp_path)})
    measure_run(arm, RunOptions("t"), Place(tmp_path / "run"))
    assert (tmp_path / "run/stdout.log").read_text() == "7\n"


TRAINING = """
import torch
from torch.utils.data import DataLoader, TensorDataset
data = DataLoader(TensorDataset(torch.randn(256, 8)), batch_size=4)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for (x,) in data:
    optimizer.zero_grad(); model(x).sum().backward(); optimizer.step()
"""


@pytest.mark.torch
def test_optimizer_steps_and_loader_waits_of_torch(tmp_path):
    pytest.importorskip("torch", reason="hooks torch")
    run = _run(tmp_path, TRAINING, seed=5, timing=TimingRules(warmup_steps=3))
    assert run.steps.source == "optimizer SGD"
    assert run.steps.count == 60
    assert run.throughput.work_unit == "samples"
    assert run.throughput.work == 240
    assert 0 < run.steps.data_wait_ratio < 1
    record = json.loads(next((tmp_path / "000-A").glob("steps-*.json")).read_bytes())
    assert record["problems"] == []
    assert record["switches"]["torch"]


def test_printed_numbers_take_the_last_match(tmp_path):
    log = tmp_path / "log"
    log.write_text("loss: 3\nloss: 2.5\nloss: nan?\n")
    assert printed_numbers(log, {"loss": re.compile(r"loss: (\S+)")}) == {"loss": 2.5}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param("", "not JSON", id="empty"),
        pytest.param("{", "not JSON", id="cut off"),
        pytest.param("[]", "not JSON", id="a list"),
        pytest.param('{"schema": "bench.metrics/9"}', "bench.metrics/9", id="a later version"),
        pytest.param('{"schema": "bench.metrics/1", "run_id": 5}', "run_id", id="edited"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(tmp_path, content, said):
    path = Path(tmp_path / "metrics.json")
    path.write_text(content)
    with pytest.raises(UnreadableFile, match=re.escape(said)):
        read_metrics(path)


FUNCTIONS = """
import time, other
class Loop:
    def turn(self):
        time.sleep(0.0002)
def work(n):
    return sum(range(n))
time.sleep(0.02)
for _ in range(30):
    Loop().turn(); work(1000); other.call()
"""


@pytest.mark.parametrize("function", ["work", "Loop.turn", "other:call"])
def test_a_function_that_repeats_ends_the_steps(tmp_path, function):
    script, other = tmp_path / "script.py", tmp_path / "other.py"
    script.write_text(FUNCTIONS)
    other.write_text("import time\ntime.sleep(0.05)\ndef call(): pass\n")
    arm = Arm("A", (sys.executable, str(script)))
    options = RunOptions("test", timing=TimingRules(warmup_steps=0), step_function=function)
    run = measure_run(arm, options, Place(tmp_path / "run"))
    assert (run.steps.source, run.steps.count) == (f"function {function}", 29)
    # The process without its import of 50 ms: the sleeps of 20 and 30 times 0.2 ms are its own.
    assert run.work.imports_s >= 0.05
    assert run.duration_s - 0.05 > run.work.wall_s >= 0.026


def test_a_function_that_is_never_called_is_said(tmp_path):
    run = _run(tmp_path, "pass", step_function="nobody")
    assert run.steps is None
    assert run.unknown["steps"].startswith("no call of nobody was seen")


def test_time_without_waiting_for_a_cpu_holds_sleep_and_work(tmp_path):
    run = _run(tmp_path, MARKS.replace("r.mark(8)", "__import__('time').sleep(0.001); r.mark()"))
    assert 1.0 <= run.steps.own_ms <= run.steps.step_time_ms.max
    assert run.steps.own_ms >= run.steps.cpu_ms


ENDLESS = """
import time
from pinchpoint.inside import step_recorder as r
try:
    while True:
        time.sleep(0.0005); r.mark()
finally:
    print("left in order")
"""


def test_a_run_ends_after_the_steps_that_were_asked_for(tmp_path):
    run = _run(tmp_path, ENDLESS, end_after="40", timing=TimingRules(warmup_steps=0))
    assert (run.status, run.steps.count, run.counters["ended_after_steps"]) == ("ok", 40, 40)
    assert "left in order" in (tmp_path / "000-A/stdout.log").read_text()
    assert run.work is None
    assert run.unknown["work"] == "the run was ended after 40 steps"


def test_a_run_with_a_budget_has_a_part_of_it_and_some_steps(tmp_path):
    asked = RunOptions("test")
    options = within(asked, 0.24)  # ten milliseconds of steps, of half a millisecond each
    first = measure_run(Arm("A", (sys.executable, "-c", ENDLESS)), options, Place(tmp_path / "a"))
    assert 15 <= first.counters["ended_after_steps"] <= 30
    others = like(options, asked, first)
    assert others.end_after == str(int(first.counters["ended_after_steps"]))
    assert said(asked, others)[0].startswith(f"each run was ended after {others.end_after} steps")


def test_a_run_is_as_long_as_the_percentile_that_decides_takes(tmp_path):
    """A p99 may be gated from 100 timed steps on, and a third of all may be warm-up."""
    assert steps_for([MEASURES["step_time_ms"], MEASURES["step_time_p99_ms"]]) == 150
    assert steps_for([MEASURES["step_time_ms"]]) == 0
    asked = RunOptions("test")
    options = within(asked, 0.24, least_steps=steps_for([MEASURES["step_time_p99_ms"]]))
    run = measure_run(Arm("A", (sys.executable, "-c", ENDLESS)), options, Place(tmp_path / "a"))
    assert run.counters["ended_after_steps"] == 150
    assert MEASURES["step_time_p99_ms"].too_few(run) is None


def test_unsteady_steps_get_more_of_them(tmp_path):
    asked = RunOptions("test")
    first = _run(tmp_path, ENDLESS, end_after="12")
    unsteady = msgspec.structs.replace(
        first, warmup=msgspec.structs.replace(first.warmup, converged=False)
    )
    assert like(within(asked, 1.0), asked, unsteady).end_after == "48"


@pytest.mark.parametrize("options", [{"end_after": "never"}, {"record_steps": False}])
def test_a_budget_ends_no_run_that_is_to_be_whole(options):
    asked = RunOptions("test", **options)
    assert within(asked, 600.0) is asked


@pytest.mark.parametrize("text", ["1", "x", "0s", "-3", "4.5", ""])
def test_an_end_that_is_none_is_refused(text):
    with pytest.raises(UsageError, match="--end-after"):
        end_of(text)


def test_threads_that_sleep_are_asked_for_in_the_environment(tmp_path):
    code = "import os; print('spins:', len(os.environ['OMP_WAIT_POLICY']))"
    run = _run(tmp_path, code, threads_sleep=True, patterns={"spins": re.compile(r"spins: (\d)")})
    assert (run.custom, run.threads_sleep) == ({"spins": 7.0}, True)  # passive
