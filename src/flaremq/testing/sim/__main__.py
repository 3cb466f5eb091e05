"""Runs seeds: `python -m flaremq.testing.sim --seeds 100`, or one again: `--seed 7`."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final

from flaremq.testing.sim.runner import RunResult, run_seed
from flaremq.testing.sim.shrink import Shrinker, write_test

FAILED_ONCE: Final = (54, 88, 134)
"""Seeds that have found something: they run before all others. One that was found by a plan that draws no
longer give stays as a test."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m flaremq.testing.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run (default 100)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (default 0)")
    parser.add_argument("--seed", type=int, help="run this seed alone, and print its last events")
    parser.add_argument(
        "--shrink", type=Path, help="make the first failure smaller, and write it as this test"
    )
    parser.add_argument(
        "--twice", type=int, default=0, help="run every n-th seed twice, and compare the hashes"
    )
    parser.add_argument("--groups", action="store_true", help="let each broker be a Raft group")
    given = parser.parse_args()
    os.environ["TZ"] = "UTC"  # Files of the index are named by local time.
    time.tzset()
    logging.getLogger("flaremq").setLevel(logging.CRITICAL + 1)
    gc.collect()
    gc.freeze()
    commit = _commit()
    if given.seed is not None:
        result = run_seed(given.seed, groups=given.groups)
        print(result.plan)
        print("\n".join(result.last))
        print(result.line(commit))
        return _ended([result], given.shrink, commit)
    began_s, cpu_s, results = time.perf_counter(), time.process_time(), list[RunResult]()
    different = 0
    asked = range(given.first, given.first + given.seeds)
    for seed in (*(each for each in FAILED_ONCE if each not in asked), *asked):
        result = run_seed(seed, groups=given.groups)
        print(result.line(commit), flush=True)
        if result.check:
            print("\n".join(result.last))
        if (
            given.twice
            and seed % given.twice == 0
            and run_seed(seed, groups=given.groups).digest != result.digest
        ):
            different += 1
            print(
                f"seed={seed} FAILED: a second run gave other events: some code asks for real chance or time"
            )
        results.append(result)
    _summary(results, time.perf_counter() - began_s, time.process_time() - cpu_s)
    return _ended(results, given.shrink, commit) or int(different > 0)


def _summary(results: list[RunResult], real_s: float, cpu_s: float) -> None:
    failed = sum(bool(result.check) for result in results)
    virtual_s = sum(result.virtual_s for result in results)
    print(
        f"{len(results)} seeds, {failed} failed; {60 * len(results) / real_s:.0f} seeds a minute "
        f"({60 * len(results) / cpu_s:.0f} by CPU time), {virtual_s / real_s:.0f} x real time"
    )
    faults = sum((result.faults for result in results), Counter[str]())
    print("faults met: " + ", ".join(f"{kind} {count}" for kind, count in sorted(faults.items())))
    met = sum((result.met for result in results), Counter[str]())
    print("clients met: " + ", ".join(f"{what} {count}" for what, count in sorted(met.items())))


def _ended(results: list[RunResult], test: Path | None, commit: str) -> int:
    failed = [result for result in results if result.check]
    if failed and test is not None:
        shrinker = Shrinker()
        small = shrinker.smallest(failed[0])
        write_test(small, test, commit)
        print(f"{test}: {small.error}, after {shrinker.runs} runs")
    return int(bool(failed))


def _commit() -> str:
    try:
        asked = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


if __name__ == "__main__":
    sys.exit(main())
