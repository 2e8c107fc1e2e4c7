"""Builds the optional native readers and replay; everything else is in pyproject.toml.

Without a compiler, or without Cython, the package installs all the same and reads and replays
traces in Python, which is slower and gives the same.
"""

import os
import sys

from setuptools import Extension, setup

HOME = "src/pinchpoint/importers/kineto/native"
READER = ("_scan", "_nest")
ALONE = (
    "importers.memory_snapshot._runs",
    "analysis.host._chains",
    "analysis.memory.allocator._blocks",
    "analysis.replay._passes",
)
PARTS = ("_text.h", "_habit.pxd", "_keys.pxd", "_pool.pxd", "_rows.pxd")
# Without the -g of Python's own flags: 30 % less time to compile, a quarter of the size.
LEAN = [] if "CFLAGS" in os.environ else ["-g0"]
OPTIMISE = ["/O2"] if sys.platform == "win32" else ["-O3", *LEAN]


def extension(name: str) -> Extension:
    """One compiled module."""
    return Extension(
        f"pinchpoint.importers.kineto.native.{name}",
        [f"{HOME}/{name}.pyx"],
        include_dirs=[HOME],
        depends=[f"{HOME}/{part}" for part in PARTS],
        extra_compile_args=OPTIMISE,
    )


def alone(name: str) -> Extension:
    """One compiled module that needs no other."""
    source = f"src/pinchpoint/{name.replace('.', '/')}.pyx"
    return Extension(f"pinchpoint.{name}", [source], extra_compile_args=OPTIMISE)


def extensions() -> list[Extension]:
    """What Cython can translate, if it is there."""
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    modules: list[Extension] = cythonize(
        [*map(extension, READER), *map(alone, ALONE)], include_path=["src"]
    )
    for module in modules:
        module.optional = True  # a failed compilation is a warning; cythonize drops the argument
    return modules


# Compiling is most of an installation; parallel: as many at once as there are processors.
setup(ext_modules=extensions(), options={"build_ext": {"parallel": True}})
