"""What a plan means in Spark's own words; nothing is started here."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from flaremq.base.errors import ConfigError
from flaremq.spark.launch.plan import (
    Places,
    SessionPlan,
    driver_memory_mb,
    environment_of,
    own_conf_folder,
    settings_of,
)
from flaremq.spark.launch.ship import stand_in_env, zip_of_ourselves

OPTIONS = "spark.driver.defaultJavaOptions"
EXECUTOR_OPTIONS = "spark.executor.defaultJavaOptions"


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(folder=tmp_path, spark_home=tmp_path / "spark", conf_folder=None)


@pytest.mark.parametrize(
    ("master", "cores", "is_local", "is_here"),
    [
        ("local", 1, True, True),
        ("local[3]", 3, True, True),
        ("local[2, 4]", 2, True, True),
        ("local[*]", os.cpu_count(), True, True),
        ("local-cluster[2,3,1024]", 6, False, True),
        ("spark://127.0.0.1:7077", None, False, True),
        ("spark://localhost:7077", None, False, True),
        ("spark://example.org:7077", None, False, False),
        ("yarn", None, False, False),
        ("k8s://https://example.org", None, False, False),
    ],
)
def test_a_master_tells_where_and_how_wide(
    master: str, cores: int | None, is_local: bool, is_here: bool
) -> None:
    plan = SessionPlan(master=master)
    assert (plan.cores, plan.is_local, plan.is_on_this_machine) == (cores, is_local, is_here)


@pytest.mark.parametrize(
    ("master", "conf", "says"),
    [
        ("locl[2]", {}, "'locl\\[2\\]' is not a Spark master: expected local"),
        ("local[two]", {}, "is not a Spark master"),
        ("sc://example.org", {}, "Spark Connect server"),
        ("local", {"driver.memory": "1g"}, "'driver.memory' is not a Spark setting"),
        ("local", {"spark.master": "yarn"}, "set master instead"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_at_once(master: str, conf: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        SessionPlan(master=master, conf=conf)


def test_ours_are_defaults_and_the_users_settings_win(places: Places) -> None:
    found = settings_of(SessionPlan(master="local[2]"), places, ())
    assert found["spark.sql.session.timeZone"] == "UTC"
    assert found["spark.sql.shuffle.partitions"] == "2"
    assert found["spark.ui.enabled"] == "false"
    own = {"spark.sql.session.timeZone": "Asia/Tokyo", "spark.ui.enabled": "true"}
    found = settings_of(SessionPlan(master="local[2]", conf=own), places, ())
    assert own.items() <= found.items()


def test_what_is_written_in_spark_defaults_wins_too(places: Places, tmp_path: Path) -> None:
    theirs = tmp_path / "conf"
    theirs.mkdir()
    (theirs / "spark-defaults.conf").write_text(f"spark.driver.memory  3g\n{OPTIONS} -Dtheirs=1\n")
    places = Places(folder=tmp_path, spark_home=tmp_path, conf_folder=theirs)
    found = settings_of(SessionPlan(), places, ())
    assert "spark.driver.memory" not in found  # So that Spark reads it from the file.
    assert found[OPTIONS].endswith(" -Dtheirs=1")


def test_arrow_trusts_the_buffers_that_python_wrote_in_the_driver_and_in_executors(places: Places) -> None:
    plan = SessionPlan(conf={EXECUTOR_OPTIONS: "-Dtheirs=1"})
    found = settings_of(plan, places, ())
    assert "-Darrow.enable_unsafe_memory_access=true" in found[OPTIONS]
    assert found[EXECUTOR_OPTIONS].startswith("-Darrow.enable_unsafe_memory_access=true ")
    assert found[EXECUTOR_OPTIONS].endswith(" -Dtheirs=1")


def test_options_of_the_jvm_keep_their_blanks(tmp_path: Path) -> None:
    folder = tmp_path / "with blank"
    folder.mkdir()
    places = Places(folder=folder, spark_home=tmp_path, conf_folder=None)
    plan = SessionPlan(jvm_options=("-Dmine=1",), conf={OPTIONS: "-Dtheirs=2"})
    options = settings_of(plan, places, ("-Xshare:auto",))[OPTIONS]
    assert f'"-Djava.io.tmpdir={folder}/tmp"' in options
    assert options.endswith("-Xshare:auto -Dmine=1 -Dtheirs=2")
    assert "level = error" in (folder / "log4j2.properties").read_text()


def test_a_configuration_folder_counts_if_there_is_something_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    assert own_conf_folder(tmp_path) is None
    (tmp_path / "conf").mkdir()
    assert own_conf_folder(tmp_path) is None
    (tmp_path / "conf" / "log4j2.properties").write_text("")
    assert own_conf_folder(tmp_path) == tmp_path / "conf"
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert own_conf_folder(tmp_path / "elsewhere") == tmp_path


def test_workers_on_this_machine_run_our_python_and_others_do_not(places: Places) -> None:
    here = environment_of(SessionPlan(master="spark://127.0.0.1:7077"), places)
    assert here["PYSPARK_PYTHON"] == sys.executable
    assert here["SPARK_LOCAL_IP"] == "127.0.0.1"
    away = environment_of(SessionPlan(master="spark://example.org:7077"), places)
    assert away.keys().isdisjoint({"PYSPARK_PYTHON", "SPARK_LOCAL_IP"})


@pytest.mark.parametrize(("gib", "mb"), [(1, 1024), (8, 2048), (23, 5888), (512, 8192)])
def test_the_driver_gets_a_quarter_of_the_machine_within_bounds(gib: int, mb: int) -> None:
    assert driver_memory_mb(gib * 2**30) == mb


def test_what_is_shipped_can_be_imported_from_the_zip(tmp_path: Path) -> None:
    path = zip_of_ourselves(tmp_path)
    names = zipfile.ZipFile(path).namelist()
    assert "flaremq/base/errors.py" in names
    assert not [name for name in names if name.endswith((".so", ".pyc", ".pyx"))]
    code = (
        f"import sys; sys.path.insert(0, {str(path)!r})\n"
        "import flaremq.client.sync, flaremq.base.options as options\n"
        "assert options.all_names()\n"
        "print(options.__file__)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (ran.stdout.strip(), ran.stderr) == (f"{path}/flaremq/base/options.py", "")


def test_shipping_adds_to_what_the_user_ships(places: Places) -> None:
    plan = SessionPlan(master="yarn", ship=True, conf={"spark.submit.pyFiles": "mine.py"})
    assert settings_of(plan, places, ())["spark.submit.pyFiles"] == f"{places.folder}/flaremq.zip,mine.py"


def test_a_packed_environment_is_unpacked_where_the_workers_look(places: Places, tmp_path: Path) -> None:
    packed = tmp_path / "env.tar.gz"
    packed.write_bytes(b"")
    plan = SessionPlan(master="yarn", python_env=packed)
    assert settings_of(plan, places, ())["spark.archives"] == f"{packed}#env"
    assert environment_of(plan, places)["PYSPARK_PYTHON"] == "./env/bin/python"


@pytest.mark.parametrize(
    ("name", "says"), [("gone.tar.gz", "does not exist"), ("env.rar", "expected .tar.gz")]
)
def test_what_is_no_packed_environment_is_refused(
    places: Places, tmp_path: Path, name: str, says: str
) -> None:
    (tmp_path / "env.rar").write_bytes(b"")
    with pytest.raises(ConfigError, match=says):
        settings_of(SessionPlan(master="yarn", python_env=tmp_path / name), places, ())


def test_on_the_driver_our_own_python_stands_in_for_the_packed_one(tmp_path: Path) -> None:
    stand_in_env(tmp_path)
    command = ["./env/bin/python", "-c", "import sys; print(sys.prefix)"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert told.strip() == sys.prefix
