"""Work for processes that are started anew: they import it, so it cannot be in a test file."""

import os
import signal
from pathlib import Path

from pinchpoint.report.documents.rank_records import RankRecord, encode_record


def quick(file):
    return encode_record(RankRecord(path=file.path, rank=file.rank, error="nothing to read"))


def fragile(file):
    """Dies the first time that it meets a file whose name asks for it, or each time."""
    mark = Path(file.label)
    if file.label and (not mark.exists() or mark.name == "always"):
        mark.touch()
        os._exit(9)
    return quick(file)


def interrupted_for_ever(fifo):
    """Gets what Ctrl-C sends, says that it goes on, and never ends by itself."""
    os.kill(os.getpid(), signal.SIGINT)
    Path(fifo).write_text("at work")
    while True:
        signal.pause()
