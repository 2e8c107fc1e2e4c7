from importlib.resources import files

from pinchpoint.cli import main
from pinchpoint.errors import MissingExtra

DEMO = str(files("pinchpoint") / "data/item_sync.json.gz")


def test_perfetto_is_understood(tmp_path):
    for name in ("chrome", "perfetto"):
        assert main(["export", DEMO, "--to", name, "-o", str(tmp_path / name)]) == 0
    assert (tmp_path / "chrome").read_bytes() == (tmp_path / "perfetto").read_bytes()


def test_without_the_extra_no_empty_folder_is_left(tmp_path, monkeypatch, capsys):
    def missing():
        raise MissingExtra("SQL and Parquet need DuckDB", hint="install it")

    monkeypatch.setattr("pinchpoint.export.database.duckdb_module", missing)
    assert main(["export", DEMO, "--to", "parquet", "-o", str(tmp_path / "out")]) == 2
    assert "need DuckDB" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
