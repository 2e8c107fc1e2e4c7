"""Files are written beside their place and moved there; what is no file must not be moved away."""

import os

import pytest

from pinchpoint.bench.folders import write_atomic
from pinchpoint.errors import UsageError
from pinchpoint.jobs.parts import PartHeader, write_part
from pinchpoint.monitor.sample import write_textfile


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize(
    ("write", "error"),
    [
        (lambda path: write_textfile(path, "x"), OSError),
        (lambda path: write_part(path, PartHeader(), []), OSError),
        (lambda path: write_atomic(path, b"x"), UsageError),
    ],
    ids=["metrics", "part", "result"],
)
def test_a_pipe_is_not_replaced_by_a_file(tmp_path, write, error):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(error, match="a folder or a device"):
        write(pipe)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]
