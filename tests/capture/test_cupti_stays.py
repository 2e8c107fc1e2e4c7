"""What XLA calls at the end of a recording returns at once, in this process alone."""

import ctypes
import platform
import shutil
import subprocess
import sys

import pytest

from pinchpoint.capture.windows import cupti

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler"),
    pytest.mark.skipif(
        sys.platform != "linux" or platform.machine() != "x86_64",
        reason="code is changed on x86-64 under Linux alone",
    ),
]


def library(folder, name, *options):
    """A library as CUPTI is called, whose ``cuptiFinalize`` returns 7."""
    source, target = folder / "cupti.c", folder / name
    source.write_text("int cuptiFinalize(void) { return 7; } int cuptiOther(void) { return 8; }")
    subprocess.run(["cc", "-shared", "-fPIC", *options, "-o", target, source], check=True)
    return target


@pytest.mark.parametrize("options", [["-fcf-protection=none"], ["-fcf-protection=branch", "-O2"]])
def test_it_returns_at_once_and_the_file_is_left(tmp_path, options):
    path = library(tmp_path, "libcupti.so.13", *options)
    before, loaded = path.read_bytes(), ctypes.CDLL(str(path))
    assert loaded.cuptiFinalize() == 7
    assert cupti.keep_attached()
    assert (loaded.cuptiFinalize(), loaded.cuptiOther()) == (0, 8)
    assert cupti.keep_attached()
    assert (loaded.cuptiFinalize(), loaded.cuptiOther()) == (0, 8)
    assert path.read_bytes() == before


def test_a_library_without_it_is_no_error(tmp_path, monkeypatch):
    other = tmp_path / "libcupti.so.1"
    source = tmp_path / "other.c"
    source.write_text("int other(void) { return 1; }")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", other, source], check=True)
    monkeypatch.setattr(cupti, "_loaded", lambda: {str(other)})
    assert not cupti.keep_attached()


def test_elsewhere_it_is_not_tried(monkeypatch):
    monkeypatch.setattr(cupti, "_loaded", lambda: pytest.fail("looked"))
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert not cupti.keep_attached()
