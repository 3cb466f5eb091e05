"""Paths that users give: folders of this machine, or mounted on it, and no addresses of anything else.

`Path` takes s3a://bucket/x for a folder called "s3a:" and would make one. An archive in it would look written
and be nowhere that anyone expects it (docs/decisions/0009).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from flaremq.base.errors import ConfigError

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", re.DOTALL)
_HERE: Final = ("", "localhost")


def local_path(given: str | Path) -> Path:
    """The absolute path of what was given. file:/x, file:///x and file://localhost/x are /x.

    ConfigError for any other scheme. `./s3a:/x` is how to name a folder that is really called so.
    """
    text = str(given)
    url = _URL.match(text)
    if url is None:
        return Path(text).expanduser().absolute()
    scheme, rest = url.groups()
    if scheme.lower() == "file":
        host, slash, path = rest.partition("/")
        if not text[len("file:") :].startswith("//") or text[len("file:") :].startswith("///"):
            return Path("/", rest)
        if host in _HERE and slash:
            return Path("/", path)
    name = rest.rpartition("/")[2] or "folder"
    raise ConfigError(
        f"{scheme}://{rest} is not a folder of this machine: expected a local or mounted one, such as "
        f"/mnt/{name} or file:///mnt/{name}"
    )
