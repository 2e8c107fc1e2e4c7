"""What changed between two profiles or two benchmarks, by how much, and is it noise.

Pure functions of what was read; the changes of two profiles add up to the change of the step.

The package can be called, because ``pinchpoint.compare`` is also the name of a function (see
:func:`pinchpoint.api.compare`), and importing a module of a package binds its name.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return import_module("pinchpoint.api").compare(*args, **kwargs)


sys.modules[__name__].__class__ = _CallablePackage
