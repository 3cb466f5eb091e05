"""Numbers of the protocol: those that peers rely on, and names for people."""

from flaremq.protocol.codes import (
    COMPACT_CODE_LOSS,
    COMPACT_CODES,
    CURRENT_VERSION,
    STORED,
    LanguageCode,
    RequestCode,
    ResponseCode,
    request_name,
    response_name,
)


def test_we_call_ourselves_5_3_3() -> None:
    assert CURRENT_VERSION.value == 479


def test_languages_have_javas_numbers() -> None:
    assert [LanguageCode(n).name for n in range(14)] == list(LanguageCode.__members__)
    assert (LanguageCode.JAVA, LanguageCode.PYTHON, LanguageCode.NODE_JS) == (0, 3, 13)


def test_codes_that_a_client_acts_upon() -> None:
    assert RequestCode.SEND_MESSAGE_V2.value == 310
    assert RequestCode.PULL_MESSAGE.value == 11
    assert RequestCode.POP_MESSAGE.value == 200050
    assert ResponseCode.PULL_OFFSET_MOVED.value == 21
    assert ResponseCode.GO_AWAY.value == 1500
    assert sorted(STORED) == [0, 10, 11, 12]


def test_only_codes_of_pop_are_too_large_for_a_compact_header() -> None:
    assert {3442, 3443, 3445, 3446, 3543} <= COMPACT_CODES.keys()
    assert COMPACT_CODES[3442] == RequestCode.POP_MESSAGE
    assert all(code - short == COMPACT_CODE_LOSS for short, code in COMPACT_CODES.items())
    assert COMPACT_CODES.keys().isdisjoint(set(RequestCode))


def test_a_code_without_a_name_is_called_by_its_number() -> None:
    assert request_name(310) == "SEND_MESSAGE_V2"
    assert request_name(31000) == "31000"
    assert response_name(17) == "TOPIC_NOT_EXIST"
    assert response_name(-5) == "-5"
