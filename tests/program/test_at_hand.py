"""Which files of this machine are shown beside a finding, and which never are."""

import os

import msgspec
import pytest

from pinchpoint.diagnosis.finding import Evidence, Finding, Location
from pinchpoint.program.at_hand import with_code
from pinchpoint.program.files import source_of
from pinchpoint.report.pages.report import code_lines
from pinchpoint.trace import RunFacts, RunSamples, Source, Trace
from pinchpoint.trace.run_samples import SampledThread

PROGRAM = "def train():\n    total = 0\n    total += loss.item()\n\n\ndef other():\n    pass\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    root = tmp_path / "project"
    root.mkdir()
    (root / "train.py").write_text(PROGRAM)
    (tmp_path / "secret.py").write_text(PROGRAM)
    monkeypatch.chdir(root)
    return root


def finding(file, line=3, function="train"):
    at = Location(file=file, line=line, function=function)
    return Finding(id="sync-in-loop", summary="", evidence=(), location=at)


def shown(one, root):
    (found,) = with_code((one,), Trace(Source(str(root / "trace.json"), "kineto"), ()))
    return found.code


@pytest.mark.parametrize("file", ["train.py", "/elsewhere/project/train.py"])
def test_the_lines_and_an_edit_that_fits_them(here, file):
    code = shown(finding(file), here)
    assert code.file == "train.py"
    assert code.first_line == 1
    assert code.lines[2] == "    total += loss.item()"
    assert code.edited[2] == "    total += loss.detach()"
    assert len(code.edited) == len(code.lines)


@pytest.mark.parametrize(("turns", "line"), [(0, 6), (2, 2)])
def test_a_tensor_that_came_in_another_order_is_shown_where_it_is_turned(here, turns, line):
    text = "def step(f):\n    f.add_(1)\n\n\ndef restore(state):\n    return state.permute(1, 0)\n"
    (here / "train.py").write_text(text)
    one = Finding(
        id="non-contiguous-access",
        summary="",
        evidence=(Evidence("turns of dimensions in the steps", turns, "per step"),),
        location=Location(file="train.py", line=2, function="step"),
    )
    (found,) = with_code((one,), Trace(Source(str(here / "trace.json"), "kineto"), ()))
    assert found.location.line == line
    assert (found.code.edited is not None) == (not turns)


@pytest.mark.parametrize(("recorded_s", "newer"), [(100, True), (300, False)])
def test_lines_of_a_file_that_is_newer_than_the_recording_say_so(here, recorded_s, newer):
    os.utime(here / "train.py", (200, 200))
    trace = Trace(Source(str(here / "a.json"), "kineto"), (), origin_ns=recorded_s * 10**9)
    (found,) = with_code((finding("train.py"),), trace)
    assert found.code.newer is newer
    assert ("newer than the recording" in code_lines(found)[0]) is newer


def test_of_a_function_that_begins_there_the_line_that_looks_saw_is_shown(here):
    (here / "train.py").write_text(
        "def train():\n" + "    pass\n" * 9 + PROGRAM.replace("train", "b")
    )
    one = msgspec.structs.replace(finding("train.py", line=1), id="cpu-operator-loop")
    assert shown(one, here).first_line == 1
    main = SampledThread("MainThread", True, 12, 0, ((0, 2), (1, 7), (2, 3)))
    frames = ("train.py(4): train", "train.py(8): train", "train.py(13): b")
    looks = RunSamples(
        every_s=0.1,
        seconds=1.2,
        looks=12,
        late_median_ns=0,
        cost_ns=0,
        frames=frames,
        stacks=((0,), (1,), (2,)),
        threads=(main,),
    )
    trace = Trace(Source(str(here / "trace.json"), "kineto"), (), run=RunFacts(samples=looks))
    (found,) = with_code((one,), trace)
    assert (found.code.first_line, len(found.code.lines)) == (6, 5)


def test_looks_at_another_function_of_the_same_name_are_of_another_line(here):
    """A file has a ``forward`` for each module, and a decorator may stand before its name."""
    first = ["class A:", "    @cached", "    def forward(self, x):", *["        x += 1"] * 9]
    second = ["class B:", "    def forward(self, x):", *["        x -= 1"] * 9]
    (here / "train.py").write_text("\n".join([*first, *second]) + "\n")
    one = msgspec.structs.replace(
        finding("train.py", line=2, function="forward"), id="cpu-operator-loop"
    )
    main = SampledThread("MainThread", True, 12, 0, ((0, 9), (1, 3)))
    looks = RunSamples(
        every_s=0.1,
        seconds=1.2,
        looks=12,
        late_median_ns=0,
        cost_ns=0,
        frames=("train.py(18): forward", "train.py(9): forward"),
        stacks=((0,), (1,)),
        threads=(main,),
    )
    trace = Trace(Source(str(here / "trace.json"), "kineto"), (), run=RunFacts(samples=looks))
    (found,) = with_code((one,), trace)
    assert (found.code.first_line, len(found.code.lines)) == (7, 5)  # around line 9, not 18


@pytest.mark.parametrize(
    "one",
    [
        finding("train.py", function="other"),  # the file has changed since
        finding("train.py", line=99),
        finding("/elsewhere/another/train.py"),  # another program's file of the same name
        finding("../secret.py"),
        finding("/etc/passwd", line=1, function=None),
        finding("train.txt"),
        finding(None),
        # Its fix is made for the whole process, and no edit of this line.
        msgspec.structs.replace(finding("train.py"), id="cpu-few-threads"),
    ],
)
def test_what_is_not_shown(here, one):
    assert shown(one, here) is None


def test_a_link_that_leads_out_is_not_followed(here, tmp_path):
    (here / "linked.py").symlink_to(tmp_path / "secret.py")
    assert source_of("linked.py", 3, "train", [here.resolve()]) is None


def test_a_number_of_threads_is_changed_where_the_program_sets_it(here):
    at = Location(file="train.py", line=4, function="train")
    cores = Evidence("cores allowed", 4, "count")
    one = Finding(id="cpu-few-threads", summary="", evidence=(cores,), location=at)
    trace = Trace(Source(str(here / "trace.json"), "kineto"), ())
    (here / "train.py").write_text("import torch\n\n" + PROGRAM)
    assert with_code((one,), trace) == (one,)  # no line of it is to be changed: none is shown
    (here / "train.py").write_text("import torch\ntorch.set_num_threads(1)\n" + PROGRAM)
    (found,) = with_code((one,), trace)
    assert str(found.location) == "train.py:2"
    assert found.code.edited[1] == "torch.set_num_threads(4)"


def test_an_optimizer_is_changed_where_it_is_made(here):
    """A trainer calls it from the line at which it is told to fit."""
    at = Location(file="train.py", line=3, function="train")
    one = Finding(id="cpu-unfused-optimizer", summary="", evidence=(), location=at)
    trace = Trace(Source(str(here / "trace.json"), "kineto"), ())
    text = PROGRAM + "\n\ndef configure(model):\n    return torch.optim.AdamW(model.parameters())\n"
    (here / "train.py").write_text(text)
    (found,) = with_code((one,), trace)
    assert found.location.line == text.count("\n")
    assert found.code.edited[found.location.line - found.code.first_line].endswith(", fused=True)")
    (here / "train.py").write_text(text + "    torch.optim.SGD(model.parameters())\n")
    assert with_code((one,), trace) == (one,)  # which of the two does not show
