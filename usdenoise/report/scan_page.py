"""The page of a scan or of a session, live or finished: pictures, curves and the report. Template: templates/scan.html."""

import io
import math
import shlex
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from usdenoise.options.job_options import ModelKeywords
from usdenoise.pipeline.fit_result import CLOSE
from usdenoise.report.charts import Carpet, Chart, template
from usdenoise.report.record import ModelReport, Report
from usdenoise.report.sentences import conditional, methods_paragraph, remarks
from usdenoise.system.text import counted

PICTURE_BYTES = 2_000_000
"""Bytes of all pictures of a page. In base64 they are 2.7 MB, so that the page is smaller than 3 MB."""

_LEAST_WIDTH = 600
"""Width in pixels below which a picture is not made smaller: its text could not be read."""

_MOST_ANSWERS = 8
"""Active pixels and regions that are numbers at the top: two rows. The sections of the page have all."""

_LEAST_TRACE = 3
"""Points from which the error over the iterations is a curve."""


@dataclass(frozen=True)
class Picture:
    """A picture of a page.

    Attributes
    ----------
    title : str
        What it shows, in a few words.
    png : bytes
        The encoded picture.
    text : str
        The picture in words, with its numbers, for who cannot see it.
    caption : str
        Text below the picture.
    """

    title: str
    png: bytes
    text: str
    caption: str

    def within(self, most: int) -> "Picture":
        """Return the picture in at most a number of bytes, with fewer colours and then fewer pixels where it has to be.

        Parameters
        ----------
        most : int
            Bytes that each PNG may have. A picture of fewer than 600 pixels across is not made smaller.
        """
        if len(self.png) <= most:
            return self
        from PIL import Image

        with warnings.catch_warnings():
            # A large picture is one of our own.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(self.png)).convert("RGB")
        while True:
            buffer = io.BytesIO()
            image.quantize(256).save(buffer, "PNG", optimize=True)
            if buffer.tell() <= most or image.width < _LEAST_WIDTH:
                return replace(self, png=buffer.getvalue())
            image = image.resize((image.width * 3 // 4, image.height * 3 // 4))


@dataclass(frozen=True)
class ActivationSection:
    """What the page shows of the activation by a type of event.

    Attributes
    ----------
    trial_type : str
        The type, or "any type".
    picture : Picture
        The map.
    charts : sequence of Chart
        The expected response, and the course of the active pixels.
    remarks : str
        Sentences on the smoothing that would show more, and on how the tissue moves with the events; empty by default.
    """

    trial_type: str
    picture: Picture
    charts: Sequence[Chart]
    remarks: str = ""


def scan_page(
    name: str,
    report: ModelReport,
    pictures: Sequence[Picture],
    charts: Sequence[Chart],
    frame_charts: Sequence[Chart | Carpet] = (),
    block_charts: Mapping[str, Sequence[Chart | Carpet]] = MappingProxyType({}),
    activations: Sequence[ActivationSection] = (),
    regions: Picture | None = None,
) -> str:
    """Return the page of a scan, which needs no other file and no network.

    Parameters
    ----------
    name : str
        Name of the scan.
    report : ModelReport
        The report of the job; a :class:`Report` where stacks were filtered.
    pictures : sequence of Picture
        The pictures, the most important first.
    charts : sequence of Chart
        Curves that only the result has, such as the noise over depth.
    frame_charts : sequence of Chart or Carpet
        Curves and images over the frames; by default none.
    block_charts : mapping
        Heading -> curves and images over the blocks of a session, or of each position of the probe; by default none.
    activations : sequence of ActivationSection
        Sections for each type of event; by default none.
    regions : Picture, optional
        The picture of the regions; by default there are none.

    Returns
    -------
    str
        HTML. Every text is escaped.
    """
    source, command, asked = report.input, report.command, report.requested.get("session", {})
    options = {name: asked[name] for name in ("events", *ModelKeywords.__annotations__) if name in asked}
    doubted, remarked = [doubt.sentence for doubt in report.doubts], remarks(report)
    methods, estimate = {"In full": methods_paragraph(report)}, ""
    cutoff_charts, estimate_charts = list[Chart](), list[Chart]()
    if isinstance(report, Report):
        estimate, cutoff_charts = report.estimate, _cutoff_charts(report)
        estimate_charts = [*_error_charts(report), *charts]
        options = dict(report.parameters)
        methods = {"In short": methods_paragraph(report, is_short=True), **methods}
        if report.method != "svd":
            subset = f"{report.sampling:g} of a pixel subset"
            options["sampling"] = f"{subset}, {report.sampled_share} of all entries"
    if report.sequence is not None and report.sequence.alignment:
        remarked = [f"alignment: {report.sequence.alignment}", *remarked]
    told = [*doubted, *remarked, estimate]
    sentences = [part for part in report.sentences if part.removeprefix("estimate: ") not in told]
    return template("scan.html").render(
        name=name,
        report=report,
        verdict=_sentence(conditional("; ".join(sentences), report)),
        doubts=[_sentence(sentence) for sentence in doubted],
        remarks=[_sentence(remark) for remark in remarked],
        answers=_answers_at_top(report),
        most_error=CLOSE,
        pictures=[picture.within(PICTURE_BYTES // max(1, len(pictures))) for picture in pictures],
        cutoff_charts=cutoff_charts,
        estimate_charts=estimate_charts,
        block_charts=block_charts,
        activations=activations,
        regions=regions,
        frame_charts=frame_charts,
        pitch=", ".join(f"{letter} {value:.4g} mm" for letter, value in source.spacing_mm.items()),
        options=options,
        methods=methods,
        command=None if command is None else shlex.join(command),
        files=[Path(path).name for path in report.output.values()],
    )


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith(".") else f"{text}."


def _answers_at_top(report: ModelReport) -> list[tuple[str, str, str]]:
    """Return what was asked of a session as numbers: active pixels, and the responses of regions or their ranges."""
    if report.sequence is None:
        return []
    answers = []
    for each in report.sequence.activation:
        threshold = each.sentence.partition(" with ")[2] or each.sentence
        answers.append((f"Active pixels: {each.name}", str(each.n_active), threshold))
    for region in report.sequence.named_regions:
        pixels = counted(region.n_pixels, "pixel")
        answers += [
            (f"Response of {region.title}", each.percent, f"to {each.trial_type}: {each.test}; {pixels}")
            for each in region.responses
        ] or [(f"Range of {region.title}", region.range, f"against its mean, in the good blocks; {pixels}")]
    return answers[:_MOST_ANSWERS]


def _cutoff_charts(report: Report) -> list[Chart]:
    values, low = report.singular_values, report.low_cutoff
    if not values or not values[0] > 0:
        return []
    mark = low + 0.5, f"{low} removed"
    decay = [20 * math.log10(value / values[0]) if value > 0 else None for value in values]
    numbers = range(1, len(values) + 1)
    charts = [Chart("Singular values", "component", "dB below the first", numbers, decay, mark)]
    if profile := report.cutoff.similarity_profile:
        title = "Similarity of each component to the leading ones"
        numbers = range(1, len(profile) + 1)
        level = report.cutoff.similarity_threshold, "threshold"
        charts.append(Chart(title, "component", "similarity", numbers, profile, mark, level))
    return charts


def _error_charts(report: Report) -> list[Chart]:
    numbers, errors = [line.iteration for line in report.trace], [line.held_out_rmse for line in report.trace]
    if len(errors) < _LEAST_TRACE or not any(error is not None for error in errors):
        return []
    title = "Held-out error over the iterations"
    return [Chart(title, "iteration", "rms error, units of the file", numbers, errors)]
