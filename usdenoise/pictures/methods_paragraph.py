"""The methods paragraph of a report: what was done to a stack, in sentences for a paper, with the sources."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_USDENOISE = "The usdenoise developers. usdenoise, version {version} (software)."
_ESTIMATOR = (
    "J. Zhang, H.-M. Chiu, R. Y. Zhang. Fast and Accurate Estimation of Low-Rank Matrices from Noisy Measurements via "
    "Preconditioned Non-Convex Gradient Descent. AISTATS, 2024."
)
_DESCENTS = {
    "eta-decay": ("preconditioned gradient descent with a geometrically decaying damping", _ESTIMATOR),
    "precgd": (
        "preconditioned gradient descent (PrecGD)",
        "J. Zhang, S. Fattahi, R. Y. Zhang. Preconditioned Gradient Descent for Over-Parameterized Nonconvex Matrix "
        "Factorization. NeurIPS, 2021.",
    ),
    "scaledgd-lambda": (
        "scaled gradient descent with a constant damping (ScaledGD(λ))",
        "X. Xu, Y. Shen, Y. Chi, C. Ma. The Power of Preconditioning in Overparameterized Low-Rank Matrix Sensing. "
        "ICML, 2023.",
    ),
    "scaledgd": (
        "scaled gradient descent (ScaledGD)",
        "T. Tong, C. Ma, Y. Chi. Accelerating Ill-Conditioned Low-Rank Matrix Estimation via Scaled Gradient Descent. "
        "JMLR 22(150), 2021.",
    ),
    "gd": (
        "gradient descent",
        "Y. Chi, Y. M. Lu, Y. Chen. Nonconvex Optimization Meets Low-Rank Matrix Factorization: An Overview. IEEE Trans. "
        "Signal Process. 67(20):5239-5269, 2019.",
    ),
}
_SVD_FILTER = (
    "C. Demené et al. Spatiotemporal Clutter Filtering of Ultrafast Ultrasound Data Highly Increases Doppler and "
    "fUltrasound Sensitivity. IEEE Trans. Med. Imaging 34(11):2271-2285, 2015."
)
_SIMILARITY = (
    "J. Baranger et al. Adaptive Spatiotemporal SVD Clutter Filtering for Ultrafast Doppler Imaging Using Similarity of "
    "Spatial Singular Vectors. IEEE Trans. Med. Imaging 37(7):1574-1586, 2018."
)
_AUTOCORRELATION = (
    "C. Kasai, K. Namekawa, A. Koyano, R. Omoto. Real-Time Two-Dimensional Blood Flow Imaging Using an Autocorrelation "
    "Technique. IEEE Trans. Sonics Ultrason. 32(3):458-464, 1985."
)


_Cite = Callable[[str], str]
"""Function that returns the number of a source in brackets."""


def methods_paragraph(report: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Say what was done to a stack, from its report.

    Parameters
    ----------
    report : mapping
        The report of a job, as it is written to ``<stem>_report.json``.

    Returns
    -------
    text : str
        Sentences for the methods section of a paper, with the numbers of their sources in brackets.
    sources : list of str
        The sources in the order of their numbers, which count from 1.
    """
    sources: list[str] = []

    def cite(source: str) -> str:
        if source not in sources:
            sources.append(source)
        return f" [{sources.index(source) + 1}]"

    software = cite(_USDENOISE.format(version=report["software"]["usdenoise"]))
    sentences = [
        f"{_data(report)} were filtered with usdenoise {report['software']['usdenoise']}{software}.",
        *_prepared(report),
        _estimate(report, cite),
        _removed(report, cite),
        _images(report, cite),
    ]
    return " ".join(sentences), sources


def blocks_of(report: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the records of the windows of a report; of an image, the report itself."""
    blocks: Sequence[Mapping[str, Any]] = report.get("sequence", {}).get("blocks", [report])
    return blocks


def value_range(values: Sequence[float | None], form: str = "{}", unit: str = "", missing: str = "") -> str:
    """Return the smallest and the largest value in words, or the value where these look the same.

    Parameters
    ----------
    values : sequence of float or None
        The values; those that are None do not count.
    form : str
        Format of a value; by default as Python shows it.
    unit : str
        Text after the last value; by default none.
    missing : str
        Text where no value is known; by default none.
    """
    known = [form.format(value) for value in sorted(value for value in values if value is not None)]
    if not known:
        return missing
    return f"{known[0]}{unit}" if known[0] == known[-1] else f"{known[0]} to {known[-1]}{unit}"


def _data(report: Mapping[str, Any]) -> str:
    source = report["input"]
    sizes = dict(zip(source["axes"], source["shape"], strict=True))
    n_frames = sizes.pop("t")
    order = [letter for letter in "zxy" if letter in sizes]
    # I and Q may be stored as numbers of their own, so that another type says nothing.
    kind = "complex frames" if "complex" in source["dtype"] else "frames"
    grid = f"{' × '.join(str(sizes[letter]) for letter in order)} pixels ({' × '.join(order)})"
    spacing = source["spacing_mm"]
    pitches = {f"{spacing[letter]:.4g}" for letter in order if letter in spacing}
    if len(pitches) == 1 and all(letter in spacing for letter in order):
        grid += f" with a pitch of {pitches.pop()} mm"
    elif pitches:
        grid += (
            f" with a pitch of {', '.join(f'{spacing[x]:.4g} mm along {x}' for x in order if x in spacing)}"
        )
    rate = source["frame_rate_hz"]
    timing = "" if rate is None else f" at {rate:.6g} frames per second"
    return f"{n_frames} {kind} of {grid}{timing}"


def _estimate(report: Mapping[str, Any], cite: _Cite) -> str:
    options, source = report["parameters"], report["input"]
    sizes = dict(zip(source["axes"], source["shape"], strict=True))
    n_frames = sizes.pop("t")
    sequence = report.get("sequence")
    matrix = (
        f"The frames were arranged as a matrix of {math.prod(sizes.values())} pixels × {n_frames} frames"
        if sequence is None
        else f"The frames were filtered in windows of {sequence['window']} frames every {sequence['stride']} frames, each "
        "arranged as a matrix of pixels × frames"
    )
    rank = value_range([block["rank"] for block in blocks_of(report)])
    if report["method"] == "svd":
        return f"{matrix}, and its {rank} leading singular components were computed with the full SVD{cite(_SVD_FILTER)}."
    words, source_of_method = _DESCENTS[report["method"]]
    share = "a random sample"
    if sequence is None:
        share = f"a random sample of {100 * report['n_sampled'] / math.prod(source['shape']):.2g} %"
    over = "" if sequence is None else " over all windows"
    refit = ", and then refitted to all observed entries" if options["refit"] == "all" else ""
    return (
        f"{matrix}, whose {rank} leading singular components were estimated from {share} of the entries (seed "
        f'{report["seed"]}) by {words}{cite(source_of_method)} from the start "{options["init"]}", in '
        f"{report['iterations']} iteration{'' if report['iterations'] == 1 else 's'}{over}{refit}."
    )


def _prepared(report: Mapping[str, Any]) -> list[str]:
    """Return what was done before the estimate: frames that were left out, missing entries."""
    sentences = []
    if bad := report["bad_frames"]:
        numbers = ", ".join(str(frame["frame"]) for frame in bad)
        what = "were left out as bad" if report["frames"]["n_left_out"] else "were found to be bad, and kept"
        sentences.append(f"{len(bad)} frames (numbers {numbers}, counted from 0) {what}.")
    n_unobserved = report["n_unobserved"]
    if n_unobserved:
        sentences.append(
            f"{n_unobserved} entries without a finite value, or in frames that were left out, were treated as missing."
        )
    return sentences


def _removed(report: Mapping[str, Any], cite: _Cite) -> str:
    high, cutoff = report["high_cutoff"], report["cutoff"]
    count = value_range([block["low_cutoff"] for block in blocks_of(report)])
    removed = "No component was removed as tissue clutter"
    if count != "0":
        removed = f"The {count} leading components were removed as tissue clutter{cite(_SVD_FILTER)}"
    how = "a number that was set by hand"
    if cutoff["certainty"] != "given":
        how = (
            f"a number that was chosen from the similarity of the spatial singular vectors{cite(_SIMILARITY)}"
        )
    kept = (
        "all other components and the residual were kept"
        if high == "none"
        else f"components up to number {high}, counted from 1, were kept, and the remainder was dropped as noise"
    )
    by_place = ""
    if report["parameters"].get("local_cutoff"):
        by_place = (
            " Components near this number were removed pixel by pixel, as far as they were tissue there."
        )
    return f"{removed}, {how}; {kept}.{by_place}"


def _images(report: Mapping[str, Any], cite: _Cite) -> str:
    factor = report["requested"]["display"]["db_factor"]
    products = report["requested"]["output"]["products"]
    sentences = [
        f"Power Doppler is the mean over frames of the squared magnitude of the filtered signal, shown as {factor:g} log10."
    ]
    if "blood" in products:
        sentences.append(
            "The blood map is the power of the blood before the clutter filter, without the noise; both were estimated "
            "from the autocorrelation of the filtered signal over frames."
        )
    if "directional" in products or "signed" in products:
        sentences.append("Directional power was separated by the sign of the Doppler frequency.")
    if "velocity" in products:
        sentences.append(
            f"Axial velocity follows from the phase of the lag-one autocorrelation{cite(_AUTOCORRELATION)}."
        )
    return " ".join(sentences)
