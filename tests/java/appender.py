"""A process that appends with our store until it is killed.

    python -m tests.java.appender FOLDER FLUSH FIRST

It prints the number of each message once its put has returned, so whoever reads that line may count on it.
"""

import itertools
import subprocess
import sys
from pathlib import Path

from tests.java.samples import a_message
from tests.java.sides import SMALL, new_message, our_store

REPOSITORY = Path(__file__).parent.parent.parent


def kill_while_appending(root: Path, flush: str, count: int, first: int = 0) -> int:
    """Let another process append and kill it after so many puts; gives the last one that had returned."""
    command = [sys.executable, "-m", "tests.java.appender", str(root), flush, str(first)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        begun = list(itertools.islice(process.stdout, count))
        process.kill()
        rest = [line for line in process.stdout if line.endswith("\n")]
    return int((begun + rest)[-1])


def main(root: Path, flush: str, first: int) -> None:
    with our_store(root, SMALL | {"flushDiskType": flush}) as store:
        for number in itertools.count(first):
            store.put(new_message(a_message(number)))
            print(number, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
