"""docs/compatibility.md says what is served, and what it says is so."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from flaremq.broker import clientcalls
from flaremq.broker.handlers.unsupported import AT_CLIENT, AT_NAMESRV, CONTROLLER, REFUSED, UNUSED
from flaremq.namesrv.app import NameServer
from flaremq.namesrv.settings import NamesrvSettings
from flaremq.protocol.codes import RequestCode
from flaremq.remoting.settings import ServerSettings

ROOT = Path(__file__).parent.parent
BROKER = ROOT / "src" / "flaremq" / "broker"


@dataclass(frozen=True)
class Row:
    code: int
    name: str
    served_by: str
    state: str
    remark: str


@cache
def rows() -> list[Row]:
    found = []
    for line in (ROOT / "docs" / "compatibility.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and cells[0].isdigit():
            found.append(Row(int(cells[0]), *cells[1:]))
    return found


@cache
def broker_codes() -> frozenset[RequestCode]:
    """What is served: a lane says it in CODES, all others in the keys of their `table` or `handlers`."""
    found: set[RequestCode] = set()
    for path in BROKER.rglob("[!_]*.py"):
        module = import_module(".".join(path.relative_to(ROOT / "src").with_suffix("").parts))
        found |= {RequestCode(code) for code in getattr(module, "CODES", ())}
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name in ("table", "handlers"):
                found |= set(_keys(node))
    return frozenset(found)


def _keys(function: ast.FunctionDef) -> list[RequestCode]:
    tables = [node for node in ast.walk(function) if isinstance(node, ast.Dict)]
    return [RequestCode[key.attr] for node in tables for key in node.keys if isinstance(key, ast.Attribute)]


@cache
def namesrv_codes() -> frozenset[RequestCode]:
    settings = NamesrvSettings(kv_config_path=Path("kv.json"), config_store_path=Path("namesrv.properties"))
    namesrv = NameServer(settings, ServerSettings(bind_address="127.0.0.1"))
    return frozenset(RequestCode(code) for code in namesrv._handlers.table())


def test_every_request_code_is_in_the_table_once_and_in_order() -> None:
    assert [(row.code, row.name) for row in rows()] == [(int(code), code.name) for code in RequestCode]


def test_a_broker_serves_a_request_or_says_why_not() -> None:
    assert not broker_codes() & REFUSED.keys()
    assert broker_codes() | REFUSED.keys() == set(RequestCode)


def test_what_a_broker_sends_to_namesrvs_is_what_they_serve() -> None:
    assert {code for code, why in REFUSED.items() if why == AT_NAMESRV} == namesrv_codes()


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)
def test_the_table_tells_the_truth(row: Row) -> None:
    code, why = RequestCode(row.code), REFUSED.get(RequestCode(row.code))
    if code in namesrv_codes():
        assert (row.served_by, row.state) == ("NameServer", "done")
    elif code in broker_codes():
        assert row.served_by.startswith("broker") and row.state == "done"
    elif why == AT_CLIENT:
        asked = re.search(rf"\bRequestCode\.{code.name}\b", Path(clientcalls.__file__).read_text())
        assert (row.served_by, row.state) == ("client", "sent" if asked else "later")
    else:
        who = {UNUSED: "nobody", CONTROLLER: "controller"}.get(why or "", "broker")
        assert (row.served_by, row.state, row.remark) == (who, "refused", why)
