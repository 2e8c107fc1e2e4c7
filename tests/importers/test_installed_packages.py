"""Whose code a frame is, where the run says which packages are installed."""

import sys
from types import ModuleType

import pytest

from builders import TraceBuilder
from pinchpoint.analysis.host.frames import Owner, frame_of
from pinchpoint.capture.samples.stacks import installed_packages
from pinchpoint.trace.packages import as_installed, with_installed


@pytest.mark.parametrize(
    ("frame", "owner"),
    [
        ("polling/locks.py(143): acquire", Owner.LIBRARY),
        ("polling.py(12): acquire", Owner.LIBRARY),
        ("pollings/locks.py(143): acquire", Owner.USER),  # another one
        ("train.py(7): fetch", Owner.USER),
        ("numpy/core/numeric.py(3): cross", Owner.FRAMEWORK),
        ("/home/me/polling/locks.py(143): acquire", Owner.USER),  # brought along
    ],
)
def test_packages_that_are_installed_are_no_code_of_the_program(frame, owner):
    spelt = as_installed(frame, ("numpy", "polling"))
    assert frame_of(spelt).owner is owner
    assert spelt.endswith(frame)


def test_frames_of_a_recording_are_spelt_so():
    b = TraceBuilder()
    b.step(0, 0, 100)
    b.python("train.py(7): fetch", 0, 90)
    b.python("polling/locks.py(143): acquire", 10, 70)
    names = with_installed(b.trace(), ("polling",)).names
    assert "site-packages/polling/locks.py(143): acquire" in names
    assert "train.py(7): fetch" in names
    assert with_installed(b.trace(), ()).names == b.trace().names


def test_a_process_knows_what_was_imported_from_where_pip_puts_it(monkeypatch):
    for name, file in (
        ("bought", "/usr/lib/python3/dist-packages/bought/__init__.py"),
        ("brought", "/home/me/brought.py"),
        ("bought.part", "/usr/lib/python3/dist-packages/bought/part.py"),
    ):
        module = ModuleType(name)
        module.__file__ = file
        monkeypatch.setitem(sys.modules, name, module)
    found = installed_packages()
    assert "bought" in found
    assert {"brought", "bought.part", "sys"}.isdisjoint(found)
