"""Every test here is the only program of its process."""

import concurrent.futures.thread
import threading

import pytest

from pinchpoint.capture.flow import work


@pytest.fixture(autouse=True)
def _threads_that_other_tests_left_are_not_the_programs(request, monkeypatch):
    """Executors and threads of tests before would be code that may read what is made here; also
    those that these start later. Only ``test_work`` has threads of its own."""
    if not request.module.__name__.endswith("test_work"):
        monkeypatch.setattr(work, "_others_run", lambda: False)
        return
    before = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}
    seen, others_run = work.frames_of_threads, work._others_run
    queues = concurrent.futures.thread._threads_queues

    def others():
        left = {thread: queues.pop(thread) for thread in [*queues] if thread.ident in before}
        try:
            return others_run()
        finally:
            queues.update(left)

    monkeypatch.setattr(work, "_others_run", others)
    monkeypatch.setattr(
        work, "frames_of_threads", lambda: [one for one in seen() if one not in before]
    )
