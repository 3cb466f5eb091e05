"""The JSON documents of commands, letter for letter, in `documents.txt`; what differs from run to run is
named instead of shown. `python -m tests.cli.test_documents` writes the file anew.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.admin.member import Member
from tests.cli.commands import flaremq

from flaremq.model.message import MessageQueue
from flaremq.store.store import MessageStore
from flaremq.testing.embedded import EmbeddedThread
from flaremq.testing.fakes.builders import a_message, small_settings

GOLDEN: Final = Path(__file__).with_name("documents.txt")
COMMANDS: Final = (
    "topic list --json",
    "topic show orders --json",
    "topic stats orders --json",
    "topic route orders --json",
    "topic rates orders --json",
    "topic producers orders billing-producers --json",
    "topic allocate orders one two --json",
    "topic order orders --json",
    "topic create fresh -q 2 --type FIFO --dry-run --json",
    "topic update orders --perm r --dry-run --json",
    "topic delete orders --dry-run --json",
    "group list --json",
    "group list --names --json",
    "group show billing --json",
    "group create fresh --retries 3 --dry-run --json",
    "group progress billing --json",
    "group reset billing orders --to end --dry-run --json",
    "group clients billing --json",
    "group running billing --json",
    "cluster list --json",
    "cluster brokers --json",
    "cluster status --json",
    "cluster producers --json",
    "cluster health --json",
    "cluster config get fileReservedTime --json",
    "cluster config set fileReservedTime=48 --dry-run --json",
    "cluster namesrv get listenPort --json",
    "cluster kv list ours --json",
    "cluster kv get ours color --json",
    "message get {id} --track --json",
    "message key orders key-1 --json",
    "message query orders --json",
    "message at orders broker-a 0 1 --json",
    "message consume {id} -g billing --json",
    "tail orders --from beginning --no-follow --json",
    "send orders again --queue broker-a:0 --json",
)
STORE_COMMANDS: Final = (
    "store inspect {folder} --json",
    "store verify {folder} --json",
    "store export {folder}",
)
_NAMES: Final = (
    (r'"runtime": \{[^{}]*"bootTimestamp"[^{}]*\}', '"runtime": {...}'),
    (r'"\d{4}-\d\d-\d\dT[\d:.]+Z"', '"TIME"'),
    (r'(_ms"): [1-9]\d*', r"\1: MS"),
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r'"listenPort": "\d+"', '"listenPort": "PORT"'),
    (r"\b[0-9A-F]{32}\b", "ID"),
    (r'(tps"): [\d.e-]+', r"\1: RATE"),
    (r": -?\d+\.\d+(e-\d+)?\b", ": FLOAT"),
    (r'("(?:physical_offset|log_max_offset|\w+_(?:to|yester)day|held_by_pid)"): \d+', r"\1: N"),
    (r'("path": ")[^"]*/index/\d+"', r'\1INDEX"'),
    (r'"file": "[^"]*sightings.json"', '"file": "SIGHTINGS"'),
)


def told(folder: Path, found: EmbeddedThread | None, line: str, **named: object) -> str:
    """What a command prints, without what differs from run to run."""
    words = line.format(folder=folder, **named).split()
    ended = flaremq(*words, *(() if found is None else ("-n", found.namesrv)))
    assert ended.status == 0, (line, ended.err)
    text = ended.out.replace(str(folder), "FOLDER")
    for pattern, name in _NAMES:
        text = re.sub(pattern, name, text)
    return text


def all_told(folder: Path) -> dict[str, str]:
    """Every document, by its command."""
    store = a_store(folder / "store")
    shown = {line: told(store, None, line) for line in STORE_COMMANDS}
    with EmbeddedThread(folder / "cluster", brokers=2) as servers:

        def ask(*words: object) -> str:
            ended = flaremq(*words, "-n", servers.namesrv)
            assert ended.status == 0, (words, ended.err)
            return ended.out

        ask("topic", "create", "orders", "-q", 1, "--attribute", "message.type=NORMAL")
        for broker, number in (("broker-a", 0), ("broker-a", 1), ("broker-b", 2)):
            sent = ask(
                *("send", "orders", f"body {number}", "--queue", f"{broker}:0", "--tags", f"Tag{number}"),
                *("-k", f"key-{number}", "-p", f"n={number}"),
            )
        ask("group", "create", "billing")
        ask("cluster", "kv", "set", "ours", "color", "blue")

        async def made() -> Member:
            found = Member()
            await found.join(servers.addresses, "billing", "orders")
            found.queues = {MessageQueue("orders", "broker-a", 0): 1}
            return found

        member = servers.run(made())
        try:
            ask("group", "reset", "billing", "orders", "--to", "beginning", "--yes")
            for line in COMMANDS:
                shown[line] = told(folder, servers, line, id=sent.split()[0])
        finally:
            servers.run(member.__aexit__())
    return shown


def a_store(root: Path) -> Path:
    store = MessageStore(small_settings(root), owner_dispatches=True)
    store.open()
    for number, body in enumerate((b"text", b"\xff\x00")):
        properties = f"TAGS\x01Tag{number}\x02KEYS\x01key{number}\x02".encode()
        store.put(a_message(body, queue_id=number, properties=properties))
    store.dispatch()
    store.close()
    return root


def text_of(shown: dict[str, str]) -> str:
    return "".join(f"$ flaremq {line}\n{text}\n" for line, text in shown.items())


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield all_told(tmp_path_factory.mktemp("documents"))


@pytest.mark.parametrize("line", [*STORE_COMMANDS, *COMMANDS])
def test_the_document_of_a_command_is_what_it_was(shown: dict[str, str], line: str) -> None:
    expected = GOLDEN.read_text().partition(f"$ flaremq {line}\n")[2].partition("\n$ flaremq ")[0]
    assert shown[line].rstrip("\n") == expected.rstrip("\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch, pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_STATE_HOME", scratch)
        GOLDEN.write_text(text_of(all_told(Path(scratch))))
