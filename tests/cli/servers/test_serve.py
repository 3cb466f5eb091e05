"""`flaremq namesrv` as a real process."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from flaremq.cli.servers.serve import run
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.command import Command
from flaremq.remoting.caller import Caller

FLAREMQ = [sys.executable, "-m", "flaremq.cli.main"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_name_server_says_that_it_serves_serves_and_stops_cleanly(tmp_path: Path, number: int) -> None:
    options = ["-o", "listenPort=0", "-o", "bindAddress=127.0.0.1", "-o", f"kvConfigPath={tmp_path / 'kv'}"]
    process = subprocess.Popen([*FLAREMQ, "namesrv", *options], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    match = re.fullmatch(
        r"The Name Server boot success\. serializeType=JSON, address 127\.0\.0\.1:(\d+)\n", line
    )
    assert match, line

    async def ask() -> int:
        caller = Caller()
        answer = await caller.call(
            f"127.0.0.1:{match[1]}", Command(code=RequestCode.GET_BROKER_CLUSTER_INFO), timeout_s=5
        )
        await caller.aclose()
        return answer.code

    assert asyncio.run(ask()) == 0
    process.send_signal(number)
    assert process.wait(10) == 0
    process.stdout.close()


def test_a_server_that_nohup_started_outlives_its_terminal(tmp_path: Path) -> None:
    options = ["-o", "listenPort=0", "-o", "bindAddress=127.0.0.1", "-o", f"kvConfigPath={tmp_path / 'kv'}"]
    with subprocess.Popen(
        ["nohup", *FLAREMQ, "namesrv", *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None and "boot success" in process.stdout.readline()
        assert sighup_is_ignored(process.pid)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def sighup_is_ignored(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        pytest.skip("no /proc here")
    (ignored,) = [line for line in status.read_text().splitlines() if line.startswith("SigIgn")]
    return bool(int(ignored.split()[1], 16) & 1 << (signal.SIGHUP - 1))


class Watched:
    """A server that notes how the interpreter is set while it runs, and is told to stop at once."""

    switch_s = 0.0

    async def start(self) -> None:
        self.switch_s = sys.getswitchinterval()
        os.kill(os.getpid(), signal.SIGTERM)

    async def stop(self) -> None:
        pass


def test_background_threads_give_way_to_the_event_loop_soon_while_a_server_runs() -> None:
    before_s, app = sys.getswitchinterval(), Watched()
    run(app, lambda: "ready")
    assert app.switch_s == pytest.approx(0.0002)
    assert sys.getswitchinterval() == pytest.approx(before_s)


def test_all_settings_can_be_printed(tmp_path: Path) -> None:
    config = tmp_path / "namesrv.conf"
    config.write_text("listenPort=9999\n")
    shown = subprocess.run(
        [*FLAREMQ, "namesrv", "-p", "-c", str(config), "-o", "enableTopicList=false"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert {"listenPort=9999", "enableTopicList=false", "serverSocketSndBufSize=131072"} <= set(shown)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("listenPrt=1", "listenPort"),
        ("listenPort=many", "listenPort"),
        ("aclEnable=true", "aclEnable"),
    ],
)
def test_a_wrong_setting_is_one_line_that_helps(option: str, words: str) -> None:
    run = subprocess.run([*FLAREMQ, "namesrv", "-o", option], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr.count("\n") == 1
    assert run.stderr.startswith("flaremq: ")
    assert words in run.stderr


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("enableDLegerCommitLog=true", "dLegerPeers is not set: expected all members of the group"),
        ("enableControllerMode=true", "enableControllerMode=true"),
    ],
)
def test_a_broker_asked_for_a_group_it_cannot_form_does_not_start(
    tmp_path: Path, option: str, words: str
) -> None:
    folder = tmp_path / "store"
    run = subprocess.run(
        [*FLAREMQ, "broker", "-o", f"storePathRootDir={folder}", "-o", option],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    assert run.stderr.count("\n") == 1
    assert words in run.stderr
    assert not folder.exists()
