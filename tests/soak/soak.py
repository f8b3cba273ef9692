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
from tests.soak.faults import FAULTS, Target
from tests.soak.scans import differences, write_scans

OPTIONS = ("--rank", "6", "--iterations", "4", "--low-cutoff", "1", "--jobs", "2", "-q")
# Shells say 130 and 143 also where the signal itself ends the process, as at the very end of the interpreter.
_CODES = {0, 1, 130, 143, -2, -9, -15}
_PATIENCE_S = 1200.0
"""Time in s in which a batch of 200 scans must end; on a busy machine one takes several minutes."""


@dataclass
class Soak:
    """Rounds of a batch under faults until the time is over, and at least one.

    Attributes
    ----------
    seed : int
        Seed of the scans and of all choices.
    minutes : float
        Time after which no more faults strike and no more rounds begin.
    n_scans : int
        Number of scans of each round.
    most_faults : int or None
        Number of faults after which no more strike and no more rounds begin; None if only the time counts.
    kinds : tuple of str
        Names of the faults that may strike.
    rounds : int
        Number of rounds so far.
    faults : list of str
        Names of the faults so far.
    codes : Counter of int
        How often a batch ended with an exit code.
    findings : list of str
        What was wrong. It is empty if every round ended equal to the undisturbed batch.
    """

    seed: int
    minutes: float
    n_scans: int = 200
    most_faults: int | None = None
    kinds: tuple[str, ...] = tuple(FAULTS)
    rounds: int = 0
    faults: list[str] = field(default_factory=list)
    codes: Counter[int] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Run all rounds."""
        self._choices = random.Random(self.seed)
        with tempfile.TemporaryDirectory(prefix="usdenoise-soak-") as scratch:
            inputs, alone = Path(scratch, "scans"), Path(scratch, "alone")
            scans = write_scans(inputs, self.n_scans, self.seed)
            undisturbed = self._end(start("batch", inputs, "-o", alone, *OPTIONS, before=powerless))
            if undisturbed.returncode != 0:
                raise RuntimeError(f"the undisturbed batch failed: {undisturbed.stderr}")
            self._deadline = time.monotonic() + 60 * self.minutes
            while not self.rounds or (self._goes_on() and not self.findings):
                self.rounds += 1
                output = Path(scratch, f"round{self.rounds}")
                self._round(inputs, scans, output)
                for difference in [f"{name} is left over" for name in temporary(output)] + differences(
                    alone, output
                ):
                    self._note(difference)
                shutil.rmtree(output)

    def _goes_on(self) -> bool:
        few = self.most_faults is None or len(self.faults) < self.most_faults
        return few and time.monotonic() < self._deadline

    def _round(self, inputs: Path, scans: list[Path], output: Path) -> None:
        """Start a batch again and again while faults strike it, and at last once without faults."""
        command = ("batch", inputs, "-o", output, *OPTIONS)
        while self._goes_on():
            batch = start(*command, before=powerless)
            while self._goes_on() and not _ends_within(batch, self._choices.uniform(0.2, 4.0)):
                name = self._choices.choice(self.kinds)
                self.faults.append(name)
                FAULTS[name](Target(batch, scans, output, self._choices))
            if self._end(batch).returncode == 0:
                break
        last = self._end(start(*command, before=powerless))
        if last.returncode != 0:
            self._note(f"the last batch ends with {last.returncode}: {last.stderr}")

    def _end(self, batch: "subprocess.Popen[str]") -> "subprocess.CompletedProcess[str]":
        """Wait for the end of a batch, and note an exit code or a text that it may not have."""
        try:
            done = finish(batch, _PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(batch.pid, signal.SIGKILL)
            self._note("the batch hangs")
            done = finish(batch)
        self.codes[done.returncode] += 1
        if done.returncode not in _CODES:
            self._note(f"exit code {done.returncode}: {done.stderr}")
        # The interpreter prints a signal that a library caught.
        if "Traceback" in done.stderr and "Exception ignored" not in done.stderr and done.returncode != -9:
            self._note(f"a traceback with exit code {done.returncode}: {done.stderr}")
        return done

    def _note(self, finding: str) -> None:
        """Keep a finding with the faults before it, and print it, as a soak is long."""
        self.findings.append(f"round {self.rounds}: {finding} (after {', '.join(self.faults[-4:])})")
        print(self.findings[-1], file=sys.stderr, flush=True)


def _ends_within(process: "subprocess.Popen[str]", seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True
