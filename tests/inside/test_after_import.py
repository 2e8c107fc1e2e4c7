"""Modules are acted on once they are complete, and never imported for it."""

import sys
import zipfile

import pytest

from pinchpoint.inside.after_import import after_import


@pytest.fixture
def failed():
    return []


def listening(failed):
    return lambda name, error: failed.append((name, type(error)))


def test_a_module_is_acted_on_once_it_is_complete(tmp_path, monkeypatch, failed):
    (tmp_path / "late_module_a.py").write_text("value = 1")
    monkeypatch.syspath_prepend(tmp_path)
    seen = []
    after_import("late_module_a", lambda m: seen.append(m.value), listening(failed))
    after_import("late_module_a", lambda m: seen.append(m.value + 1), listening(failed))
    assert seen == []
    import late_module_a

    assert late_module_a.value == 1
    assert (seen, failed) == ([1, 2], [])


def test_what_is_there_is_acted_on_at_once_and_an_error_is_told(failed):
    after_import("json", lambda m: 1 / 0, listening(failed))
    assert failed == [("json", ZeroDivisionError)]


def test_what_is_taken_back_is_not_done_and_leaves_nothing_behind(tmp_path, monkeypatch, failed):
    (tmp_path / "late_module_b.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    before = list(sys.meta_path)
    seen = []
    after_import("late_module_b", seen.append, listening(failed))()
    import late_module_b  # noqa: F401

    assert seen == []
    assert sys.meta_path == before


def test_modules_of_one_archive_share_a_loader_and_are_told_apart(tmp_path, monkeypatch, failed):
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        archive.writestr("late_module_c.py", "import late_module_d")
        archive.writestr("late_module_d.py", "")
    monkeypatch.syspath_prepend(tmp_path / "two.zip")
    seen = []
    after_import("late_module_c", lambda m: seen.append(m.__name__), listening(failed))
    import late_module_c  # noqa: F401

    assert seen == ["late_module_c"]
