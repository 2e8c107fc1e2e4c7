"""A place holds the old file or the whole new one."""

import os
import stat
import tempfile

import pytest

from pinchpoint import replacing as module
from pinchpoint.replacing import replacing, scratch_folder


def write(path, text, **how):
    with replacing(path, **how) as beside:
        beside.write_text(text)


@pytest.mark.parametrize("how", [{}, {"lasting": True}])
def test_a_new_file_and_nothing_beside_it(tmp_path, how):
    write(tmp_path / "a", "new", **how)
    assert [p.read_text() for p in tmp_path.iterdir()] == ["new"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_what_fails_half_way_leaves_the_old_file(tmp_path, error):
    (tmp_path / "a").write_text("old")

    def half():
        with replacing(tmp_path / "a") as beside:
            beside.write_text("ne")
            raise error

    with pytest.raises(type(error)):
        half()
    assert [p.read_text() for p in tmp_path.iterdir()] == ["old"]


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_permissions_stay(tmp_path, mode):
    (tmp_path / "a").write_text("old")
    (tmp_path / "a").chmod(mode)
    write(tmp_path / "a", "new")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == mode


@pytest.mark.parametrize("there", [True, False], ids=["target", "no target yet"])
def test_a_link_stays_and_its_target_is_replaced(tmp_path, there):
    target, link = tmp_path / "target", tmp_path / "link"
    if there:
        target.write_text("old")
    link.symlink_to(target)
    write(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_file_that_must_not_be_written_is_not_replaced(tmp_path, monkeypatch):
    (tmp_path / "a").write_text("old")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everything
    with pytest.raises(PermissionError):
        write(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == "old"


def test_in_a_folder_that_takes_no_new_file_it_is_overwritten(tmp_path, monkeypatch):
    (tmp_path / "a").write_text("old, and longer")
    forbid(monkeypatch, "open", PermissionError(13, "Permission denied"))
    with replacing(tmp_path / "a") as beside:
        assert beside == tmp_path / "a"
    with pytest.raises(PermissionError), replacing(tmp_path / "absent"):
        pass


def test_a_mounted_file_that_cannot_be_moved_to_is_overwritten(tmp_path, monkeypatch):
    (tmp_path / "a").write_text("old, and longer")
    forbid(monkeypatch, "replace", OSError(16, "Device or resource busy"))
    write(tmp_path / "a", "new")
    assert [p.read_text() for p in tmp_path.iterdir()] == ["new"]


def forbid(monkeypatch, method, error):
    def fail(*_args, **_options):
        raise error

    monkeypatch.setattr(f"pathlib.Path.{method}", fail)


def test_a_long_name_has_room_beside_it(tmp_path):
    write(tmp_path / ("n" * 255), "new")


def test_no_folder_is_no_place(tmp_path):
    with pytest.raises(OSError, match="a folder or a device"):
        write(tmp_path, "new")
    with pytest.raises(FileNotFoundError):
        write(tmp_path / "absent" / "a", "new")


def test_what_killed_processes_left_is_swept_and_what_is_in_use_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    module._sweep.cache_clear()
    with scratch_folder() as used, replacing(tmp_path / "out") as beside:
        beside.write_text("half")
        left = tmp_path / "pinchpoint-dead"
        left.mkdir()
        (left / "unpacked").write_text("x")
        (left / ".lock").touch()
        half = tmp_path / ".pinchpoint-dead.tmp"
        half.touch()
        young = tmp_path / ".pinchpoint-young.tmp"
        young.touch()
        pipe = tmp_path / ".pinchpoint-pipe.tmp"  # to open it would wait for ever
        os.mkfifo(pipe)
        for path in (left / ".lock", half, beside, used / ".lock", pipe):
            os.utime(path, (1, 1))
        module._sweep.cache_clear()
        with scratch_folder(), replacing(tmp_path / "other"):
            assert not left.exists()
            assert not half.exists()
            assert young.exists()
            assert used.exists()
            assert beside.exists()
    assert {p.name for p in tmp_path.iterdir()} == {"out", "other", young.name, pipe.name}
