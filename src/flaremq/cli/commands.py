"""The table of commands. Help and completion read only this table, so neither loads a command.

A row names the module of a command, which offers one of two things:

    app         a typer.Typer: a command with subcommands, such as `flaremq topic list`
    command     a function with typer's annotations, such as `flaremq send`

If a module has several commands, their rows add `:name` to it. It is imported when one of its commands is
called, and not before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

SERVERS: Final = "Servers"
MESSAGES: Final = "Messages"
ADMIN: Final = "Administration"
TOOLS: Final = "Tools"


class Row(NamedTuple):
    """One command."""

    place: str
    help: str
    panel: str
    hidden: bool = False


COMMANDS: Final[Mapping[str, Row]] = {
    "up": Row("flaremq.cli.servers.up", "Run a NameServer and a broker in one process.", SERVERS),
    "namesrv": Row("flaremq.cli.servers.serve:namesrv_command", "Run a NameServer.", SERVERS),
    "broker": Row("flaremq.cli.servers.broker", "Run a broker, or make a slave the master.", SERVERS),
    "send": Row("flaremq.cli.messages.send", "Send messages.", MESSAGES),
    "tail": Row("flaremq.cli.messages.tail", "Print the messages of a topic as they arrive.", MESSAGES),
    "message": Row("flaremq.cli.messages.message", "Find, inspect and redeliver messages.", MESSAGES),
    "dlq": Row("flaremq.cli.messages.dlq", "Dead letters: list, resend, export and purge.", MESSAGES),
    "transaction": Row(
        "flaremq.cli.messages.transaction", "Transactions that have not ended: list and decide.", MESSAGES
    ),
    "topic": Row("flaremq.cli.admin.topic", "List, create, inspect and delete topics.", ADMIN),
    "group": Row("flaremq.cli.admin.group", "Consumer groups: lag, members and offsets.", ADMIN),
    "cluster": Row(
        "flaremq.cli.admin.cluster", "Brokers and NameServers: health, status and settings.", ADMIN
    ),
    "store": Row("flaremq.cli.store", "Inspect, verify and export a store folder.", TOOLS),
    "pipeline": Row(
        "flaremq.cli.pipelines.commands", "Archive, replay, rebuild, audit and analyze with Spark.", TOOLS
    ),
    "profile": Row("flaremq.cli.profile", "Named clusters, and which one to use.", TOOLS),
    "bench": Row("flaremq.cli.bench.bench", "Measure the speed of a cluster.", TOOLS),
    "demo": Row("flaremq.cli.demo.demo", "Watch a cluster at work, with explanations.", TOOLS),
    "version": Row("flaremq.cli.about", "Print the version, as --version does.", TOOLS),
}

_ALIASES: Final = {
    "topics": "updateTopic deleteTopic updateTopicPerm topicRoute topicStatus topicClusterList topicList "
    "updateOrderConf allocateMQ statsAll",
    "groups": "updateSubGroup deleteSubGroup consumerProgress consumerStatus getConsumerConfig "
    "consumerConnection producerConnection resetOffsetByTime cloneGroupOffset skipAccumulatedMessage",
    "messages": "queryMsgById queryMsgByKey queryMsgByUniqueKey queryMsgByOffset printMsg printMsgByQueue "
    "sendMessage consumeMessage queryMsgTraceById",
    "brokers": "clusterList brokerStatus haStatus getBrokerConfig updateBrokerConfig cleanExpiredCQ "
    "cleanUnusedTopic deleteExpiredCommitLog wipeWritePerm addWritePerm getNamesrvConfig updateNamesrvConfig "
    "updateKvConfig deleteKvConfig",
}
_WORD: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")

ALIASES: Final[Mapping[str, Row]] = {
    name: Row(
        f"flaremq.cli.aliases.{module}:{_WORD.sub('_', name).lower()}",
        f"The same as mqadmin {name}.",
        ADMIN,
        hidden=True,
    )
    for module, names in _ALIASES.items()
    for name in names.split()
}
"""mqadmin's names, with mqadmin's options, for people who are used to them. A function has the name of its
alias in Python's style: update_topic."""
