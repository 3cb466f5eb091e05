import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import InvalidParameter
from flaremq.base.units import HOUR_MS, MINUTE_MS
from flaremq.model.jsonfields import Fields
from flaremq.model.retrypolicy import LEVELS_MS, Customized, Exponential, RetryPolicy, RetryPolicyType


@pytest.mark.parametrize(
    ("times", "delay_ms"),
    [(-1, 10_000), (0, 10_000), (1, 30_000), (2, MINUTE_MS), (15, 2 * HOUR_MS), (99, 2 * HOUR_MS)],
)
def test_retries_take_the_delay_levels_from_the_third_on(times: int, delay_ms: int) -> None:
    assert RetryPolicy().delay_ms(times) == delay_ms
    assert len(LEVELS_MS) == 18


@pytest.mark.parametrize(
    ("times", "delay_ms"), [(-1, 5_000), (0, 5_000), (1, 10_000), (3, 40_000), (99, 2 * HOUR_MS)]
)
def test_exponential_retries_grow_to_their_limit(times: int, delay_ms: int) -> None:
    policy = RetryPolicy(RetryPolicyType.EXPONENTIAL, exponential=Exponential())
    assert policy.delay_ms(times) == delay_ms


def test_an_exponential_policy_without_its_numbers_is_the_plain_one() -> None:
    assert RetryPolicy(RetryPolicyType.EXPONENTIAL).delay_ms(0) == RetryPolicy().delay_ms(0)
    assert Customized(()).delay_ms(0) == RetryPolicy().delay_ms(0)
    assert Customized((7,)).delay_ms(5) == 7


def test_a_policy_is_written_with_both_kinds_and_read_back() -> None:
    policy = RetryPolicy(RetryPolicyType.EXPONENTIAL, Exponential(1, 2, 3), Customized((4, 5)))
    assert policy.to_dict() == {
        "customizedRetryPolicy": {"next": [4, 5]},
        "exponentialRetryPolicy": {"initial": 1, "max": 2, "multiplier": 3},
        "type": "EXPONENTIAL",
    }
    assert RetryPolicy.of(Fields("policy", policy.to_dict())) == policy


def test_what_a_policy_leaves_out_is_java_s_default() -> None:
    found = RetryPolicy.of(Fields("policy", {"exponentialRetryPolicy": {}, "customizedRetryPolicy": {}}))
    assert found == RetryPolicy(RetryPolicyType.CUSTOMIZED, Exponential(), Customized())
    assert RetryPolicy.of(Fields("policy", {})) == RetryPolicy()


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=9).map(tuple), st.integers(0, 20))
def test_delays_count_from_the_first_retry_and_the_last_is_repeated(
    delays_ms: tuple[int, ...], times: int
) -> None:
    policy = Customized.after(delays_ms)
    assert policy.delays_ms == delays_ms
    assert policy.delay_ms(times) == delays_ms[min(times, len(delays_ms) - 1)]


def test_a_group_without_a_policy_of_its_own_has_none_chosen() -> None:
    assert RetryPolicy().chosen is None
    assert RetryPolicy(RetryPolicyType.EXPONENTIAL, customized=Customized()).chosen is None
    assert RetryPolicy(customized=Customized((1,))).chosen == Customized((1,))


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (RetryPolicy(customized=Customized((-1,))), "a delay of -1 ms"),
        (RetryPolicy(customized=Customized((1,) * 1001)), "1001 delays: the limit is 1000"),
        (RetryPolicy(exponential=Exponential(1, 10**12)), "a delay of 1000000000000 ms"),
        (RetryPolicy(exponential=Exponential(2, 1)), "the shorter delay first"),
        (RetryPolicy(exponential=Exponential(1, 2, 0)), "factor 0"),
    ],
)
def test_a_policy_that_cannot_be_is_refused(policy: RetryPolicy, why: str) -> None:
    with pytest.raises(InvalidParameter, match=why):
        policy.check()
