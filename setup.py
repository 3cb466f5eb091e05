"""The compiled twins. All are optional: without a compiler or Cython the Python twins serve.

With FLAREMQ_PURE=1 none is compiled.
"""

import multiprocessing
import os
import shutil
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build import build

SOURCES = sorted(Path("src").rglob("_*_c.pyx"))


def extensions() -> list[Extension]:
    if os.environ.get("FLAREMQ_PURE"):
        return []
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
                "src/flaremq/model/_sequence.h",
                "src/flaremq/protocol/bulk/_fieldnames.pxi",
                "src/flaremq/protocol/bulk/_framecheck.pxi",
                "src/flaremq/protocol/bulk/_sendproperties.pxi",
                "src/flaremq/protocol/bulk/_scan.h",
                "src/flaremq/store/_glance.pxi",
            ],
            include_dirs=["src/flaremq"],
            # Lines for a backtrace, without what only a debugger needs: that takes a quarter of the time.
            extra_compile_args=["-O3", "-g1"],
        )
        for path in SOURCES
    ]
    made: list[Extension] = cythonize(
        modules, language_level=3, build_dir="build/cython", nthreads=processes()
    )
    for module in made:
        module.optional = True  # Said here: cythonize makes new objects and forgets it.
    return made


def processes() -> int:
    """Of Cython's; 0: this one. Where they are not forked they would run this file anew, each by itself."""
    return os.cpu_count() or 1 if multiprocessing.get_start_method() == "fork" else 0


class FreshBuild(build):
    """Starts from nothing. A wheel takes whatever lies in the build folder, also compiled modules that an
    earlier build left there: without a compiler they would be installed, made from other sources."""

    def run(self) -> None:
        target = Path(self.build_lib).resolve()
        if Path("build").resolve() in target.parents:  # Never a folder that somebody else named.
            shutil.rmtree(target, ignore_errors=True)
        super().run()


setup(
    ext_modules=extensions(),
    cmdclass={"build": FreshBuild},
    options={"build_ext": {"parallel": os.cpu_count()}},
)
