"""Rewords commands: help without Python's types, -t TOPIC for every TOPIC argument, and suggestions for names
that other tools use. And it takes words and paths without pydantic.

Every command is reworded once, when it is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.main import get_command

from flaremq.cli.names import group_names, topic_names

HABITS: Final[Mapping[str, str]] = {
    "ls": "topic list",
    "topics": "topic list",
    "describe": "topic show",
    "create": "topic create",
    "produce": "send",
    "publish": "send",
    "pub": "send",
    "consume": "tail",
    "subscribe": "tail",
    "sub": "tail",
    "cat": "tail",
    "groups": "group list",
    "lag": "group progress",
    "offsets": "group progress",
    "brokers": "cluster brokers",
    "health": "cluster health",
    "status": "cluster health",
    "start": "up",
    "server": "up",
    "run": "up",
}
"""Names that people try first, and the commands that they mean."""
_HABITS_WITHIN: Final[Mapping[str, str]] = {
    "ls": "list",
    "describe": "show",
    "info": "show",
    "get": "show",
    "add": "create",
    "new": "create",
    "set": "update",
    "alter": "update",
    "rm": "delete",
    "remove": "delete",
    "lag": "progress",
    "offsets": "progress",
    "members": "clients",
    "find": "query",
}
"""The same within a command that has subcommands."""
_VALUES: Final = {
    "int": "N",
    "float": "N",
    "str": "TEXT",
    "path": "PATH",
    "file": "FILE",
    "directory": "FOLDER",
}


def reword(command: Any) -> Any:
    for each in getattr(command, "commands", {}).values():
        reword(each)
    if command.help:
        # typer would keep the line breaks of our source.
        command.help = "\n\n".join(" ".join(each.split("\n")) for each in command.help.split("\n\n"))
    _name_arguments(command)
    params_of = command.get_params
    command.get_params = lambda ctx: [worded(each) for each in params_of(ctx)]
    if hasattr(command, "commands"):
        resolve = command.resolve_command

        def resolve_command(ctx: Any, args: list[str]) -> Any:
            suggest(ctx, args, command.commands, _HABITS_WITHIN)
            return resolve(ctx, args)

        command.resolve_command = resolve_command
    return command


def suggest(ctx: Any, args: Sequence[str], known: Mapping[str, Any], habits: Mapping[str, str]) -> None:
    """Fail with our name for the command, if the word is another tool's name for it."""
    word = args[0] if args else ""
    meant = habits.get(word, "")
    if word not in known and meant.partition(" ")[0] in known and not ctx.resilient_parsing:
        ctx.fail(f"No such command '{word}'. Did you mean '{ctx.command_path} {meant}'?")


# Parameters in help texts.


def worded(param: Any) -> Any:
    if getattr(param, "param_type_name", "") == "argument":
        name = (param.metavar or param.name.upper()).removesuffix("...").strip("[]")
        usage = name if param.required else f"[{name}]"
        # typer calls these; if another version does not, its own words are shown.
        param.metavar = name
        param.display_type_rich = lambda ctx: None  # noqa: ARG005
        param.get_usage_pieces = lambda ctx: [usage + "..." * (param.nargs != 1)]  # noqa: ARG005
    elif getattr(param, "is_flag", False):
        param.metavar = ""
    elif param.metavar is None:
        display_type = getattr(param, "display_type", None)
        if display_type is not None:
            param.display_type_rich = lambda ctx: _value_word(display_type(ctx))
    if hasattr(param, "_get_number_range_help_str"):
        words = _range_words(getattr(param, "min", None), getattr(param, "max", None))
        param._get_number_range_help_str = lambda: words
    if hasattr(param, "get_runtime_param"):
        param.get_runtime_param = lambda: _Plainly
    return param


def _value_word(shown: str) -> str:
    """`<list[str]>` as TEXT, `<int range>` as N, `<a|b>` as a|b."""
    word = shown.strip("<>").removesuffix(" range").removeprefix("list[").removesuffix("]")
    return _VALUES.get(word, word)


def _range_words(least: float | None, most: float | None) -> str | None:
    if least is None:
        return None if most is None else f"at most {most:,}"
    return f"at least {least:,}" if most is None else f"{least:,} to {most:,}"


class _Plainly:
    """What typer asks for the value of a parameter. Words, paths and what nobody gave need no check by
    pydantic, whose import takes a third of the time that a command needs to start. The rest is typer's."""

    @staticmethod
    def coerce(value: Any, param: Any, ctx: Any) -> Any:
        said = param.type_descriptor
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if said.parameter_info.parser is None:
            if said.annotation is str and isinstance(value, str):
                return value
            if said.annotation == list[str] and isinstance(value, (list, tuple)):
                return list(value)
            if said.annotation is Path and isinstance(value, str) and _is_taken(value, said.parameter_info):
                return Path(value)
        return type(param).get_runtime_param(param).coerce(value, param=param, ctx=ctx)


def _is_taken(path: str, info: Any) -> bool:
    """Whether typer would take this path, and does not ask for more than that it can be read."""
    asks = info.exists or info.writable or info.resolve_path or not (info.file_okay and info.dir_okay)
    return not asks and (os.access(path, os.R_OK) or not os.path.lexists(path))


# Arguments that may also be given as options.


def _options(
    named_topic: Annotated[
        str | None,
        typer.Option(
            "-t",
            "--topic",
            metavar="TOPIC",
            help="Topic, instead of the TOPIC argument.",
            expose_value=False,
            autocompletion=topic_names,
        ),
    ] = None,
    named_group: Annotated[
        str | None,
        typer.Option(
            "-g",
            "--group",
            metavar="GROUP",
            help="Group, instead of the GROUP argument.",
            expose_value=False,
            autocompletion=group_names,
        ),
    ] = None,
) -> None:
    """Options added to commands with such arguments: typer makes them from this signature."""


def _name_arguments(command: Any) -> None:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    taken = {flag for each in command.params for flag in each.opts}
    added = {
        name: option
        for name, option in _made_options({each.name for each in arguments}).items()
        if not taken & set(option.opts)
    }
    if not added:
        return
    command.params[len(arguments) : len(arguments)] = added.values()
    make_parser = command.make_parser

    def named_parser(ctx: Any) -> Any:
        parser = make_parser(ctx)
        parse = parser.parse_args

        def parse_args(args: list[str]) -> Any:
            opts, rest, order = parse(args)
            named = {name: opts[f"named_{name}"] for name in added if opts.get(f"named_{name}")}
            if named:
                rest = _placed(ctx, arguments, named, opts, rest)
            return opts, rest, order

        parser.parse_args = parse_args
        return parser

    command.make_parser = named_parser


def _made_options(names: Set[str]) -> Mapping[str, Any]:
    """Those of these arguments, new for each command."""
    if names.isdisjoint(("topic", "group")):
        return {}  # As most have none: making options takes longer than the rest of the command.
    app = typer.Typer(add_completion=False)
    app.command()(_options)
    made = {option.name.removeprefix("named_"): option for option in get_command(app).params}
    return {name: option for name, option in made.items() if name in names}


def _placed(
    ctx: Any, arguments: Sequence[Any], named: Mapping[str, str], opts: dict[str, Any], rest: list[str]
) -> list[str]:
    """Assign the words to the arguments that are not named. Returns the remaining words."""
    words = [word for each in arguments for word in _given(opts.get(each.name))] + rest
    others = [each for each in arguments if each.name not in named]
    is_open = any(each.nargs == -1 for each in others)
    if not is_open and len(words) == len(arguments):  # Every argument is given, the named ones twice.
        for each, word in zip(arguments, words, strict=True):
            if each.name in named and word != named[each.name]:
                ctx.fail(
                    f"--{each.name} {named[each.name]} and the argument {word} name two {each.name}s: "
                    "give one of them"
                )
        return []
    opts.update(named)
    for each in others:
        count = len(words) if each.nargs == -1 else 1
        taken, words = words[:count], words[count:]
        if each.nargs == -1:
            opts[each.name] = tuple(taken)
        elif taken:
            opts[each.name] = taken[0]
        else:
            opts.pop(each.name, None)
    return words


def _given(value: object) -> Sequence[str]:
    if isinstance(value, str):
        return (value,)
    return [each for each in value if isinstance(each, str)] if isinstance(value, list | tuple) else ()
