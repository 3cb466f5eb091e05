"""What is said when the real store cannot be had. Needs no Java and no Maven: scripts stand in for them."""

from pathlib import Path

import pytest
from tests.java import toolchain

JAVA_17 = "echo 'openjdk version \"17.0.1\" 2021-10-19' >&2"
MAVEN = """
echo >> runs
for module in v5 v55 v4 v4servers; do mkdir -p $module/target; echo {jar} > $module/target/classpath.txt; done
"""
MAVEN_WITHOUT_NETWORK = """
printf '\\033[0m\\033[0m'
echo '[ERROR] Failed to execute goal: Could not transfer artifact: Connection refused'
echo '[ERROR] -> [Help 1]'
exit 1
"""


class Fakes:
    """An empty project and an empty PATH, to be filled with scripts."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.bin = root / "bin"
        self.jar = root / "store.jar"
        self.bin.mkdir()
        self.jar.touch()
        (self.home / "shared").mkdir(parents=True)
        (self.home / "pom.xml").touch()
        for module in toolchain.BUILT:
            for folder in ("src", "target/classes"):
                (self.home / module / folder).mkdir(parents=True)
            (self.home / module / "pom.xml").touch()

    def add(self, name: str, script: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
        (self.bin / name).chmod(0o755)

    @property
    def builds(self) -> int:
        return len((self.home / "runs").read_text().splitlines())


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fakes:
    made = Fakes(tmp_path)
    monkeypatch.setattr(toolchain, "HOME", made.home)
    monkeypatch.setenv("PATH", str(made.bin))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return made


def find() -> toolchain.Toolchain | str:
    """As if by a new process each time."""
    toolchain.find_toolchain.cache_clear()
    try:
        return toolchain.find_toolchain()
    finally:
        toolchain.find_toolchain.cache_clear()


def test_no_java_is_said(fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find() == "no java on the PATH"
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert find() == "no java in JAVA_HOME (/nowhere)"


def test_an_old_java_is_said(fakes: Fakes) -> None:
    fakes.add("java", "echo 'openjdk version \"11.0.2\" 2019-01-15' >&2")
    assert str(find()).startswith("Java 17 or later is needed")


def test_no_maven_is_said(fakes: Fakes) -> None:
    fakes.add("java", JAVA_17)
    assert find() == "no Maven (mvn) on the PATH"


def test_the_cause_that_maven_gives_is_said_in_one_line(fakes: Fakes) -> None:
    fakes.add("java", JAVA_17)
    fakes.add("mvn", MAVEN_WITHOUT_NETWORK)
    cause = "Failed to execute goal: Could not transfer artifact: Connection refused"
    assert find() == f"Maven cannot build the driver: {cause}"


def test_a_maven_that_hangs_is_said(fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.add("java", JAVA_17)
    fakes.add("mvn", "exec tail -f /dev/null")
    monkeypatch.setattr(toolchain, "BUILD_LIMIT_S", 0.2)
    assert str(find()).startswith("Maven did not finish within")


def test_it_is_built_once_until_a_source_changes_or_a_jar_is_gone(fakes: Fakes) -> None:
    fakes.add("java", JAVA_17)
    fakes.add("mvn", MAVEN.format(jar=fakes.jar))
    for _ in range(2):
        found = find()
        assert isinstance(found, toolchain.Toolchain)
        assert found.java == fakes.bin / "java"
        assert found.class_paths["5.3.3"] == f"{fakes.home / 'v5/target/classes'}:{fakes.jar}"
        assert fakes.builds == 1
    (fakes.home / "v4/src/New.java").write_text("class New { }")
    find()
    assert fakes.builds == 2
    fakes.jar.unlink()
    find()
    assert fakes.builds == 3
