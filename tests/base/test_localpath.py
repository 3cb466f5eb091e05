"""Folders that users name: local ones are taken in every form, addresses of anything else are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from flaremq.base.errors import ConfigError
from flaremq.base.localpath import local_path


@pytest.mark.parametrize("form", ["/data/x", "file:/data/x", "file:///data/x", "file://localhost/data/x"])
def test_a_local_folder_is_taken_as_a_path_and_as_a_url(form: str) -> None:
    assert local_path(form) == Path("/data/x")


def test_a_path_is_made_absolute_and_begins_at_home_if_it_says_so() -> None:
    assert local_path("x") == local_path(Path("x")) == Path.cwd() / "x"
    assert local_path("~/x") == Path.home() / "x"


def test_a_folder_that_is_called_like_a_scheme_can_still_be_named() -> None:
    assert local_path("./s3a:/x") == Path.cwd() / "s3a:" / "x"
    assert local_path("12:30") == Path.cwd() / "12:30"


@pytest.mark.parametrize(
    "url", ["s3a://bucket/x", "s3://b/x", "hdfs://host:9000/x", "gs://b/x", "abfss://c@a/x", "dbfs:/x"]
)
def test_other_schemes_are_refused_as_text_and_as_a_path(url: str) -> None:
    scheme = url.partition(":")[0]
    with pytest.raises(
        ConfigError, match=rf"^{scheme}://.*expected a local or mounted one, such as /mnt/x or file"
    ):
        local_path(url)
    with pytest.raises(ConfigError, match=rf"^{scheme}://.* is not a folder of this machine"):
        local_path(Path(url))


def test_a_file_on_another_host_is_refused() -> None:
    with pytest.raises(ConfigError, match="file://server/share is not a folder of this machine"):
        local_path("file://server/share")
