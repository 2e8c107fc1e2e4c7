"""Which files of this machine are shown beside a finding, and which never are."""

import msgspec
import pytest

from pinchpoint.diagnosis.finding import Evidence, Finding, Location
from pinchpoint.program.at_hand import with_code
from pinchpoint.program.files import _parsed, source_of
from pinchpoint.trace import Source, Trace

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
    _parsed.cache_clear()
    (found,) = with_code((one,), trace)
    assert str(found.location) == "train.py:2"
    assert found.code.edited[1] == "torch.set_num_threads(4)"
