"""Work that a few threads do beside this one, first come, first served.

``concurrent.futures`` does the same, and imports what takes a hundredth of a diagnosis.
"""

from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, TypeVar

Answer = TypeVar("Answer")


class Beside:
    """Threads that end with the block ``with``; what they have not begun by then is dropped."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._threads: list[Thread] = []
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def __enter__(self) -> "Beside":
        return self

    def begin(self, work: Callable[..., Answer], *arguments: object) -> Callable[[], Answer]:
        """Have a thread do it; what is given back waits for the answer, or raises what it raised.

        Raises RuntimeError where the system lets no thread start.
        """
        said: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

        def task() -> None:
            try:
                said.put((work(*arguments), None))
            except BaseException as error:
                said.put((None, error))

        def answer() -> Answer:
            value, error = said.get()
            if error is not None:
                raise error
            found: Answer = value
            return found

        if len(self._threads) < self._most:
            thread = Thread(target=self._work)
            thread.start()
            self._threads.append(thread)
        self._tasks.put(task)
        return answer

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()

    def __exit__(self, *_: object) -> None:
        with suppress(Empty):
            while True:
                self._tasks.get_nowait()
        for _thread in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join()
