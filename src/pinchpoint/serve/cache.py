"""Made pages, kept while there is room."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock

MOST_BYTES = 256 << 20


class PageCache:
    """Texts by key, least recently used out first; each is made once, one at a time.

    One at a time also bounds memory: a recording of gigabytes is never read twice at once.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._texts: OrderedDict[Hashable, bytes] = OrderedDict()
        self._making = Lock()

    def get(self, key: Hashable, make: Callable[[], str]) -> bytes:
        """The text as UTF-8; what ``make`` raises is not remembered."""
        with self._making:
            if key not in self._texts:
                self._texts[key] = make().encode("utf-8", "replace")
            self._texts.move_to_end(key)
            text = self._texts[key]
            while len(self._texts) > 1 and self.bytes > self._most_bytes:
                self._texts.popitem(last=False)
            return text

    @property
    def bytes(self) -> int:
        """What the kept texts take."""
        return sum(map(len, self._texts.values()))
