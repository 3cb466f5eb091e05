"""What members of the library say, as bytes: ours read back, Java's read, and anything survived."""

from __future__ import annotations

import json
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dledger.pretendgroup import an_entry

from flaremq.base.errors import Malformed
from flaremq.dledger.library.messages import (
    PUSH_TYPES,
    VOTE_RESULTS,
    Addressed,
    BeatCall,
    BeatReply,
    LibraryCall,
    LibraryCode,
    LibraryReply,
    MetadataCall,
    MetadataReply,
    PushCall,
    PushReply,
    Result,
    TransferCall,
    TransferReply,
    VoteCall,
    VoteReply,
    code_of,
    decode_call,
    decode_reply,
    encode_call,
    encode_refusal,
    encode_reply,
    entries_in,
    run_of,
)

BETWEEN = Addressed("orders", "n1", "n2")
GOLDEN = Path(__file__).parent / "library-frames.jsonl"
numbers = st.integers(0, 2**62)
ids = st.sampled_from(["n0", "n1", "n7"])
bodies = st.binary(max_size=200)


@st.composite
def pushes(draw: st.DrawFn) -> PushCall:
    kind = draw(st.sampled_from(PUSH_TYPES))
    first, position, term = draw(numbers), draw(st.integers(0, 2**40)), draw(numbers)
    found = []
    for n, body in enumerate(draw(st.lists(bodies, min_size=kind != "COMMIT", max_size=5))):
        found.append(an_entry(first + n, term, position, body))
        position = found[-1].end
    is_batch = bool(found) and (len(found) > 1 or draw(st.booleans()))
    return PushCall(draw(numbers), draw(ids), kind, draw(st.integers(-1, 2**62)), tuple(found), is_batch)


calls = st.one_of(
    st.builds(VoteCall, numbers, ids, st.integers(-1, 2**62), st.integers(-1, 2**62)),
    st.builds(BeatCall, numbers, ids),
    pushes(),
    st.builds(TransferCall, numbers, ids, ids, ids, numbers),
    st.just(MetadataCall()),
)
codes = st.sampled_from(list(Result))
ends = st.integers(-1, 2**62)
replies: st.SearchStrategy[tuple[LibraryCall, LibraryReply]] = st.one_of(
    st.tuples(st.just(VoteCall(1, "n1", 0, 0)), st.builds(VoteReply, st.sampled_from(VOTE_RESULTS), ends)),
    st.tuples(st.just(BeatCall(1, "n1")), st.builds(BeatReply, codes, ends)),
    st.tuples(
        st.just(PushCall(1, "n1", "COMMIT", 0)),
        st.builds(PushReply, codes, ends, ends, st.integers(0, 2**31 - 1), ends, ends),
    ),
    st.tuples(st.just(TransferCall(1, "n1", "n1", "n2")), st.builds(TransferReply, codes, ends)),
    st.tuples(
        st.just(MetadataCall()),
        st.builds(
            MetadataReply, codes, st.sampled_from(["", "n1"]), st.dictionaries(ids, st.text()), st.booleans()
        ),
    ),
)


@given(calls)
def test_what_is_asked_is_read_as_it_was_written(call: LibraryCall) -> None:
    assert decode_call(code_of(call), encode_call(call, BETWEEN)) == (call, BETWEEN)


@given(replies)
def test_what_is_answered_is_read_as_it_was_written(pair: tuple[LibraryCall, LibraryReply]) -> None:
    call, reply = pair
    assert decode_reply(call, encode_reply(reply, BETWEEN)) == reply


@given(pushes().filter(lambda push: bool(push.entries)))
def test_entries_make_a_run_and_a_run_entries(push: PushCall) -> None:
    assert tuple(entries_in(run_of(push.entries))) == push.entries


@given(
    st.integers(50_000, 51_010),
    st.one_of(
        st.binary(max_size=50),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        ["group", "term", "entry", "batchEntry", "body", "size", "magic", "type", "peers"]
                    ),
                    inner,
                    max_size=5,
                )
            ),
        ).map(lambda found: json.dumps(found).encode()),
    ),
)
def test_whatever_bytes_come_they_are_a_question_or_malformed(code: int, body: bytes) -> None:
    try:
        call, _ = decode_call(code, body)
    except Malformed:
        return
    assert code_of(call) == code


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "expected a JSON object"),
        ({"term": "1"}, "term='1' of a member: expected a whole number"),
        ({"term": 1 << 63}, "expected a whole number up to"),
        ({"group": 7}, "group=7 of a member"),
        ({"type": "GIVE"}, "type=GIVE of a member: expected one of APPEND"),
        ({"type": "APPEND"}, "a push of type APPEND without an entry"),
        ({"entry": {"body": "!"}}, "is not base64"),
        ({"entry": {"body": "", "size": 49, "magic": 1}}, "expected size 48, magic 1"),
        ({"batchEntry": 3}, "expected a list"),
    ],
)
def test_what_is_wrong_with_a_push_is_said(document: object, said: str) -> None:
    with pytest.raises(Malformed, match=said):
        decode_call(LibraryCode.PUSH, orjson.dumps(document))


def test_entries_with_a_gap_between_them_are_refused() -> None:
    push = PushCall(1, "n1", "APPEND", 0, (an_entry(1, 1, 0), an_entry(3, 1, 52)), True)
    with pytest.raises(Malformed, match="entry 3 follows 1"):
        decode_call(LibraryCode.PUSH, encode_call(push, BETWEEN))


def test_a_refusal_is_what_java_reads_for_each_kind_of_question() -> None:
    body = encode_refusal(Result.UNKNOWN_MEMBER, BETWEEN)
    assert decode_reply(BeatCall(1, "n1"), body) == BeatReply(Result.UNKNOWN_MEMBER)
    assert decode_reply(VoteCall(1, "n1", 0, 0), body) == VoteReply("UNKNOWN", -1)


def golden() -> list[tuple[str, int, bytes]]:
    """What members of RocketMQ 5.3.3 said to one of ours: its kind, the code of the question, the body."""
    lines = map(json.loads, GOLDEN.read_text().splitlines())
    return [(each["kind"], each["code"], each["body"].encode()) for each in lines]


def said(body: bytes) -> dict[str, object]:
    document: dict[str, object] = json.loads(body)
    return document


@pytest.mark.parametrize(("code", "body"), [(code, body) for kind, code, body in golden() if kind == "call"])
def test_what_java_asks_is_understood_and_would_be_asked_in_the_same_words(code: int, body: bytes) -> None:
    call, between = decode_call(code, body)
    java, ours = said(body), said(encode_call(call, between))
    assert {name: java[name] for name in ours} == ours
    # What is left out is computed from the rest, or empty.
    left_out = {"batch", "batchEntry", "count", "firstEntryIndex", "lastEntryIndex", "totalSize"}
    assert java.keys() - ours.keys() <= left_out
    assert decode_call(code, json.dumps(ours).encode()) == (call, between)


QUESTIONS: dict[int, LibraryCall] = {
    LibraryCode.VOTE: VoteCall(1, "n0", 0, 0),
    LibraryCode.HEART_BEAT: BeatCall(1, "n0"),
    LibraryCode.PUSH: PushCall(1, "n0", "COMMIT", 0),
    LibraryCode.LEADERSHIP_TRANSFER: TransferCall(1, "n0", "n0", "n1"),
    LibraryCode.METADATA: MetadataCall(),
}


@pytest.mark.parametrize(("code", "body"), [(code, body) for kind, code, body in golden() if kind == "reply"])
def test_what_java_answers_is_understood(code: int, body: bytes) -> None:
    java = said(body)
    match decode_reply(QUESTIONS[code], body):
        case VoteReply(result, term):
            assert (result, term) == (java["voteResult"], java["term"])
        case MetadataReply(_, leader, peers, is_ours):
            assert (leader, peers, is_ours) == (java.get("leaderId", ""), java["peers"], False)
        case PushReply() as push:
            found = push.code, push.term, push.count, push.begin, push.end
            assert found == tuple(java[each] for each in ("code", "term", "count", "beginIndex", "endIndex"))
            assert push.index == java.get("index", -1)
        case BeatReply(code_told, term) | TransferReply(code_told, term):
            assert (code_told, term) == (java["code"], java["term"])
