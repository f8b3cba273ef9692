"""A report with fields that a test sets, and a reader of pages."""

from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import numpy as np

from usdenoise.report.charts import Chart, template
from usdenoise.report.record import Report
from usdenoise.report.scan_page import Picture, scan_page
from usdenoise.system.text import from_plain

EVIL = "<script>alert('x')</script> \"quoted\" & 'single' \x1b[31mred\x07 " + "long" * 1000
"""Text that a page must show and must not obey."""


LINE = {"objective": 1.0, "damping": None, "step": None, "halvings": 0, "seconds": 0.1}
BAD_FRAME = {"time_s": None, "reason": "outlier", "score": 1.0}
BLOCK = {"time": 0.0, "n_frames": 20, "complete": True, "low_cutoff": 2, "is_bad": False}


def report(**fields: Any) -> Report:
    """The report of a small run, with some fields replaced; mappings add to those of the report."""
    values: dict[str, Any] = {
        "method": "eta-decay", "rank": 4, "sampling": 0.5, "seed": 7, "low_cutoff": 2, "high_cutoff": "none",
        "iterations": 3, "passes": 4, "stop_reason": "the held-out error stopped falling",
        "held_out_rmse": 0.51, "held_out_allowed": 0.5, "held_out_ratio": 1.02, "residual_rms": 0.4,
        "blood": {
            "vessel_share": 0.19, "noise_share": 0.75, "blood_to_noise_db": 8.1, "lost_share": 0.3,
            "reproducibility": 0.82, "tissue_share": 0.02, "noisy_share": 0.0, "missing_share": 0.01,
            "speckle_likeness": 0.05, "quiet_correlation": 0.02, "steadiness": 0.9, "errors": 80.0,
            "sentence": "vessels in 19 % of the image",
        },
        "reproducibility": 0.82, "fit": "as-full-svd", "estimate": "as good as the full SVD", "start_caution": "",
        "verdict": "vessels in 19 % of the image; estimate: as good as the full SVD",
        "doubts": [],
        "cutoff": {
            "low": 2, "rule": "similarity-falls", "reason": "from component 2 on, the similarity falls",
            "certainty": "sure", "suggested": 2, "two_squares": [2, 4], "similarity_profile": [0.9, 0.8, 0.1, 0.05],
            "similarity_threshold": 0.5,
            "doppler_cycles_a_frame": [0.0, 0.0, 0.1, 0.2],
        },
        "bad_frames": [],
        "frames": {
            "n_bad": 0, "n_left_out": 0, "n_entries_left_out": 0, "displacement": None, "displacement_unit": "um",
            "rates_hz": [], "sentence": "",
        },
        "noise_floor": 0.32, "n_sampled": 2400, "n_subset_pixels": 60, "n_sample_pixels": 100,
        "n_unobserved": 0, "n_silent": 0, "n_bad_pixels": 0, "bad_pixels": [],
        "n_saturated": 0, "flicker": {},
        "trace": [{**LINE, "iteration": k, "held_out_rmse": 0.6 - 0.03 * k} for k in range(4)],
        "singular_values": [100.0, 10.0, 1.0, 0.1],
        "parameters": {"refit": "all", "init": "pixels", "threads": None},
        "timings_s": {"load": 0.1, "total": 1.5}, "peak_memory_bytes": 150 * 2**20,
        "input": {
            "path": "scans/x.h5", "sha256": "ab" * 32, "dataset": "iq", "shape": [40, 12, 10], "axes": "tzx",
            "dtype": "complex64", "frame_rate_hz": 500.0, "spacing_mm": {"z": 0.1, "x": 0.1}, "assumptions": [],
        },
        "output": {"denoised": "out/x_denoised.h5", "report": "out/x_report.json"}, "notes": [],
        "software": {"usdenoise": "9.8.7", "numpy": "2.2"},
        "command": ["usdenoise", "run", "scans/my scan.h5"],
        "requested": {"display": {"db_factor": 10.0}, "output": {"products": ["power", "blood"]}},
        "sequence": None, "output_bytes": {},
    }  # fmt: skip
    merged = {"blood", "cutoff", "frames", "input", "parameters"}
    values |= {name: {**values[name], **value} if name in merged else value for name, value in fields.items()}
    values["bad_frames"] = [{**BAD_FRAME, **bad} for bad in values["bad_frames"]]
    if values["sequence"] is not None:
        usual = {"time": [], "time_unit": "s", "sampled_frames": 40}
        blocks = [{**BLOCK, **block} for block in values["sequence"]["blocks"]]
        values["sequence"] = {**usual, **values["sequence"], "blocks": blocks}
    return from_plain(Report, values)


def hostile_page(png: bytes) -> str:
    """The page of a scan with EVIL wherever a file or a user has a say."""
    source = {"path": EVIL, "dataset": EVIL, "dtype": EVIL, "assumptions": [EVIL]}
    fields = {
        "input": source, "notes": [EVIL], "estimate": EVIL, "stop_reason": EVIL, "command": ["usdenoise", EVIL],
        "software": {"usdenoise": EVIL}, "output": {"report": f"out/{EVIL}"}, "parameters": {"init": EVIL, "refit": EVIL},
        "cutoff": {"reason": EVIL},
        "bad_frames": [{"frame": 3, "reason": EVIL, "score": 1.0}],
    }  # fmt: skip
    chart = Chart(EVIL, EVIL, EVIL, [0, 1], [0, 1], (0.5, EVIL))
    return scan_page(EVIL, report(**fields), [Picture(EVIL, png, EVIL, EVIL)], [chart])


def live_page(name: str, n_blocks: int, **content: Any) -> str:
    """The page of a live session that runs."""
    state = {"times": [0.0] * n_blocks, "bad": np.zeros(n_blocks, bool), "name": name, "why": ""}
    update = SimpleNamespace(**state, blood_to_noise_db=None, unsteadiness=None)
    usual = {
        "n_waiting": 0,
        "delay_s": 0.5,
        "speed": "100 frames/s",
        "motion": "0.14 pixels",
        "activations": [],
    }
    content = {**usual, "remarks": [], "final_page": None, "is_finished": None, **content}
    return template("scan.html").render(name=name, report=None, update=update, **content)


class Page(HTMLParser):
    """The elements of a page and the text that it shows."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._parts: list[str] = []
        self._hidden = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._hidden = tag in ("style", "script", "title")

    def handle_endtag(self, tag: str) -> None:
        self._hidden = False

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self._parts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self._parts).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]
