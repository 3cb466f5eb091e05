"""Who makes the archive of classes, who uses it, and that nothing about it can stop a start."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from flaremq.spark.launch.appcds import ClassArchive, archive_for, discard
from flaremq.spark.launch.java import Java

HEADER = struct.pack("=I", 0xF00BABA8)


@pytest.fixture
def java(tmp_path: Path) -> Java:
    home = tmp_path / "java"
    (home / "lib" / "server").mkdir(parents=True)
    (home / "lib" / "server" / "classes.jsa").write_bytes(b"")
    return Java(home=home, version="17.0.15", origin="a test", real_home=home)


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    (tmp_path / "spark" / "jars" / "a.jar").write_bytes(b"jar")
    return tmp_path / "spark"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "archives"


def made_at(archive: ClassArchive) -> Path:
    (option,) = [option for option in archive.options if option.startswith("-XX:ArchiveClassesAtExit=")]
    return Path(option.partition("=")[2])


def used(archive: ClassArchive) -> Path:
    (option,) = [option for option in archive.options if option.startswith("-XX:SharedArchiveFile=")]
    return Path(option.partition("=")[2])


def finished(java: Java, spark_home: Path, folder: Path) -> Path:
    """As after a first session whose JVM has ended."""
    first = archive_for(java, spark_home, folder)
    made_at(first).write_bytes(HEADER + b"classes")
    first.handed_over()
    return used(archive_for(java, spark_home, folder))


def test_the_first_start_makes_it_and_the_next_one_uses_it(
    java: Java, spark_home: Path, folder: Path
) -> None:
    first = archive_for(java, spark_home, folder)
    assert first.is_made_now
    made_at(first).write_bytes(HEADER + b"classes")
    first.handed_over()
    second = archive_for(java, spark_home, folder)
    assert not second.is_made_now
    assert used(second).read_bytes() == HEADER + b"classes"
    assert "-Xshare:auto" in second.options
    assert archive_for(java, spark_home, folder) == second


def test_while_one_makes_it_another_goes_without(java: Java, spark_home: Path, folder: Path) -> None:
    first = archive_for(java, spark_home, folder)
    made_at(first).write_bytes(HEADER)  # Whole or not: its JVM still has the lock.
    assert archive_for(java, spark_home, folder) == ClassArchive()
    first.handed_over()
    assert used(archive_for(java, spark_home, folder)).exists()


def test_what_a_killed_jvm_left_is_thrown_away(java: Java, spark_home: Path, folder: Path) -> None:
    first = archive_for(java, spark_home, folder)
    made_at(first).write_bytes(bytes(4096))  # The header comes last.
    first.handed_over()
    second = archive_for(java, spark_home, folder)
    assert second.is_made_now
    assert not made_at(second).exists()
    second.handed_over()


def test_after_three_vain_attempts_nobody_tries_again(java: Java, spark_home: Path, folder: Path) -> None:
    for _ in range(3):
        attempt = archive_for(java, spark_home, folder)
        assert attempt.is_made_now
        attempt.handed_over()
    assert archive_for(java, spark_home, folder) == ClassArchive()


@pytest.mark.parametrize("damage", [HEADER, b"", b"\0" * 11], ids=["cut", "empty", "no header"])
def test_a_damaged_archive_is_made_anew(java: Java, spark_home: Path, folder: Path, damage: bytes) -> None:
    finished(java, spark_home, folder).write_bytes(damage)
    again = archive_for(java, spark_home, folder)
    assert again.is_made_now
    again.handed_over()


def test_one_with_which_java_does_not_start_is_discarded(java: Java, spark_home: Path, folder: Path) -> None:
    whole = finished(java, spark_home, folder)
    discard(archive_for(java, spark_home, folder))
    assert not whole.exists()


def test_other_jars_need_another_archive(java: Java, spark_home: Path, folder: Path) -> None:
    whole = finished(java, spark_home, folder)
    os.utime(spark_home / "jars" / "a.jar", (1, 1))
    again = archive_for(java, spark_home, folder)
    assert again.is_made_now
    assert whole.exists()  # Another environment may be using it.
    again.handed_over()


def test_an_archive_that_nobody_has_used_for_a_month_goes(java: Java, spark_home: Path, folder: Path) -> None:
    whole = finished(java, spark_home, folder)
    os.utime(whole, (1, 1))
    os.utime(spark_home / "jars" / "a.jar", (1, 1))
    archive_for(java, spark_home, folder).handed_over()
    assert not whole.exists()


def test_without_a_place_to_write_to_spark_starts_without(
    java: Java, spark_home: Path, tmp_path: Path
) -> None:
    (tmp_path / "a-file").write_bytes(b"")
    assert archive_for(java, spark_home, tmp_path / "a-file" / "archives") == ClassArchive()
    assert archive_for(java, spark_home, tmp_path / "with:colon") == ClassArchive()
    assert archive_for(java, spark_home, tmp_path / "with blank") == ClassArchive()


def test_a_java_that_can_make_no_archive_of_its_own_classes_has_none(
    java: Java, spark_home: Path, folder: Path
) -> None:
    (java.real_home / "lib" / "server" / "classes.jsa").unlink()
    assert archive_for(java, spark_home, folder) == ClassArchive()
