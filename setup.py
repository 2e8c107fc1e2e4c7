"""Builds the optional native reader; everything else about the package is in pyproject.toml.

Without a compiler, or without Cython, the package installs all the same and reads traces with
the plain reader, which is slower.
"""

import sys

from setuptools import Extension, setup

OPTIMISE = ["/O2"] if sys.platform == "win32" else ["-O3"]


HERE = "src/pinchpoint/importers/kineto"


def extensions() -> list[Extension]:
    """The native reader, if Cython is there to translate it."""
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    modules: list[Extension] = cythonize(
        [
            Extension(
                f"pinchpoint.importers.kineto.{name}",
                [f"{HERE}/{name}.pyx"],
                include_dirs=[HERE],
                depends=[
                    f"{HERE}/{name}" for name in ("_text.h", "_habit.pxd", "_keys.pxd", "_pool.pxd", "_rows.pxd")
                ],
                extra_compile_args=OPTIMISE,
            )
            for name in ("_scan", "_nest")
        ],
        include_path=["src"],
    )
    for module in modules:
        module.optional = True  # a failed compilation is a warning; cythonize forgets it
    return modules


setup(ext_modules=extensions())
