import pytest

from pinchpoint.importers import load


@pytest.fixture
def written(tmp_path):
    def write(content, name="x.xplane.pb"):
        (tmp_path / name).write_bytes(content)
        return load(tmp_path / name)

    return write
