"""Killed at random moments and started again each time, a batch ends as if it had been left alone.

The soak does it for as long as one likes.
"""

import random
import time
from pathlib import Path

from tests.batch.shared import files, finish, results, shell, start, write_scan
from tests.soak.scans import differences

SCANS, KILLS = 24, 4
# With --jobs 3 where a machine has two processors, and 2 at the end: results do not depend on it.
OPTIONS = ("--rank", "4", "--iterations", "3", "-qq")


def test_a_batch_that_is_killed_again_and_again(tmp_path: Path) -> None:
    names = [f"{'even/' if number % 2 == 0 else ''}scan{number}" for number in range(SCANS)]
    for number, name in enumerate(names):
        write_scan(tmp_path / "scans" / f"{name}.h5", number)
    alone, killed = tmp_path / "alone", tmp_path / "killed"
    undisturbed = shell("batch", tmp_path / "scans", "-o", alone, *OPTIONS, "--jobs", 2)
    assert (undisturbed.returncode, undisturbed.stdout, undisturbed.stderr) == (0, "", "")

    moments = random.Random(7)
    done = []
    for _ in range(KILLS):
        process = start("batch", tmp_path / "scans", "-o", killed, *OPTIONS, "--jobs", 3)
        begun = len(whole(killed))
        # Some moments fall into the start, the others after a first or second result.
        more = moments.randint(0, 2)
        target, delay = begun + more, moments.uniform(0, 0.25 if more else 1.5)
        while len(whole(killed)) < target and process.poll() is None:
            time.sleep(0.02)
        time.sleep(delay)
        assert process.poll() is None
        process.kill()
        finish(process)
        done.append(len(whole(killed)))
    assert done == sorted(done)
    assert done[-1] < SCANS

    last = shell("batch", tmp_path / "scans", "-o", killed, *OPTIONS, "--jobs", 2, "--json")
    assert last.returncode == 0
    assert f'"skipped": {done[-1]}' in last.stdout.splitlines()[-1]
    assert differences(alone, killed) == []
    assert set(results(names)) <= set(files(alone))


def whole(out: Path) -> list[Path]:
    return list(out.rglob("scan*_report.json"))
