"""Every exception that FlareMQ raises, in one tree. The family names the culprit.

    FlareError
    ├─ UsageError               you: the caller or the operator
    │  ├─ ConfigError               an option: unknown name, wrong type, impossible relation
    │  ├─ InvalidName               an invalid topic or group name
    │  ├─ InvalidParameter          any other invalid value
    │  ├─ NoPermission              something that is forbidden here
    │  │  └─ Forbidden                  a consumer may not read
    │  ├─ NotServed                 something that RocketMQ has and this broker has not yet
    │  ├─ NotMaster                 something that only a master does was asked of a slave
    │  ├─ TopicNotFound             a topic that is not here
    │  ├─ GroupNotFound             a group that is not here
    │  ├─ MessageNotFound           a message that is not here, or no longer
    │  ├─ ConsumerOffline           no member of a group is connected
    │  ├─ SubscriptionMissing       a pull before the heartbeat with its subscription
    │  ├─ SubscriptionOld           a pull with a newer subscription than the known one
    │  ├─ FilterDataMissing         the expression of a group is not known (yet)
    │  ├─ FilterDataOld             the known expression of a group is older than the pull's
    │  ├─ InvalidExpression         a subscription that cannot be parsed
    │  ├─ MessageIllegal            a message that may not be stored
    │  │  ├─ BodyTooLarge
    │  │  ├─ PropertiesTooLong
    │  │  └─ RecordTooLarge
    │  ├─ NoJava                    no Java that Spark could run on
    │  └─ StoreClosed               used before open() or after close()
    ├─ PeerError                they: what a peer sent or did
    │  ├─ Malformed                 a record, a batch, a property string, an id
    │  ├─ Refused                   a server refused, for a reason without a class here
    │  ├─ NoRoute                   a topic is known, but none of its queues can be used now
    │  ├─ SendFailed                every attempt to send a message failed; it has them all
    │  ├─ Incomplete                some of several servers failed; it says which
    │  ├─ ManyFailed                some of many messages were not sent; it has all results
    │  ├─ DataLost                  messages that were to be read are gone; it says which
    │  ├─ SparkFailed               Spark did not start, or gave up
    │  └─ Unreachable               no server there, or no longer; try again, or elsewhere
    │     ├─ ConnectFailed
    │     ├─ ConnectionLost
    │     ├─ CallTimeout
    │     └─ NoNameServer               none of the NameServers answers
    └─ StoreError               the disk, or the files on it
       ├─ StoreLocked               another process has this folder
       ├─ CorruptStore              a file that can be neither read nor rebuilt
       ├─ FileUnavailable           a file cannot be opened, read or written just now
       ├─ FlushFailed               fsync failed; the store has stopped for good
       ├─ NotWritable               writes are refused until an operator acts
       └─ ResourceShort             try again later; it says what is short, and by how much
          ├─ DiskFull
          ├─ PageCacheBusy
          ├─ DispatchBehind
          ├─ FileNotReady               no next log file, or no buffer of the pool
          ├─ Busy                       too many requests at once
          ├─ GroupUnsettled             a Raft group is in the middle of something
          └─ ServiceStops               this server is shutting down

Each class says whether trying again can help (`retriable`), and which response code of the RocketMQ protocol
a remote peer gets for it (`response_code`). A message gives the value, the limit and the next step. A next
step that programs, commands and web pages take in different ways is a `hint`. An error reported by a server
also has its `address` and `remark`.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Self


class Hint(Enum):
    """The next step after an error. The value is its text for a program; other interfaces have their own."""

    LIST_TOPICS = "see `topics.list`"
    LIST_GROUPS = "see `groups.list`"
    LIST_BROKERS = "see `brokers.list`"
    START_BROKER = "see `brokers.list`, and start one"
    NAME_TOPIC = "name a topic"
    NAME_OTHER_TOPIC = "name the topic to search one of the others"
    START_NAMESRV = "see whether one runs there, or name another"
    READ_LOG = "read the log instead: it also has messages without a queue"


class FlareError(Exception):
    """Base of all errors raised by this package. Its text is `fact`, and the hint if there is one."""

    retriable = False
    response_code = 1  # SYSTEM_ERROR
    remark: str | None = None
    """The remark of the server that refused, if one did."""
    address: str | None = None
    """The address of that server."""
    hint: Hint | None = None
    """The next step, for an interface that words it itself."""

    @property
    def fact(self) -> str:
        """What happened, without the hint."""
        return super().__str__()

    def with_hint(self, hint: Hint | None) -> Self:
        self.hint = hint
        return self

    def __str__(self) -> str:
        return self.fact if self.hint is None else f"{self.fact}; {self.hint.value}"


class UsageError(FlareError):
    """The caller or the operator asked for something impossible."""


class ConfigError(UsageError):
    """An option is unknown, of the wrong type, or contradicts another."""


class InvalidName(UsageError):
    """A topic or group name with a character or a length that the protocol forbids."""

    response_code = 29  # INVALID_PARAMETER


class InvalidParameter(UsageError):
    """An invalid value in a request."""

    response_code = 29  # INVALID_PARAMETER


class NoPermission(UsageError):
    """Something that an operator has forbidden, or that is the broker's own."""

    response_code = 16  # NO_PERMISSION


class Forbidden(NoPermission):
    """A consumer may not read. `kind` is the reason: 1 the broker, 2 the group, 3 the topic, 4 broadcasting,
    5 this group on this topic."""

    def __init__(self, what: str, kind: int) -> None:
        super().__init__(what)
        self.kind = kind


class NotServed(UsageError):
    """Something that RocketMQ has and this broker has not (yet)."""

    response_code = 3  # REQUEST_CODE_NOT_SUPPORTED


class NotMaster(UsageError):
    """Something that only the master of a broker does was asked of a slave. RocketMQ has no code of its own
    for that, and answers with another one for each kind of request."""

    def __init__(self, what: str, response_code: int) -> None:
        super().__init__(what)
        self.response_code = response_code


class TopicNotFound(UsageError):
    """A topic that does not exist here, and is not created on demand."""

    response_code = 17  # TOPIC_NOT_EXIST


class GroupNotFound(UsageError):
    """A group that does not exist here, and is not created on demand."""

    response_code = 26  # SUBSCRIPTION_GROUP_NOT_EXIST


class IllegalOperation(UsageError):
    """Too late, or meant for something else: a recall handle, a transaction."""

    response_code = 604  # ILLEGAL_OPERATION


class MessageNotFound(UsageError):
    """A message that is not here, or no longer."""

    response_code = 22  # QUERY_NOT_FOUND


class ConsumerOffline(UsageError):
    """No member of a group is connected."""

    response_code = 206  # CONSUMER_NOT_ONLINE


class SubscriptionMissing(UsageError):
    """The subscription of a group is unknown; its next heartbeat brings it."""

    retriable = True
    response_code = 24  # SUBSCRIPTION_NOT_EXIST


class SubscriptionOld(UsageError):
    """The known subscription of a group is older than the pull."""

    retriable = True
    response_code = 25  # SUBSCRIPTION_NOT_LATEST


class FilterDataMissing(UsageError):
    """The expression of a group is not known; its next heartbeat brings it."""

    retriable = True
    response_code = 27  # FILTER_DATA_NOT_EXIST


class FilterDataOld(UsageError):
    """The known expression of a group is older than the pull."""

    retriable = True
    response_code = 28  # FILTER_DATA_NOT_LATEST


class InvalidExpression(UsageError):
    """The text of a subscription cannot be parsed. `at` is the character where parsing stopped."""

    response_code = 23  # SUBSCRIPTION_PARSE_FAILED

    def __init__(self, what: str, at: int = 0) -> None:
        super().__init__(what)
        self.at = at


class MessageIllegal(UsageError):
    """A message that can never be stored, whoever sends it."""

    response_code = 13  # MESSAGE_ILLEGAL


class BodyTooLarge(MessageIllegal):
    def __init__(self, size: int, size_max: int) -> None:
        super().__init__(f"body of {size} bytes, limit is {size_max}: send less, or raise maxMessageSize")
        self.size = size
        self.size_max = size_max


class PropertiesTooLong(MessageIllegal):
    def __init__(self, size: int, size_max: int) -> None:
        super().__init__(f"properties of {size} bytes, limit is {size_max}: move what is large into the body")
        self.size = size
        self.size_max = size_max


class RecordTooLarge(MessageIllegal):
    def __init__(self, size: int, size_max: int) -> None:
        super().__init__(f"record of {size} bytes, limit is {size_max}: send less, or raise maxMessageSize")
        self.size = size
        self.size_max = size_max


class StoreClosed(UsageError):
    """The store was used before open() or after close()."""

    response_code = 14  # SERVICE_NOT_AVAILABLE


class NoJava(UsageError):
    """Spark needs a Java, and none that is new enough was found."""


class PeerError(FlareError):
    """A peer sent something that the protocol does not allow."""


class Malformed(PeerError):
    """Bytes that are not what they claim to be. `at` is where parsing stopped."""

    response_code = 13  # MESSAGE_ILLEGAL

    def __init__(self, what: str, at: int = 0) -> None:
        super().__init__(what)
        self.at = at


class Unreachable(PeerError):
    """A peer that cannot be reached. A request to it may have been executed all the same."""

    retriable = True
    response_code = 1  # SYSTEM_ERROR


class ConnectFailed(Unreachable):
    """No connection could be made."""


class ConnectionLost(Unreachable):
    """A connection ended while a call waited for its answer."""


class CallTimeout(Unreachable):
    """No answer came in time."""


class NoNameServer(Unreachable):
    """None of the NameServers answers."""


class Refused(PeerError):
    """A server refused. `response_code` and `remark` are its own."""


class NoReply(PeerError):
    """A request was sent, and no reply came in time."""


class NoRequester(PeerError):
    """The client that asked for a reply is gone."""


class NoRoute(PeerError):
    """A topic is known, but has no usable queue."""

    retriable = True
    response_code = 17  # TOPIC_NOT_EXIST


class SendFailed(PeerError):
    """Every attempt to send a message failed. One of them may have stored it all the same."""

    retriable = True

    def __init__(self, what: str, attempts: Sequence[FlareError]) -> None:
        super().__init__(what)
        self.attempts = tuple(attempts)
        """The error of each attempt."""
        if attempts:
            last = attempts[-1]
            self.response_code, self.remark, self.address = last.response_code, last.remark, last.address
            self.retriable = last.retriable


class OutcomeUnknown(SendFailed):
    """No attempt to send a numbered message was answered. Sending it again with its number is harmless."""

    def __init__(self, what: str, attempts: Sequence[FlareError], *, sequence: int, queue: Any) -> None:
        super().__init__(what, attempts)
        self.sequence = sequence
        self.queue = queue
        """The queue in which it may be stored: send it there again."""


class ManyFailed(PeerError):
    """Some of many messages could not be sent."""

    retriable = True

    def __init__(self, what: str, results: Sequence[object]) -> None:
        super().__init__(what)
        self.results = tuple(results)
        """In the order of the messages: a receipt, or the error."""


class DataLost(PeerError):
    """Messages that were to be read are gone: deleted before their time, or with their topic."""


class Incomplete(PeerError):
    """Some of several servers failed. `retriable` if all of their errors are."""

    def __init__(self, what: str, done: Sequence[str], failed: Mapping[str, FlareError]) -> None:
        whys = "; ".join(f"{name}: {error}" for name, error in failed.items())
        did = f"done on {', '.join(done)}" if done else "done nowhere"
        super().__init__(f"{what}: {did}, failed on {len(failed)} ({whys})")
        self.done = tuple(done)
        """Names of the servers that did it."""
        self.failed = dict(failed)
        """The errors of the others, by name."""
        self.retriable = all(error.retriable for error in failed.values())


class SparkFailed(PeerError):
    """Spark did not start, or gave up a job, for a reason without a class here."""


class StoreError(FlareError):
    """The disk, or the files on it, do not work as they should."""

    response_code = 14  # SERVICE_NOT_AVAILABLE


class StoreLocked(StoreError):
    """Another process holds this store folder."""


class CorruptStore(StoreError):
    """A file that can be neither read as it is nor rebuilt from another."""


class FileUnavailable(StoreError):
    """A file could not be opened, mapped, read or written just now; its content may be intact."""

    retriable = True


class FlushFailed(StoreError):
    """An fsync failed. What it covered may be lost, so nothing is acknowledged any more."""


class NotWritable(StoreError):
    """Writes are refused until an operator acts, or the store is restarted."""


class ResourceShort(StoreError):
    """Nothing is broken, but something is short: the same request may succeed later."""

    retriable = True
    response_code = 2  # SYSTEM_BUSY


class DiskFull(ResourceShort):
    """The disk is above its warning level; deleting old files or adding space ends this."""

    response_code = 14  # SERVICE_NOT_AVAILABLE, as RocketMQ answers it.


class PageCacheBusy(ResourceShort):
    """An append has been stuck for too long: the page cache cannot take more."""


class DispatchBehind(ResourceShort):
    """More records are stored than their queues know of (putMsgIndexHightWater)."""


class FileNotReady(ResourceShort):
    """The next log file, or a buffer of the transient pool, was not available in time."""


class Busy(ResourceShort):
    """More requests than can be served just now: nothing was done."""


class GroupUnsettled(ResourceShort):
    """A Raft group elects a leader, hands over, or has not decided on its last change yet: when it has, the
    same request may succeed."""


class ServiceStops(ResourceShort):
    """This server is shutting down: another one may serve."""

    response_code = 14  # SERVICE_NOT_AVAILABLE
