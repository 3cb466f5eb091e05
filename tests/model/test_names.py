import pytest

from flaremq.base.errors import InvalidName
from flaremq.model import names
from flaremq.model.names import check_group, check_producer_id, check_topic


@pytest.mark.parametrize(
    "name", ["T", "topic-1_a|b", "%RETRY%g", "TBW102", "x" * 127, "%RETRY%" + "x" * 248, "%DLQ%" + "x" * 250]
)
def test_a_name_of_allowed_characters_and_length_can_be_a_topic(name: str) -> None:
    check_topic(name)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("", "is empty"),
        (" ", "' ' is not allowed"),
        ("a.b", r"'\.' is not allowed"),
        ("a/b", "'/' is not allowed"),
        ("../x", r"'\.' is not allowed"),
        ("a\n", r"'\\n' is not allowed"),
        ("主题", "'主' is not allowed"),
        ("x" * 128, "128 characters, the limit is 127"),
        ("%RETRY%" + "x" * 249, "256 characters, the limit is 255"),
        ("%DLQ%" + "x" * 251, "256 characters, the limit is 255"),
        ("%LMQ%" + "x" * 123, "128 characters, the limit is 127"),
    ],
)
def test_another_name_cannot_be_a_topic(name: str, complaint: str) -> None:
    with pytest.raises(InvalidName, match=complaint):
        check_topic(name)


def test_a_group_leaves_room_for_its_retry_topic() -> None:
    group = "g" * 120
    check_group(group)
    assert len(names.retry_topic(group)) == 127
    with pytest.raises(InvalidName, match=r"group .* 121 characters, the limit is 120"):
        check_group(group + "g")
    with pytest.raises(InvalidName, match="the group name is empty"):
        check_group("")


def test_topics_are_derived_from_groups_clusters_and_brokers() -> None:
    assert names.retry_topic("g") == "%RETRY%g"
    assert names.dlq_topic("g") == "%DLQ%g"
    assert names.reply_topic("c") == "c_REPLY_TOPIC"
    assert names.revive_topic("c") == "rmq_sys_REVIVE_LOG_c"
    assert names.sync_member_topic("b") == "rmq_sys_SYNC_BROKER_MEMBER_b"


def test_the_name_tells_the_kind_of_topic() -> None:
    assert names.is_retry("%RETRY%g")
    assert names.is_dlq("%DLQ%g")
    assert names.is_lmq("%LMQ%q")
    for name in ("T", "RETRY%g", "x%DLQ%g", ""):
        assert not (names.is_retry(name) or names.is_dlq(name) or names.is_lmq(name))


@pytest.mark.parametrize(
    "name", ["TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_wheel_timer", "rmq_sys_"]
)
def test_the_system_s_own_topics_are_known(name: str) -> None:
    assert names.is_system(name)


@pytest.mark.parametrize("name", ["T", "tbw102", "RMQ_SYS_X", "%RETRY%g", ""])
def test_other_topics_are_the_user_s(name: str) -> None:
    assert not names.is_system(name)


def test_some_system_topics_take_no_sends() -> None:
    assert all(names.is_system(topic) for topic in names.NO_SEND_TOPICS)
    assert "TBW102" not in names.NO_SEND_TOPICS
    assert "RMQ_SYS_TRANS_HALF_TOPIC" in names.NO_SEND_TOPICS


def test_groups_of_the_system_have_a_prefix() -> None:
    assert names.is_system_group("CID_RMQ_SYS_TRANS")
    assert not names.is_system_group("my_group")


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "a:b", "ä", 7, None])
def test_a_producer_id_that_cannot_be_used_is_refused(name: object) -> None:
    with pytest.raises(InvalidName, match="expected 1 to 64 letters"):
        check_producer_id(name)


def test_a_producer_id_has_letters_digits_and_a_few_signs() -> None:
    check_producer_id("billing-1.eu_west")
