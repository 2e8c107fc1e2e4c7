"""Records a program that the user runs: hooks inside it, a launcher around it.

What runs inside the user's program is standard library only, never raises into it, and never
writes to its output. Data leaves the process as files of a run folder.

The package can be called, because ``pinchpoint.capture`` is also the name of a function (see
:func:`pinchpoint.capture.api.capture`), and importing a module of a package binds its name.
"""

import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from pinchpoint.capture.api import capture

        return capture(*args, **kwargs)


sys.modules[__name__].__class__ = _CallablePackage
