"""Headers of transactions: the end of one, and the broker's check of its state."""

from __future__ import annotations

from dataclasses import dataclass

from flaremq.protocol.fields import Header, Long, RpcHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionRequestHeader(RpcHeader):
    """END_TRANSACTION, always one-way from Java and Go."""

    topic: str | None = None
    producer_group: str
    tran_state_table_offset: Long
    """Of the half message in its queue."""
    commit_log_offset: Long
    commit_or_rollback: int
    """A transaction type of the sys flag: 8 commit, 12 roll back, 0 not known yet."""
    from_transaction_check: bool = False
    msg_id: str
    transaction_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTransactionStateRequestHeader(RpcHeader):
    """CHECK_TRANSACTION_STATE. `topic` is that of half messages; the record in the body has the real one."""

    topic: str | None = None
    tran_state_table_offset: Long
    commit_log_offset: Long
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeCheckHalfMessageRequestHeader(Header):
    topic: str | None = None
    msg_id: str | None = None
