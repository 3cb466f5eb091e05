import io
import json
import logging
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import ConfigError
from flaremq.base.logs import Seldom, configure, fields, logger


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger("flaremq")
    before = (root.handlers[:], root.level, root.propagate)
    yield
    root.handlers[:], root.propagate = before[0], before[2]
    root.setLevel(before[1])


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


def test_a_line_for_people_has_time_level_room_and_message(stream: io.StringIO) -> None:
    configure("INFO", stream=stream)
    logger("store.flush").info("wrote %d bytes", 42)
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} INFO  store\.flush: wrote 42 bytes\n", stream.getvalue()
    )


def test_fields_follow_the_message_quoted_where_they_must_be(stream: io.StringIO) -> None:
    configure("INFO", stream=stream)
    logger("x").warning("late", extra=fields(topic="T", lag_ms=7, why="two words", odd='a"=b', none=None))
    assert stream.getvalue().endswith(
        'WARNING x: late topic=T lag_ms=7 why="two words" odd="a\\"=b" none=None\n'
    )


def test_a_line_for_machines_is_one_json_object(stream: io.StringIO) -> None:
    configure("INFO", json=True, stream=stream)
    logger("store.flush").info("wrote %s", "中", extra=fields(size=42, rate=0.5, path=io))
    entry = json.loads(stream.getvalue())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", entry.pop("time"))
    assert entry.pop("path") == str(io)
    assert entry == {
        "level": "INFO",
        "logger": "store.flush",
        "message": "wrote 中",
        "size": 42,
        "rate": 0.5,
    }


def test_a_field_does_not_displace_a_fixed_member(stream: io.StringIO) -> None:
    configure("INFO", json=True, stream=stream)
    logger("x").info("real", extra=fields(message="forged", nan=float("nan")))
    entry = json.loads(stream.getvalue())
    assert (entry["message"], entry["field_message"], entry["nan"]) == ("real", "forged", "nan")


@pytest.mark.parametrize("as_json", [False, True])
def test_an_exception_brings_its_traceback(stream: io.StringIO, as_json: bool) -> None:
    configure("INFO", json=as_json, stream=stream)
    try:
        raise ZeroDivisionError("of all things")
    except ZeroDivisionError:
        logger("x").exception("broke")
    text = json.loads(stream.getvalue())["error"] if as_json else stream.getvalue()
    assert "Traceback" in text
    assert text.rstrip().endswith("ZeroDivisionError: of all things")


@pytest.mark.parametrize("as_json", [False, True])
@given(name=st.text(st.characters()))
def test_no_text_from_outside_can_forge_a_line(as_json: bool, name: str) -> None:
    stream = io.StringIO()
    configure("INFO", json=as_json, stream=stream)
    logger("x").info("topic %s", name, extra=fields(topic=name))
    assert len(stream.getvalue().splitlines()) == 1
    stream.getvalue().encode()  # And it can be written.


def test_less_than_the_level_is_not_written(stream: io.StringIO) -> None:
    configure("warning", stream=stream)
    logger("x").info("quiet")
    logger("x").warning("loud")
    assert stream.getvalue().count("\n") == 1


def test_configuring_again_replaces_the_handler(stream: io.StringIO) -> None:
    configure("INFO", stream=io.StringIO())
    configure("DEBUG", stream=stream)
    logger("x").debug("once")
    assert stream.getvalue().count("once") == 1
    assert len(logging.getLogger("flaremq").handlers) == 1


def test_lines_do_not_reach_the_handlers_of_the_program(
    stream: io.StringIO, caplog: pytest.LogCaptureFixture
) -> None:
    configure("INFO", stream=stream)
    logger("x").info("ours")
    assert caplog.text == ""


def test_the_default_stream_is_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    configure("INFO")
    logger("x").info("hello")
    assert "hello" in capsys.readouterr().err


@pytest.mark.parametrize("level", ["", "LOUD", "INFO,DEBUG"])
def test_an_unknown_level_is_an_error_that_lists_the_known(level: str) -> None:
    with pytest.raises(ConfigError, match="DEBUG, INFO, WARNING, ERROR, CRITICAL"):
        configure(level)


def test_a_room_has_one_logger_under_both_names() -> None:
    assert logger("store.flush") is logger("flaremq.store.flush")
    assert logger("flaremq").name == "flaremq"
    assert logger("flaremqish").name == "flaremq.flaremqish"


def test_a_line_that_could_come_often_comes_seldom_and_says_what_it_stands_for() -> None:
    now_s = [0.0]
    seldom = Seldom(60, now_s=lambda: now_s[0])
    assert [seldom.due() for _ in range(4)] == [0, None, None, None]
    now_s[0] = 60.0
    assert [seldom.due(), seldom.due()] == [3, None]
    seldom.reset()
    assert seldom.due() == 0
