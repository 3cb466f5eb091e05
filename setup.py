"""The compiled twins. All are optional: without a compiler or Cython the Python twins serve."""

import os
from pathlib import Path

from setuptools import Extension, setup

SOURCES = sorted(Path("src").rglob("_*_c.pyx"))


def extensions() -> list[Extension]:
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    modules = [
        Extension(
            ".".join(path.with_suffix("").parts[1:]),
            [str(path)],
            depends=[
                "src/flaremq/model/_bytes.h",
                "src/flaremq/model/_pairs.h",
                "src/flaremq/protocol/_scan.h",
            ],
            include_dirs=["src/flaremq"],
            extra_compile_args=["-O3"],
        )
        for path in SOURCES
    ]
    made: list[Extension] = cythonize(modules, language_level=3, build_dir="build/cython")
    for module in made:
        module.optional = True  # Said here: cythonize makes new objects and forgets it.
    return made


setup(ext_modules=extensions(), options={"build_ext": {"parallel": os.cpu_count()}})
