"""What can be said of a blood map: how far blood is above noise, how much is lost, and whether halves agree."""

from dataclasses import dataclass

import numpy as np

from usdenoise.pipeline.blood.blood_map import BloodMap

SEEN = 0.5
"""Evidence from which a pixel counts as showing blood: less of what it shows is explained by noise than by blood."""

FEWEST_SEEN = 0.002
"""Share of pixels that must show blood. On phantoms without blood it was at most 0.001."""


@dataclass(frozen=True)
class PictureQuality:
    """Figures of a blood map; None where no blood was found.

    Attributes
    ----------
    seen_share : float
        Share of the pixels that show blood.
    noise_share : float
        Share of the pixels with more noise than blood power.
    blood_to_noise_db : float or None
        10 log10 of the median ratio of blood to noise power over the pixels that show blood; None also where
        there is no noise.
    lost_share : float or None
        Share of the blood's power that the clutter filter took, over the pixels that show blood.
    reproducibility : float or None
        Correlation of the blood maps of two interleaved halves of the frames; None where one is constant.
    """

    seen_share: float
    noise_share: float
    blood_to_noise_db: float | None
    lost_share: float | None
    reproducibility: float | None

    @property
    def sentence(self) -> str:
        """The figures in words."""
        if self.lost_share is None:
            return f"no blood found above the noise; noise dominates in {100 * self.noise_share:.0f} % of the image"
        level = "" if self.blood_to_noise_db is None else f", {_level(self.blood_to_noise_db)}"
        agreement = (
            ""
            if self.reproducibility is None
            else f"; two halves of the scan correlate at {self.reproducibility:.2f}"
        )
        return (
            f"blood in {100 * self.seen_share:.0f} % of the image{level}; noise dominates in "
            f"{100 * self.noise_share:.0f} %; the clutter filter took {100 * self.lost_share:.0f} % of the blood, "
            f"which the blood map makes up for{agreement}"
        )


def judge_picture(blood: BloodMap) -> PictureQuality:
    """Return the figures of a blood map.

    Parameters
    ----------
    blood : BloodMap
        The map.
    """
    power, noise = blood.blood_power, blood.noise_power
    seen = blood.evidence > SEEN
    seen_share, noise_share = float(seen.mean()), float((noise > power).mean())
    if seen_share < FEWEST_SEEN:
        return PictureQuality(seen_share, noise_share, None, None, blood.reproducibility)
    noisy = seen & (noise > 0) & (power > 0)
    level = 10 * np.log10(float(np.median(power[noisy] / noise[noisy]))) if noisy.any() else None
    total = float(power[seen].sum())
    lost = 1 - float((power * blood.kept_share)[seen].sum()) / total if total > 0 else 0.0
    return PictureQuality(seen_share, noise_share, level, lost, blood.reproducibility)


def _level(ratio_db: float) -> str:
    return f"{abs(ratio_db):.0f} dB {'over' if ratio_db >= 0 else 'below'} noise there"
