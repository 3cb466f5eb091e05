import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.model import sysflag

FLAGS = st.integers(0, 0x7FF)


def test_the_bits_are_those_of_java() -> None:
    assert (sysflag.COMPRESSED, sysflag.MULTI_TAGS) == (0x1, 0x2)
    assert (sysflag.TRANSACTION_PREPARED, sysflag.TRANSACTION_COMMIT, sysflag.TRANSACTION_ROLLBACK) == (
        4,
        8,
        12,
    )
    assert (sysflag.BORN_HOST_V6, sysflag.STORE_HOST_V6) == (0x10, 0x20)
    assert (sysflag.NEED_UNWRAP, sysflag.INNER_BATCH) == (0x40, 0x80)
    kinds = (
        sysflag.COMPRESSION_LEGACY,
        sysflag.COMPRESSION_LZ4,
        sysflag.COMPRESSION_ZSTD,
        sysflag.COMPRESSION_ZLIB,
    )
    assert kinds == (0x000, 0x100, 0x200, 0x300)


def test_compression_is_one_bit_and_a_kind() -> None:
    assert sysflag.is_compressed(0x301)
    assert not sysflag.is_compressed(0x300)
    assert sysflag.compression_type(0x301) == sysflag.COMPRESSION_ZLIB
    assert sysflag.compression_type(0x001) == sysflag.COMPRESSION_LEGACY
    assert sysflag.compression_type(0x7F1) == 0x700
    assert sysflag.without_compression(0x3F1) == 0x3F0


@pytest.mark.parametrize(
    ("kind", "queued"),
    [
        (sysflag.TRANSACTION_NONE, True),
        (sysflag.TRANSACTION_PREPARED, False),
        (sysflag.TRANSACTION_COMMIT, True),
        (sysflag.TRANSACTION_ROLLBACK, False),
    ],
)
def test_only_plain_and_committed_messages_enter_a_queue(kind: int, queued: bool) -> None:
    sys_flag = sysflag.with_transaction_type(0x7F3, kind)
    assert sysflag.transaction_type(sys_flag) == kind
    assert sysflag.has_queue_offset(sys_flag) is queued


@given(FLAGS, st.sampled_from([0x0, 0x4, 0x8, 0xC]))
def test_a_new_transaction_type_leaves_every_other_bit_alone(sys_flag: int, kind: int) -> None:
    changed = sysflag.with_transaction_type(sys_flag, kind)
    assert sysflag.transaction_type(changed) == kind
    assert changed & ~0xC == sys_flag & ~0xC


def test_a_transaction_type_has_no_other_bits() -> None:
    with pytest.raises(AssertionError, match="0x10"):
        sysflag.with_transaction_type(0, 0x10)


@pytest.mark.parametrize(
    ("sys_flag", "inner"), [(0x00, False), (0x40, False), (0x80, False), (0xC0, True), (0x7FF, True)]
)
def test_an_inner_batch_has_both_bits(sys_flag: int, inner: bool) -> None:
    assert sysflag.is_inner_batch(sys_flag) is inner


@given(FLAGS, st.booleans(), st.booleans())
def test_hosts_are_as_wide_as_their_addresses_whatever_a_client_claimed(
    claim: int, born: bool, store: bool
) -> None:
    sys_flag = sysflag.with_hosts(claim, born_v6=born, store_v6=store)
    assert sysflag.born_host_size(sys_flag) == (20 if born else 8)
    assert sysflag.store_host_size(sys_flag) == (20 if store else 8)
    assert sys_flag & ~0x30 == claim & ~0x30
