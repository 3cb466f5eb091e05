"""A small file in a new folder is safe once it is written, also where only folder syncs save names."""

from __future__ import annotations

from pathlib import Path

from flaremq.base.files import BackedFile
from flaremq.testing.fakes.disk import PowerLossDisk


def test_a_table_in_a_new_folder_survives_the_loss_of_power(tmp_path: Path) -> None:
    disk = PowerLossDisk(strict_names=True)
    file = BackedFile(tmp_path / "store" / "config" / "topics.json", disk)
    file.save(b"one")
    disk.lose_power(None)
    assert file.load_as(bytes) == b"one"


def test_a_replaced_file_in_a_new_folder_survives_the_loss_of_power(tmp_path: Path) -> None:
    disk = PowerLossDisk(strict_names=True)
    disk.replace(tmp_path / "store" / "config" / "marker", b"one")
    disk.lose_power(None)
    assert (tmp_path / "store" / "config" / "marker").read_bytes() == b"one"
