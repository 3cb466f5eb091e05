"""Runs seeds: `python -m flaremq.testing.sim.raft --seeds 1000`, or one again: `--seed 7`."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import Counter

from flaremq.testing.sim.raft.runner import GroupResult, run_seed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m flaremq.testing.sim.raft", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many seeds to run (default 300)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (default 0)")
    parser.add_argument("--seed", type=int, help="run this seed alone, and print its last events")
    given = parser.parse_args()
    gc.freeze()
    if given.seed is not None:
        result = run_seed(given.seed)
        print(result.plan)
        print("\n".join((*result.last, result.line())))
        return int(bool(result.check))
    began_s, results = time.perf_counter(), list[GroupResult]()
    for seed in range(given.first, given.first + given.seeds):
        result = run_seed(seed)
        results.append(result)
        if result.check:
            print(result.line(), flush=True)
    return _summary(results, time.perf_counter() - began_s)


def _summary(results: list[GroupResult], real_s: float) -> int:
    failed = sum(bool(result.check) for result in results)
    virtual_s = sum(result.virtual_s for result in results)
    print(
        f"{len(results)} seeds, {failed} failed; {60 * len(results) / real_s:.0f} seeds a minute, "
        f"{virtual_s / real_s:.0f} x real time"
    )
    faults = sum((result.faults for result in results), Counter[str]())
    print("faults met: " + ", ".join(f"{kind} {count}" for kind, count in sorted(faults.items())))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
