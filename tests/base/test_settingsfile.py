"""Settings that were changed while a server ran are there at its next start."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.propertiesfile import parse_properties, with_values
from flaremq.base.settingsfile import SettingsFile

FILE = (
    "# Ours.\nfileReservedTime = 72\n\n! Theirs.\ndeleteWhen=\\\n  04\nfileReservedTime=48\n"
    "brokerName broker-a\n"
)


def test_lines_are_replaced_where_they_stand_and_all_others_stay() -> None:
    changed = with_values(FILE, {"fileReservedTime": "24", "deleteWhen": "04;16", "traceOn": "false"})
    assert changed == (
        "# Ours.\nfileReservedTime=24\n\n! Theirs.\ndeleteWhen=04;16\nbrokerName broker-a\ntraceOn=false\n"
    )


TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)


@given(
    st.lists(st.sampled_from(["a=1", "a\\", "b : 2\\", "  c", "# x\\", "", "d=\\u0041", "a b"]), max_size=8),
    st.dictionaries(st.sampled_from(["a", "b", "c", "new", "with blank", "=:#"]), TEXTS),
)
def test_any_file_reads_as_before_but_for_what_was_changed(lines: list[str], changes: dict[str, str]) -> None:
    before = "\n".join(lines)
    assert parse_properties(with_values(before, changes)) == {**parse_properties(before), **changes}


def test_the_file_before_the_change_stays_as_its_backup(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(FILE)
    assert SettingsFile(path).keep({"fileReservedTime": "24"}) is None
    assert "fileReservedTime=24" in path.read_text()
    assert (tmp_path / "broker.conf.bak").read_text() == FILE


def test_a_file_that_is_not_there_is_made(tmp_path: Path) -> None:
    assert SettingsFile(tmp_path / "config" / "kept").keep({"traceOn": "false"}) is None
    assert (tmp_path / "config" / "kept").read_text() == "traceOn=false\n"


def test_what_cannot_be_kept_is_said_and_changes_no_file(tmp_path: Path) -> None:
    (tmp_path / "config").write_bytes(b"no folder")
    said = SettingsFile(tmp_path / "config" / "kept").keep({"traceOn": "false"})
    assert said is not None and "lost at the next restart" in said
    assert SettingsFile(None).keep({"traceOn": "false"}) is not None


def test_a_file_that_few_may_read_stays_so_and_a_link_stays_a_link(tmp_path: Path) -> None:
    path, link = tmp_path / "broker.conf", tmp_path / "link.conf"
    path.write_text(FILE)
    path.chmod(0o640)
    link.symlink_to(path)
    assert SettingsFile(link).keep({"traceOn": "false"}) is None
    assert link.is_symlink() and "traceOn=false" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o640
