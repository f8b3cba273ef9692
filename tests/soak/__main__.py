"""``python -m tests.soak --seed N --minutes 10``: 200 scans under random faults, on demand."""

import argparse
import sys
from collections import Counter

from tests.soak.soak import Soak

parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--minutes", type=float, default=10)
parser.add_argument("--scans", type=int, default=200)
parser.add_argument("--faults", type=int, help="stop after that many; by default after the time")
given = parser.parse_args()
soak = Soak(given.seed, given.minutes, given.scans, given.faults)
soak.run()
batches, faults = sum(soak.codes.values()), len(soak.faults)
print(f"seed {soak.seed}: {soak.rounds} rounds of {soak.n_scans} scans, {batches} batches, {faults} faults")
for name, number in sorted(Counter(soak.faults).items()):
    print(f"  {name:<16} {number}")
print("exit codes:", ", ".join(f"{code} ({number})" for code, number in sorted(soak.codes.items())))
print("\n".join(soak.findings) or "equal to the undisturbed batch in every round, with no file left over")
sys.exit(bool(soak.findings))
