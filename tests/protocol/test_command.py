"""Commands: values that know what kind they are, and answers that fit their requests."""

import pytest

from flaremq.protocol.codes import LanguageCode, ResponseCode, SerializeType
from flaremq.protocol.command import Command, oneway, response_to


@pytest.mark.parametrize(
    ("flag", "response", "one_way", "wants_answer"),
    [(0, False, False, True), (1, True, False, False), (2, False, True, False), (3, True, True, False)],
)
def test_the_flag_tells_request_response_and_one_way(
    flag: int, response: bool, one_way: bool, wants_answer: bool
) -> None:
    command = Command(code=10, flag=flag)
    assert (command.is_response, command.is_oneway, command.wants_answer) == (response, one_way, wants_answer)


def test_bits_that_mean_nothing_change_nothing() -> None:
    assert Command(code=10, flag=0x7FFF_FFFC).wants_answer


def test_an_answer_repeats_opaque_and_serialization() -> None:
    request = Command(code=310, opaque=-7, language=LanguageCode.GO, serialize_type=SerializeType.ROCKETMQ)
    answer = response_to(request, ResponseCode.TOPIC_NOT_EXIST, "no such topic")
    assert (answer.code, answer.opaque, answer.remark) == (17, -7, "no such topic")
    assert answer.is_response
    assert answer.serialize_type is SerializeType.ROCKETMQ
    assert answer.version == 479


def test_an_answer_always_has_ext_fields_for_the_sake_of_cpp() -> None:
    assert response_to(Command(code=34)).ext_fields == {}
    assert response_to(Command(code=34), ext_fields={"a": "b"}).ext_fields == {"a": "b"}


def test_a_request_made_one_way_is_otherwise_the_same() -> None:
    request = Command(code=15, opaque=3, ext_fields={"topic": "T"}, body=b"x")
    assert oneway(request) == Command(code=15, opaque=3, ext_fields={"topic": "T"}, body=b"x", flag=2)


def test_fields_are_there_even_if_the_frame_had_none() -> None:
    assert Command(code=1).fields == {}
    assert Command(code=1, ext_fields={"k": "v"}).fields == {"k": "v"}


def test_a_log_line_names_the_code_and_hides_the_content() -> None:
    secret = Command(code=310, opaque=5, ext_fields={"Signature": "s3cret"}, body=b"hidden")
    assert str(secret) == "request 5 SEND_MESSAGE_V2, 6 bytes"
    assert str(Command(code=17, flag=1, remark="gone")) == "response 0 TOPIC_NOT_EXIST, 0 bytes, 'gone'"
