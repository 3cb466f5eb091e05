"""Settings of brokers and NameServers: `flaremq cluster config`, `namesrv` and `kv`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from flaremq.admin.clusterdocuments import server_settings_document
from flaremq.admin.values.brokers import Settings
from flaremq.admin.values.outcome import Answers
from flaremq.base.errors import InvalidParameter
from flaremq.cli.connect import connected, note_failures, pairs_of
from flaremq.cli.options import Broker, Cluster, DryRun, Json, Namesrv, Profile, Yes
from flaremq.cli.render import Output, confirm, safe

config_app = typer.Typer(no_args_is_help=True, add_completion=False, help="Broker settings.")
namesrv_app = typer.Typer(no_args_is_help=True, add_completion=False, help="NameServer settings.")
kv_app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Key-value settings stored on the NameServers."
)

Keys = Annotated[list[str] | None, typer.Argument(metavar="KEY", help="Limit to these settings.")]
Pairs = Annotated[list[str], typer.Argument(metavar="KEY=VALUE", help="Setting and new value.")]
Namespace = Annotated[str, typer.Argument(metavar="NAMESPACE", help="Namespace of the key.")]
Key = Annotated[str, typer.Argument(metavar="KEY", help="Key.")]


@config_app.command("get")
def get_config(
    key: Keys = None,
    namesrv: Namesrv = None,
    profile: Profile = None,
    cluster: Cluster = None,
    broker: Broker = None,
    json: Json = False,
) -> None:
    """Show broker settings."""
    with connected(namesrv, profile) as admin:
        found = admin.brokers.config(cluster=cluster, broker=broker)
    _show_settings(found, key or [], Output(json))


@config_app.command("set")
def set_config(
    pair: Pairs,
    namesrv: Namesrv = None,
    profile: Profile = None,
    cluster: Cluster = None,
    broker: Broker = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Change broker settings at run time."""
    changes, out = pairs_of(pair, "setting"), Output(json)
    with connected(namesrv, profile) as admin:
        before = admin.brokers.config(cluster=cluster, broker=broker)
        planned = _planned(before, changes)
        if dry_run:
            out.would(planned, changes=changes, brokers=[each.server for each in before])
            return
        confirm(f"This would {'; '.join(planned)}", yes)
        done = admin.brokers.update_config(changes, cluster=cluster, broker=broker)
    out.done(f"Changed on {', '.join(done)}.", changes=changes, brokers=list(done))


@namesrv_app.command("get")
def get_namesrv_config(
    key: Keys = None, namesrv: Namesrv = None, profile: Profile = None, json: Json = False
) -> None:
    """Show NameServer settings."""
    with connected(namesrv, profile) as admin:
        found = admin.namesrvs.config()
    _show_settings(found, key or [], Output(json))


@namesrv_app.command("set")
def set_namesrv_config(
    pair: Pairs,
    namesrv: Namesrv = None,
    profile: Profile = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Change NameServer settings at run time, on all NameServers."""
    changes, out = pairs_of(pair, "setting"), Output(json)
    with connected(namesrv, profile) as admin:
        before = admin.namesrvs.config()
        planned = _planned(before, changes)
        if dry_run:
            out.would(planned, changes=changes, namesrvs=[each.server for each in before])
            return
        confirm(f"This would {'; '.join(planned)}", yes)
        done = admin.namesrvs.update_config(changes)
    out.done(f"Changed on {', '.join(done)}.", changes=changes, namesrvs=list(done))


# Key-value settings.


@kv_app.command("list")
def kv_list(
    namespace: Namespace, namesrv: Namesrv = None, profile: Profile = None, json: Json = False
) -> None:
    """List the keys of a namespace."""
    out = Output(json)
    with connected(namesrv, profile) as admin:
        found = dict(sorted(admin.namesrvs.kv_list(namespace).items()))
    out.show(
        {"namespace": namespace, "values": found},
        lambda: out.table(("key", "value"), found.items(), empty="No keys found."),
    )


@kv_app.command("get")
def kv_get(
    namespace: Namespace, key: Key, namesrv: Namesrv = None, profile: Profile = None, json: Json = False
) -> None:
    """Show the value of a key."""
    out = Output(json)
    with connected(namesrv, profile) as admin:
        value = admin.namesrvs.kv_get(namespace, key)
    if value is None:
        raise InvalidParameter(f"namespace {namespace!r} has no key {key!r}: see `flaremq cluster kv list`")
    out.show({"namespace": namespace, "key": key, "value": value}, lambda: typer.echo(safe(value)))


@kv_app.command("set")
def kv_set(
    namespace: Namespace,
    key: Key,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="Value.")],
    namesrv: Namesrv = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Set a value on all NameServers."""
    with connected(namesrv, profile) as admin:
        done = admin.namesrvs.kv_put(namespace, key, value)
    Output(json).done(
        f"{namespace}/{key} is set on {', '.join(done)}.", namespace=namespace, key=key, namesrvs=list(done)
    )


@kv_app.command("delete")
def kv_delete(
    namespace: Namespace,
    key: Key,
    namesrv: Namesrv = None,
    profile: Profile = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Delete a value on all NameServers."""
    with connected(namesrv, profile) as admin:
        confirm(f"This would delete {namespace}/{key} on all NameServers", yes)
        done = admin.namesrvs.kv_delete(namespace, key)
    Output(json).done(
        f"{namespace}/{key} is deleted on {', '.join(done)}.",
        namespace=namespace,
        key=key,
        namesrvs=list(done),
    )


# Helpers.


def _show_settings(found: Answers[Settings], keys: list[str], out: Output) -> None:
    chosen = {each.server: _chosen(each, keys) for each in found}

    def for_people() -> None:
        for server, values in chosen.items():
            if len(chosen) > 1:
                typer.secho(server, bold=True)
            for name, value in values.items():
                typer.echo(safe(f"{name}={value}"))
        note_failures(found.failed)

    out.show(server_settings_document(chosen, found.failed), for_people)


def _chosen(settings: Settings, keys: list[str]) -> Mapping[str, str]:
    values = dict(sorted(settings.values.items()))
    for key in keys:
        if key not in values:
            raise InvalidParameter(f"{settings.server} has no setting {key!r}: leave out KEY to see all")
    return {key: values[key] for key in keys} if keys else values


def _planned(before: Answers[Settings], changes: Mapping[str, str]) -> list[str]:
    return [
        f"change {name} of {each.server} from {each.values.get(name, 'nothing')} to {value}"
        for each in before
        for name, value in changes.items()
    ]
