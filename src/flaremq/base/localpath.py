"""Paths given by users: local or mounted folders, but no addresses of remote storage.

`Path` takes s3a://bucket/x for a folder called "s3a:" and would create it. An archive would then look
written, but not be where the user expects it (docs/decisions/0009).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from flaremq.base.errors import ConfigError

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", re.DOTALL)
_HERE: Final = ("", "localhost")


def local_path(given: str | Path) -> Path:
    """The absolute path. file:/x, file:///x and file://localhost/x are /x.

    Raises ConfigError for any other scheme. Write `./s3a:/x` for a folder that really has this name.
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
