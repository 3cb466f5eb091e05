"""`flaremq profile`: named clusters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flaremq.cli.options import Json
from flaremq.cli.profiles import USUAL, choose, known_names, load_profiles, profiles_path
from flaremq.cli.render import Output
from flaremq.cli.tls import Ca, Cert, Enabled, Key, Tls

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Named clusters, and which one to use.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Profile name.", autocompletion=known_names)]


@app.command("list")
def list_profiles(json: Json = False) -> None:
    """List the profiles, and the cluster that commands use now."""
    found, out = load_profiles(profiles_path()), Output(json)
    target = choose(None, None)

    def for_people() -> None:
        rows = [
            ("*" if name == found.in_use else "", name, namesrv, _shown(found.tls[name]))
            for name, namesrv in sorted(found.namesrvs.items())
        ]
        out.table(("in use", "name", "namesrv", "tls"), rows, empty="No profiles.")
        typer.echo(f"Using {target.namesrv} ({target.why}). Profiles are kept in {found.path}.")

    document = {
        "file": str(found.path),
        "in_use": found.in_use,
        "profiles": {
            name: {"namesrv": namesrv, **found.tls[name].table()}
            for name, namesrv in sorted(found.namesrvs.items())
        },
        "target": {"namesrv": target.namesrv, "why": target.why},
    }
    out.show(document, for_people)


def _shown(tls: Tls) -> str:
    return " ".join(f"{key}={value}" for key, value in tls.table().items())


@app.command("set")
def set_profile(
    name: Name,
    namesrv: Annotated[
        str, typer.Option("-n", "--namesrv", metavar="HOST:PORT", help="NameServer addresses of the cluster.")
    ] = USUAL,
    tls: Enabled = None,
    tls_ca: Ca = None,
    tls_cert: Cert = None,
    tls_key: Key = None,
    use: Annotated[bool, typer.Option("--use", help="Make it the active profile.")] = False,
    json: Json = False,
) -> None:
    """Create or replace a profile."""
    files = (str(Path(file).resolve()) if file else None for file in (tls_ca, tls_cert, tls_key))
    profiles = load_profiles(profiles_path()).set(name, namesrv, Tls(tls, *files))
    if use:
        profiles = profiles.use(name)
    profiles.save()
    Output(json).done(f"Profile {name} is {profiles.get(name)}.", profile=name, namesrv=profiles.get(name))


@app.command("use")
def use_profile(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Profile name.", autocompletion=known_names)
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Use no profile.")] = False,
    json: Json = False,
) -> None:
    """Choose the active profile: the cluster that commands use by default."""
    if (name is None) != none:
        raise typer.BadParameter("give the name of a profile, or --none")
    profiles = load_profiles(profiles_path()).use(name)
    profiles.save()
    sentence = f"Using {profiles.get(name)} from now on." if name else "No profile is active now."
    Output(json).done(sentence, in_use=name)


@app.command("remove")
def remove_profile(name: Name, json: Json = False) -> None:
    """Remove a profile."""
    load_profiles(profiles_path()).remove(name).save()
    Output(json).done(f"Profile {name} is removed.", profile=name)
