"""A batch under faults, resumed until it is done, must equal a batch that was left alone."""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.batch.shared import finish, powerless, start, temporary
from tests.soak.faults import FAULTS, Target, mount_small_disk, unmount
from tests.soak.scans import differences, write_scans

OPTIONS = ("--rank", "6", "--iterations", "4", "--low-cutoff", "1", "--jobs", "2", "-q")
# Shells say 130 and 143 also where the signal itself ends the process, as at the very end of the interpreter.
_CODES = {0, 1, 130, 143, -2, -9, -15}
_PATIENCE_S = 1200.0
"""Time in s in which a batch of 200 scans must end; on a busy machine one takes several minutes."""


@dataclass
class Figures:
    """What a soak did, and what it found."""

    seed: int
    scans: int
    seconds: float = 0.0
    disk: bool = False
    rounds: int = 0
    batches: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    codes: Counter[int] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    history: list[str] = field(default_factory=list)

    def go_on(self, deadline: float, most_faults: int | None) -> bool:
        """Whether more faults may strike."""
        few = most_faults is None or sum(self.faults.values()) < most_faults
        return few and time.monotonic() < deadline

    def note(self, finding: str) -> None:
        """Keep a finding with the faults before it, and print it, as a soak is long."""
        self.findings.append(f"round {self.rounds}: {finding} (after {', '.join(self.history[-4:])})")
        sys.stderr.write(self.findings[-1] + "\n")
        sys.stderr.flush()


def soak(seed: int, seconds: float, scans: int = 200, most_faults: int | None = None) -> Figures:
    """Run rounds of a batch under faults until the time is over, and at least one.

    Parameters
    ----------
    seed : int
        Seed of the scans and of all choices.
    seconds : float
        Time after which no more faults strike and no more rounds begin.
    scans : int
        Number of scans of each round.
    most_faults : int, optional
        Number of faults after which no more strike and no more rounds begin; by default only the time counts.

    Returns
    -------
    Figures
        Without findings if every round ended equal to the undisturbed batch.
    """
    figures, began = Figures(seed, scans), time.monotonic()
    choices = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="usdenoise-soak-") as scratch:
        # Threads that exist already would not see the disk.
        disk = mount_small_disk(Path(scratch) / "disk")
        figures.disk = disk is not None
        inputs = Path(scratch) / "scans"
        try:
            places = write_scans(inputs, scans, seed)
            alone = Path(scratch) / "alone"
            undisturbed = finish(start("batch", inputs, "-o", alone, *OPTIONS, before=powerless), _PATIENCE_S)
            if undisturbed.returncode != 0:
                raise RuntimeError(f"the undisturbed batch failed: {undisturbed.stderr}")
            # The time of the faults does not count the undisturbed batch.
            seconds += time.monotonic() - began
            while not figures.rounds or figures.go_on(began + seconds, most_faults):
                figures.rounds += 1
                output = (disk or Path(scratch)) / f"round{figures.rounds}"
                _round(inputs, places, output, disk, choices, began + seconds, most_faults, figures)
                for name in temporary(output):
                    figures.note(f"{name} is left over")
                for difference in differences(alone, output):
                    figures.note(difference)
                if figures.findings:
                    break
                shutil.rmtree(output)
        finally:
            if disk is not None:
                unmount(disk)
    figures.seconds = time.monotonic() - began
    return figures


def _round(
    inputs: Path,
    places: list[Path],
    output: Path,
    disk: Path | None,
    choices: random.Random,
    deadline: float,
    most_faults: int | None,
    figures: Figures,
) -> None:
    """Start a batch again and again while faults strike it, and at last once without faults."""
    command = ("batch", inputs, "-o", output, *OPTIONS)
    while figures.go_on(deadline, most_faults):
        process = start(*command, before=powerless)
        target = Target(process, places, output, disk, choices)
        figures.batches += 1
        ended = False
        while figures.go_on(deadline, most_faults):
            if _ends_within(process, choices.uniform(0.2, 4.0)):
                ended = True
                break
            name = choices.choice(list(FAULTS))
            figures.history.append(name)
            FAULTS[name](target)
            figures.faults[name] += 1
        done = _checked(process, figures)
        if ended and done.returncode == 0:
            break
    figures.batches += 1
    last = _checked(start(*command, before=powerless), figures)
    if last.returncode != 0:
        figures.note(f"the last batch ends with {last.returncode}: {last.stdout}")


def _ends_within(process: "subprocess.Popen[str]", seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _checked(process: "subprocess.Popen[str]", figures: Figures) -> "subprocess.CompletedProcess[str]":
    """Wait for the end of a batch, and note an exit code or a text that it may not have."""
    try:
        done = finish(process, _PATIENCE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        figures.note("the batch hangs")
        done = finish(process)
    figures.codes[done.returncode] += 1
    if done.returncode not in _CODES:
        figures.note(f"exit code {done.returncode}: {done.stderr}")
    elif "Traceback" in done.stderr and done.returncode != -9:
        figures.note(f"a traceback with exit code {done.returncode}: {done.stderr}")
    return done
