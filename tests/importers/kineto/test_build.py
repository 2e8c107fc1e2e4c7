"""The package installs where nothing can be compiled."""

import runpy
from pathlib import Path

import pytest
import setuptools

ROOT = Path(__file__).parents[3]


def test_compiled_modules_are_optional(monkeypatch):
    pytest.importorskip("Cython", reason="Cython translates the native reader")
    given = {}
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(setuptools, "setup", lambda **arguments: given.update(arguments))
    runpy.run_path(str(ROOT / "setup.py"))
    names = {module.name.rpartition(".")[2] for module in given["ext_modules"]}
    assert names == {"_scan", "_nest", "_passes", "_runs", "_blocks", "_chains"}
    assert all(module.optional for module in given["ext_modules"])
