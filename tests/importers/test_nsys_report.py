"""Reports, which only nsys can read; a script that plays nsys stands in for it."""

import gzip
import os
import stat
import sys

import pytest

import pinchpoint as pp
from importers.nsys_export import kernel, strings, write
from pinchpoint.errors import UnreadableFile
from pinchpoint.importers.nsys.report_file import report_version

REPORT = b"NVIDIA Tegra Profiler Report 2025@5@1@121-255136380782v0.\n\x0bLocal (CLI)" + bytes(64)

STAND_IN = """#!{python}
import os, pathlib, shutil, sys
if sys.argv[1] == "--version":
    print("NVIDIA Nsight Systems version {version}-251234567890v0")
    sys.exit()
assert os.listdir() == [], "nsys runs in an empty folder"
print({complaint!r}, file=sys.stderr)
if {complaint!r}:
    sys.exit(1)
shutil.copy({export!r}, sys.argv[sys.argv.index("--output") + 1])
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install an nsys of some version."""
    folder = tmp_path / "bin"
    folder.mkdir()
    export = write(
        tmp_path / "export.sqlite",
        {"StringIds": strings("gemm"), "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(1, 5, 1)]},
    )

    def installed(version, complaint=""):
        script = folder / "nsys"
        script.write_text(
            STAND_IN.format(
                python=sys.executable, version=version, complaint=complaint, export=str(export)
            )
        )
        script.chmod(script.stat().st_mode | stat.S_IXUSR)

    monkeypatch.setenv("PATH", str(folder) + os.pathsep + "/nowhere")
    monkeypatch.setattr("pinchpoint.importers.nsys.report_file._INSTALLED", ())
    return installed


@pytest.fixture
def report(tmp_path):
    path = tmp_path / "run.nsys-rep"
    path.write_bytes(REPORT)
    return path


def test_the_version_is_in_the_first_bytes():
    assert report_version(REPORT) == (2025, 5, 1)
    assert report_version(b"NVIDIA Tegra Profiler Report 1.\x0a") is None


def test_an_installed_nsys_exports_the_report(install, report):
    install("2025.6.1.100")
    trace = pp.load(report)
    assert trace.device_ops["duration_ns"].tolist() == [4]
    assert trace.source.path == str(report)


def test_an_older_nsys_is_not_even_tried(install, report):
    install("2023.4.4.54", complaint="must not run")
    with pytest.raises(
        UnreadableFile, match=r"written by nsys 2025\.5\.1; the nsys here is 2023"
    ) as e:
        pp.load(report)
    assert f"nsys export --type sqlite {report}" in e.value.hint


def test_without_nsys_the_command_is_told(install, report):
    with pytest.raises(UnreadableFile, match="no nsys here") as e:
        pp.load(report)
    assert "2025.5.1 or newer" in e.value.hint
    assert f"nsys export --type sqlite {report}" in e.value.hint


def test_what_nsys_says_is_passed_on(install, report):
    install("2025.6.1.100", complaint="The report is truncated")
    with pytest.raises(UnreadableFile, match="The report is truncated"):
        pp.load(report)


def test_a_gzipped_report_is_to_be_unpacked_first(install, tmp_path):
    path = tmp_path / "run.nsys-rep.gz"
    path.write_bytes(gzip.compress(REPORT))
    with pytest.raises(UnreadableFile, match="no nsys here") as e:
        pp.load(path)
    assert e.value.hint.startswith("unpack it, and run where nsys")
    assert e.value.hint.endswith(f"nsys export --type sqlite {tmp_path / 'run.nsys-rep'}")
