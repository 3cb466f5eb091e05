from collections.abc import Callable

import pytest

from flaremq.base.errors import ConfigError
from flaremq.base.options import (
    ALIASES,
    GUARDS,
    MORE_THAN_ONE,
    Guard,
    Option,
    all_names,
    check_protection,
    find,
    nearest,
)


def test_an_option_has_a_type_two_defaults_and_an_owner() -> None:
    assert find("flushIntervalCommitLog") == Option(
        "flushIntervalCommitLog", "int", "500", "500", "MessageStoreConfig"
    )


def test_names_are_case_sensitive_as_in_java() -> None:
    assert find("flushdisktype") is None
    assert find("flushDiskTyp") is None
    assert find("") is None


def test_every_name_is_found_and_comes_once() -> None:
    names = all_names()
    assert len(names) == len(set(names)) == 471 + 26 + 15 + 2 + 2
    assert all(find(name) is not None for name in names)


@pytest.mark.parametrize("name", sorted(ALIASES))
def test_the_old_spelling_finds_the_new_name(name: str) -> None:
    found = find(name)
    assert found is not None
    assert found.name == name.replace("maped", "mapped")


def test_a_name_of_two_classes_is_told_apart_by_its_owner() -> None:
    server, broker = find("listenPort", "NettyServerConfig"), find("listenPort", "BrokerConfig")
    assert server is not None
    assert broker is not None
    assert (server.default_5, broker.default_5) == ("0", "6888")
    assert find("listenPort", "NamesrvConfig") is None


@pytest.mark.parametrize(
    "name",
    [
        "authenticationEnabled",
        "authorizationWhitelist",
        "tls.server.mode",
        "tls.test.mode.enable",
        "rmqAddressServerDomain",
        "rmqAddressServerSubGroup",
        "haSlaveFallbehindMax",
        "enableLogConsumeQueueRepeatedlyBuildWhenRecover",
    ],
)
def test_names_of_either_version_and_of_the_side_classes_are_known(name: str) -> None:
    assert find(name) is not None


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("flushdisktype", "flushDiskType"),
        ("FLUSHDISKTYPE", "flushDiskType"),
        ("flushDiskTyp", "flushDiskType"),
        ("brokerNane", "brokerName"),
        ("zzzzzz", None),
        ("", None),
    ],
)
def test_the_nearest_name_is_the_one_probably_meant(written: str, meant: str | None) -> None:
    assert nearest(written, all_names()) == meant


def test_nothing_is_near_to_nothing() -> None:
    assert nearest("flushDiskType", ()) is None


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"brokerName": "a"},
        {"aclEnable": "false", "authenticationEnabled": "FALSE", "authorizationEnabled": " false "},
        {"tls.server.mode": "permissive"},
        {"brokerRole": "ASYNC_MASTER", "inSyncReplicas": "1", "totalReplicas": "01"},
        {"enableDLegerCommitLog": "false", "enableControllerMode": "false"},
        {"tls.server.mode": "disabled", "tls.enable": "false", "useTLS": "false"},
    ],
)
def test_who_asks_for_no_protection_is_let_through(values: dict[str, str]) -> None:
    check_protection(values)


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.option)
@pytest.mark.parametrize("spell", [str.lower, str.upper, lambda text: f" {text} "])
def test_a_protection_that_is_asked_for_and_missing_is_refused(
    guard: Guard, spell: Callable[[str], str]
) -> None:
    for word in guard.asked_by if guard.asked_by is not MORE_THAN_ONE else ("2", "03", "2147483647"):
        values = {guard.option: spell(word), **dict.fromkeys(guard.needs, "there")}
        with pytest.raises(ConfigError, match=rf"{guard.option}=.*lacks.*set {guard.option}="):
            check_protection(values)
        check_protection(values, available=frozenset({guard.protection}))


def test_another_protection_does_not_help() -> None:
    with pytest.raises(ConfigError, match="aclEnable"):
        check_protection({"aclEnable": "true"}, available=frozenset({"authentication", "tls_server"}))


ALL = frozenset(guard.protection for guard in GUARDS)


@pytest.mark.parametrize("option", [guard.option for guard in GUARDS])
@pytest.mark.parametrize("word", ["yes", "-1", "1.5", "\N{SUPERSCRIPT TWO}", "on", "enforce"])
def test_a_wish_for_protection_in_unclear_words_is_refused(option: str, word: str) -> None:
    with pytest.raises(ConfigError, match="is invalid: expected one of"):
        check_protection({option: word}, available=ALL)


@pytest.mark.parametrize("option", [guard.option for guard in GUARDS if "" not in guard.declined_by])
def test_no_word_at_all_is_unclear_too_unless_it_is_a_default(option: str) -> None:
    with pytest.raises(ConfigError, match="is invalid: expected one of"):
        check_protection({option: ""}, available=ALL)


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({}, "tls.server.keyPath and tls.server.certPath"),
        ({"tls.server.keyPath": "k"}, "needs tls.server.certPath"),
        ({"tls.server.certPath": "c", "tls.server.keyPath": " "}, "needs tls.server.keyPath"),
    ],
)
def test_enforced_tls_needs_key_and_certificate_even_where_tls_exists(
    given: dict[str, str], missing: str
) -> None:
    with pytest.raises(ConfigError, match=missing):
        check_protection({"tls.server.mode": "enforcing", **given}, available=frozenset({"tls_server"}))
