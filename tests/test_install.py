"""An install from this source, in an environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LEFT_OUT = shutil.ignore_patterns("build", "*.so", "__pycache__", "*.egg-info")


@pytest.mark.slow
def test_without_a_compiler_no_module_of_an_earlier_build_is_installed(tmp_path: Path) -> None:
    """The build folder has compiled modules that were made from other sources: they must stay there."""
    source, target = tmp_path / "source", tmp_path / "target"
    shutil.copytree(ROOT / "src", source / "src", ignore=LEFT_OUT)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    stale = source / "build" / f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}" / "flaremq"
    stale.mkdir(parents=True)
    (stale / f"old_c{sysconfig.get_config_var('EXT_SUFFIX')}").write_bytes(b"compiled from other sources")
    (stale / "gone.py").write_text("raise AssertionError('this module was deleted')")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps"),
            *("--no-index", "--target", str(target), str(source)),
        ],
        env={**os.environ, "CC": "false", "CXX": "false"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (target / "flaremq" / "cli" / "about.py").exists()
    assert not list(target.rglob("*.so"))
    assert not (target / "flaremq" / "gone.py").exists()
    shown = subprocess.run(
        [sys.executable, "-c", "from flaremq.cli.about import compiled; print(compiled())"],
        env={**os.environ, "PYTHONPATH": str(target)},
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    ).stdout
    assert shown.startswith("running without compiled modules: about a tenth of the speed")
