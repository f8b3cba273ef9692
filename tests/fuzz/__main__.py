"""The command line: see the package."""

import argparse
import sys
import time

from tests.fuzz.originals import READERS
from tests.fuzz.reading import ChildReader, outcomes


def main() -> int:
    """Read mutated files of every reader that was asked for; 1 if one was neither loaded nor refused."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description="Read mutated files of every reader."
    )
    parser.add_argument("--cases", type=int, default=1000, metavar="N", help="files of each reader (1000)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the mutations (0)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first case (0)")
    parser.add_argument(
        "--reader", action="append", choices=list(READERS), help="one reader; may be repeated"
    )
    options = parser.parse_args()
    n_failures = 0
    for reader in options.reader or READERS:
        began = time.monotonic()
        numbers = range(options.first, options.first + options.cases)
        with ChildReader() as child:
            broken = [one for one in outcomes(child, reader, options.seed, numbers) if not one.is_sound]
        words = f"{reader}: {len(numbers)} files, {len(broken)} failures, {time.monotonic() - began:.0f} s"
        sys.stdout.write("".join(f"{one}\n" for one in broken) + f"{words}\n")
        sys.stdout.flush()
        n_failures += len(broken)
    return 1 if n_failures else 0


if __name__ == "__main__":
    sys.exit(main())
