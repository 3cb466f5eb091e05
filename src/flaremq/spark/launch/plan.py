"""The plan of a session, and the Spark settings that follow from it.

Every setting here is a default: the user's plan wins, and so does spark-defaults.conf.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from flaremq.base.errors import ConfigError
from flaremq.base.propertiesfile import parse_properties
from flaremq.spark.launch.java import Java
from flaremq.spark.launch.ship import ENV_PYTHON, archive_setting, zip_of_ourselves

_MASTER: Final = re.compile(
    r"local(\[(?P<cores>\*|\d+)(,\s*\d+)?\])?"
    r"|local-cluster\[\s*(?P<executors>\d+)\s*,\s*(?P<each>\d+)\s*,\s*\d+\s*\]"
    r"|spark://.+|k8s://.+|yarn"
)
_LOOPBACK: Final = re.compile(r"spark://(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?")
_MEMORY_MB_MIN: Final = 1024
_MEMORY_MB_MAX: Final = 8192
_JAVA_OPTIONS: Final = "spark.driver.defaultJavaOptions"
_EXECUTOR_OPTIONS: Final = "spark.executor.defaultJavaOptions"
_PY_FILES: Final = "spark.submit.pyFiles"
_STREAMING: Final = "org.apache.spark.sql.execution.streaming"

# Arrow checks for every value that it lies within its buffer. pyarrow wrote the buffers, and the check is a
# sixth of what a row costs the JVM.
_ARROW: Final = ("-Darrow.enable_unsafe_memory_access=true", "-Darrow.enable_null_check_for_get=false")

# The first three loggers print pages about killed tasks when a query is stopped in the middle of a batch.
# Spark asks the last for its level, and says on stderr that it uses another if none is set.
_LOG4J: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex
logger.write.name = org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2Exec
logger.write.level = off
logger.task.name = org.apache.spark.sql.execution.datasources.v2.DataWritingSparkTask
logger.task.level = off
logger.utils.name = org.apache.spark.util.Utils
logger.utils.level = off
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlan:
    """How to start a Spark session."""

    master: str = "local[*]"
    """local[N], local-cluster[executors,cores,MB], spark://host:port, yarn or k8s://..."""
    app_name: str = "flaremq"
    conf: Mapping[str, str] = field(default_factory=dict)
    """Spark settings by name; they win over ours."""
    ui: bool = False
    """Whether to serve Spark's web UI (`ui_address`)."""
    quiet: bool = True
    """Whether the output of the JVM and workers goes to a file."""
    archive: bool = True
    """Whether to make and use an archive of Spark's classes; it halves the start."""
    jvm_options: tuple[str, ...] = ()
    """More options for the driver's JVM."""
    ship: bool = False
    """Send our Python modules to the executors (see `ship`)."""
    python_env: Path | None = None
    """A packed environment for the executors (see `ship`)."""
    java: Java | None = None
    """The Java to use; None looks for one."""

    def __post_init__(self) -> None:
        if self.master.startswith("sc://"):
            raise ConfigError(
                f"{self.master} is a Spark Connect server: open it with SparkSession.builder.remote(...)"
            )
        if not _MASTER.fullmatch(self.master):
            raise ConfigError(
                f"{self.master!r} is not a Spark master: expected local[N], spark://host:port, yarn or k8s://..."
            )
        if "spark.master" in self.conf:
            raise ConfigError("spark.master cannot be set in conf: set master instead")
        for name in self.conf:
            if not name.startswith("spark."):
                raise ConfigError(
                    f"{name!r} is not a Spark setting: expected a name that begins with 'spark.'"
                )

    @property
    def is_local(self) -> bool:
        """Whether driver and executors share one JVM."""
        return self.master.startswith("local") and not self.master.startswith("local-cluster")

    @property
    def is_on_this_machine(self) -> bool:
        return self.master.startswith("local") or _LOOPBACK.fullmatch(self.master) is not None

    @property
    def cores(self) -> int | None:
        """How many tasks run at once; None if only the cluster knows."""
        match = _MASTER.fullmatch(self.master)
        if match is None or not self.master.startswith("local"):
            return None
        if match["executors"]:
            return int(match["executors"]) * int(match["each"])
        if match["cores"] == "*":
            return os.cpu_count() or 1
        return int(match["cores"] or 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Files and folders of a session."""

    folder: Path
    """Ours, deleted when the session closes."""
    spark_home: Path
    conf_folder: Path | None
    """The user's folder of Spark configuration, if there is one."""
    log: Path | None = None
    """Where the JVM's stderr goes, if not to the terminal."""


def own_conf_folder(spark_home: Path) -> Path | None:
    """The folder of the user's Spark configuration; None if it is missing or empty."""
    folder = Path(os.environ.get("SPARK_CONF_DIR") or spark_home / "conf")
    return folder if folder.is_dir() and any(folder.iterdir()) else None


def environment_of(plan: SessionPlan, places: Places) -> dict[str, str]:
    """Environment variables for what Spark's scripts and the JVM's children accept in no other way."""
    found = {"SPARK_HOME": str(places.spark_home)}
    if "SPARK_LAUNCHER_OPTS" not in os.environ:
        # A first JVM only builds the command line of the second, so it should start fast.
        found["SPARK_LAUNCHER_OPTS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    if plan.is_on_this_machine:
        # Without it Spark chooses a network interface, and warns if that is the loopback.
        found["SPARK_LOCAL_IP"] = "127.0.0.1"
    if plan.python_env is not None:
        found |= {"PYSPARK_PYTHON": ENV_PYTHON, "PYSPARK_DRIVER_PYTHON": sys.executable}
    elif plan.is_on_this_machine:
        # Else workers run the python3 on PATH, which may not have FlareMQ.
        found |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    return found


def settings_of(plan: SessionPlan, places: Places, archive_options: Sequence[str]) -> dict[str, str]:
    """All settings of the session: the user's, and ours for the rest."""
    written = _written_defaults(places.conf_folder)
    found = {name: value for name, value in _ours(plan, places).items() if name not in written}
    found |= plan.conf
    found |= {"spark.master": plan.master, "spark.app.name": plan.app_name}
    options = [*_jvm_options(plan, places), *archive_options, *plan.jvm_options]
    theirs = plan.conf.get(_JAVA_OPTIONS, written.get(_JAVA_OPTIONS, ""))
    found[_JAVA_OPTIONS] = " ".join([*map(_quoted, options), theirs]).strip()
    theirs = plan.conf.get(_EXECUTOR_OPTIONS, written.get(_EXECUTOR_OPTIONS, ""))
    found[_EXECUTOR_OPTIONS] = " ".join([*_ARROW, theirs]).strip()
    if plan.ship:
        shipped = str(zip_of_ourselves(places.folder))
        theirs = plan.conf.get(_PY_FILES, written.get(_PY_FILES, ""))
        found[_PY_FILES] = f"{shipped},{theirs}" if theirs else shipped
    if plan.python_env is not None:
        packed = archive_setting(plan.python_env)
        theirs = plan.conf.get("spark.archives", written.get("spark.archives", ""))
        found["spark.archives"] = f"{packed},{theirs}" if theirs else packed
    return found


def _ours(plan: SessionPlan, places: Places) -> dict[str, str]:
    found = {
        "spark.ui.enabled": str(plan.ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        # Message times are instants: the machine's time zone must not move them.
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stateStore.providerClass": f"{_STREAMING}.state.RocksDBStateStoreProvider",
        "spark.local.dir": str(places.folder / "local"),
    }
    if plan.is_on_this_machine:
        # 50 ms less for each batch of a stream whose checkpoints lie on a local disk.
        manager = f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
        found["spark.sql.streaming.checkpointFileManagerClass"] = manager
    if plan.is_local:
        found["spark.driver.memory"] = f"{driver_memory_mb(_memory_bytes())}m"
    if plan.cores is not None:
        found["spark.sql.shuffle.partitions"] = str(plan.cores)
    return found


def _jvm_options(plan: SessionPlan, places: Places) -> list[str]:
    options = [f"-Djava.io.tmpdir={places.folder / 'tmp'}", *_ARROW]
    if places.log is not None:
        # A JVM that crashes writes its report to the working folder by default.
        options.append(f"-XX:ErrorFile={places.log}.crash")
        # The JVM's own messages, such as why it cannot start, go to stdout by default.
        options.append("-XX:+DisplayVMOutputToStderr")
    own = places.conf_folder
    if own is None or not any(own.glob("log4j2.*")):
        file = places.folder / "log4j2.properties"
        file.write_text(_LOG4J)
        options.append(f"-Dlog4j2.configurationFile={file.as_uri()}")
    if plan.python_env is not None:
        # The JVM runs in our folder, but the user's relative paths start at the current one.
        options.append(f"-Duser.dir={Path.cwd()}")
    return options


def _written_defaults(folder: Path | None) -> dict[str, str]:
    try:
        return parse_properties((folder / "spark-defaults.conf").read_text()) if folder else {}
    except OSError:
        return {}


def _quoted(option: str) -> str:
    """Quoted such that Spark's launcher reads it as one option."""
    if not re.search(r"[\s\"'\\]", option):
        return option
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def driver_memory_mb(machine_bytes: int) -> int:
    """A quarter of the machine, within limits: Python workers, page cache and a broker need memory too."""
    return max(_MEMORY_MB_MIN, min(machine_bytes // 4 // 2**20, _MEMORY_MB_MAX))


def _memory_bytes() -> int:
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return whole
    return min(whole, int(limit)) if limit.isdigit() else whole
