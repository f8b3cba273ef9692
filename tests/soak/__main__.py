"""``python -m tests.soak --seed N --minutes 10``: 200 scans under random faults, on demand."""

import argparse
import sys

from tests.soak.soak import soak


def main() -> None:
    """Run a soak, print its figures, and exit with 1 if it found anything."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--scans", type=int, default=200)
    parser.add_argument("--faults", type=int, help="stop after that many; by default after the time")
    given = parser.parse_args()
    figures = soak(given.seed, 60 * given.minutes, given.scans, given.faults)
    print(
        f"seed {figures.seed}: {figures.seconds / 60:.1f} minutes, {figures.rounds} rounds of {figures.scans} scans, "
        f"{figures.batches} batches, {sum(figures.faults.values())} faults"
    )
    print(
        f"disk full: {'a small disk' if figures.disk else 'no disk can be mounted here, so a limit on the size of files'}"
    )
    for name, number in sorted(figures.faults.items()):
        print(f"  {name:<16} {number}")
    print(f"exit codes: {', '.join(f'{code} ({number})' for code, number in sorted(figures.codes.items()))}")
    print(
        "\n".join(figures.findings) or "equal to the undisturbed batch in every round, with no file left over"
    )
    sys.exit(bool(figures.findings))


main()
