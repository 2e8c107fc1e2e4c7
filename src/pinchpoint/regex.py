"""Regular expressions that are compiled when they are first asked.

A diagnosis imports some 300 of them, which took a tenth of its time, and asks half of them.
``regex`` is called as ``re.compile`` is, and what it gives is used as a compiled pattern; a mistake
in the expression shows when it is first used (every one of the package is compiled in the tests).
"""

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    regex = re.compile
else:

    def regex(pattern: str | bytes, flags: int = 0) -> Any:
        """A pattern that is not compiled yet."""
        return _Late(pattern, flags)


class _Late:
    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self.pattern, self._flags = pattern, flags

    def __getattr__(self, name: str) -> Any:
        """Asked for what is not there yet: the first time that this method is used."""
        compiled = re.compile(self.pattern, self._flags)
        value = getattr(compiled, name)
        setattr(self, name, value)
        return value
