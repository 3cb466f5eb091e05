import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import Malformed, UsageError
from flaremq.model.host import Host


@pytest.mark.parametrize(
    ("host", "raw"),
    [
        (Host("10.0.0.1", 54321), "0a0000010000d431"),
        (Host("0.0.0.0", 0), "0000000000000000"),
        (Host("2001:db8::1", 10911), "20010db800000000000000000000000100002a9f"),
    ],
)
def test_a_host_is_its_address_and_four_bytes_of_port(host: Host, raw: str) -> None:
    assert host.encode().hex() == raw
    assert Host.decode(bytes.fromhex(raw)) == host


@given(st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20))
def test_any_bytes_of_the_right_length_are_a_host_and_come_back(raw: bytes) -> None:
    assert Host.decode(raw).encode() == raw


@pytest.mark.parametrize("size", [0, 4, 7, 9, 16, 19, 21])
def test_no_other_length_is_a_host(size: int) -> None:
    with pytest.raises(Malformed, match=f"{size} bytes"):
        Host.decode(bytes(size))


@pytest.mark.parametrize(
    "host", [Host("localhost", 1), Host("", 1), Host("1.2.3", 1), Host("1.2.3.4", 2**31)]
)
def test_a_name_is_no_address(host: Host) -> None:
    with pytest.raises(UsageError, match="numeric IP address"):
        host.encode()


def test_a_host_is_shown_as_people_write_it() -> None:
    assert str(Host("1.2.3.4", 5)) == "1.2.3.4:5"
    assert str(Host("::1", 5)) == "[::1]:5"
    assert (Host("::1", 5).is_v6, Host("1.2.3.4", 5).is_v6) == (True, False)
