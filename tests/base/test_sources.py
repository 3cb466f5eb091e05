from pathlib import Path

import pytest

from flaremq.base.errors import ConfigError
from flaremq.base.options import ALIASES, all_names
from flaremq.base.sources import NOT_OPTIONS, Given, Sources, environment_name


def merged(sources: Sources) -> dict[str, Given]:
    return sources.merged(all_names(), ALIASES)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "broker.conf"
    path.write_text("brokerName=from file\nbrokerId=1\nbrokerIP1=1.1.1.1\n", encoding="utf-8")
    return path


def test_flags_win_over_the_environment_and_that_over_the_file(file: Path) -> None:
    sources = Sources.of(
        file,
        {"FLAREMQ_BROKER_NAME": "from env", "FLAREMQ_BROKER_ID": "2", "HOME": "/"},
        ["brokerName=from flag"],
    )
    assert merged(sources) == {
        "brokerName": Given("from flag", "flag brokerName"),
        "brokerId": Given("2", "environment variable FLAREMQ_BROKER_ID"),
        "brokerIP1": Given("1.1.1.1", str(file)),
    }


def test_no_source_at_all_is_no_setting_at_all() -> None:
    assert merged(Sources.of()) == {}
    assert merged(Sources.of(None, {"PATH": "x", "FLAREMQ": "x"}, [])) == {}


@pytest.mark.parametrize(
    ("option", "variable"),
    [
        ("flushDiskType", "FLAREMQ_FLUSH_DISK_TYPE"),
        ("brokerIP1", "FLAREMQ_BROKER_IP1"),
        ("checkCRCOnRecover", "FLAREMQ_CHECK_CRC_ON_RECOVER"),
        ("useTLS", "FLAREMQ_USE_TLS"),
        ("enableDLegerCommitLog", "FLAREMQ_ENABLE_D_LEGER_COMMIT_LOG"),
        ("migrateAuthFromV1Enabled", "FLAREMQ_MIGRATE_AUTH_FROM_V1_ENABLED"),
        ("tls.server.keyPath", "FLAREMQ_TLS_SERVER_KEY_PATH"),
    ],
)
def test_a_variable_is_the_java_name_cut_into_words(option: str, variable: str) -> None:
    assert environment_name(option) == variable


def test_no_two_options_share_a_variable() -> None:
    variables = [environment_name(name) for name in all_names()]
    assert len(set(variables)) == len(variables)
    assert not set(variables) & NOT_OPTIONS


def test_every_option_can_be_set_by_its_variable() -> None:
    names = [name for name in all_names() if name not in ALIASES]
    found = merged(Sources.of(environ={environment_name(name): name for name in names}))
    assert {name: value for name, (value, _) in found.items()} == {name: name for name in names}


def test_variables_that_others_read_are_left_alone() -> None:
    assert merged(Sources.of(environ=dict.fromkeys(NOT_OPTIONS, "1"))) == {}


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("FLAREMQ_FLUSH_DISC_TYPE", "did you mean FLAREMQ_FLUSH_DISK_TYPE"),
        ("FLAREMQ_FLUSHDISKTYPE", "did you mean FLAREMQ_FLUSH_DISK_TYPE"),
        ("FLAREMQ_flush_disk_type", "did you mean FLAREMQ_FLUSH_DISK_TYPE"),
        ("FLAREMQ_LOGLEVEL", "did you mean FLAREMQ_LOG_LEVEL"),
        ("FLAREMQ_", "reserved for options"),
    ],
)
def test_an_unknown_variable_of_ours_is_an_error(variable: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=f"{variable}='x' is unknown: .*{hint}"):
        merged(Sources.of(environ={variable: "x"}))


def test_a_misspelt_password_is_not_printed() -> None:
    with pytest.raises(ConfigError) as caught:
        merged(Sources.of(environ={"FLAREMQ_TLS_SERVER_KEY_PASSWRD": "hunter2"}))
    assert "hunter2" not in str(caught.value)
    assert "did you mean FLAREMQ_TLS_SERVER_KEY_PASSWORD" in str(caught.value)


@pytest.mark.parametrize("flag", ["", "brokerName", "=x", " =x"])
def test_a_flag_is_key_equals_value(flag: str) -> None:
    with pytest.raises(ConfigError, match="is not key=value"):
        Sources.of(flags=[flag])


def test_a_flag_may_hold_more_equal_signs_and_the_last_of_equals_wins() -> None:
    found = merged(Sources.of(flags=["brokerName=a", "brokerName=b=c"]))
    assert found["brokerName"].value == "b=c"


def test_an_unknown_name_is_kept_for_the_caller_to_judge() -> None:
    assert merged(Sources.of(flags=["fancy=1"])) == {"fancy": Given("1", "flag fancy")}


def test_an_old_spelling_counts_as_the_new_name() -> None:
    found = merged(Sources.of(flags=["mapedFileSizeCommitLog=1024"]))
    assert found == {"mappedFileSizeCommitLog": Given("1024", "flag mapedFileSizeCommitLog")}


def test_two_spellings_with_one_value_agree() -> None:
    found = merged(Sources.of(flags=["mapedFileSizeCommitLog=1024", "mappedFileSizeCommitLog= 1024"]))
    assert found.keys() == {"mappedFileSizeCommitLog"}


def test_two_spellings_with_two_values_are_an_error() -> None:
    with pytest.raises(
        ConfigError, match=r"same option with two values: keep one, best as mappedFileSizeCommitLog"
    ):
        merged(Sources.of(flags=["mapedFileSizeCommitLog=1024", "mappedFileSizeCommitLog=2048"]))


def test_a_stronger_source_wins_in_whichever_spelling(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("mapedFileSizeCommitLog=1024\n")
    found = merged(Sources.of(file, flags=["mappedFileSizeCommitLog=2048"]))
    assert found["mappedFileSizeCommitLog"].value == "2048"


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_bytes(b"\xef\xbb\xbfbrokerName=a")
    assert merged(Sources.of(file)).keys() == {"brokerName"}


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.conf cannot be read: No such file"):
        Sources.of(tmp_path / "missing.conf")


def test_a_file_that_is_not_utf8_is_named_with_the_place(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_bytes(b"brokerName=caf\xe9\n")
    with pytest.raises(ConfigError, match=r"broker\.conf is not UTF-8 at byte 14"):
        Sources.of(file)


def test_a_broken_line_is_named_with_its_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("a=b\nbrokerName=\\u12\n")
    with pytest.raises(ConfigError, match=r"broker\.conf, line 2: "):
        Sources.of(file)
