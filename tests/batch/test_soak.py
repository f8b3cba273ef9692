"""The soak at its smallest: a batch that is struck and started again ends as one that was left alone.

The whole one is run on demand.
"""

from pathlib import Path

from tests.soak.faults import FAULTS
from tests.soak.scans import differences, write_scans
from tests.soak.soak import Soak


def test_a_batch_under_faults() -> None:
    # With this seed the fault ends the batch, which is resumed.
    soak = Soak(seed=3, minutes=5, n_scans=4, most_faults=1)
    soak.run()
    assert soak.findings == []
    assert len(soak.faults) == 1
    assert set(soak.faults) <= set(FAULTS)
    # A fault that always comes after the end would prove nothing.
    assert sum(soak.codes.values()) > 2


def test_a_soak_finds_what_differs(tmp_path: Path) -> None:
    for name in ("one", "other"):
        for path in write_scans(tmp_path / name, 6, seed=1):
            path.rename(path.with_name(f"{path.stem}_denoised{path.suffix}"))
        (tmp_path / name / "x.png").write_bytes(b"the same")
    assert differences(tmp_path / "one", tmp_path / "other") == []
    (tmp_path / "other/x.png").write_bytes(b"not that")
    (tmp_path / "other/left").touch()
    for path in write_scans(tmp_path / "third", 6, seed=2):
        if path.suffix in (".h5", ".mat", ".zarr"):
            place = tmp_path / "other" / path.parent.name / f"{path.stem}_denoised{path.suffix}"
            path.rename(place.with_name("new"))
            place.rename(tmp_path / f"{place.name}-before")
            place.with_name("new").rename(place)
    assert differences(tmp_path / "one", tmp_path / "other") == [
        "left is in one folder only",
        "the bytes of x.png differ",
        "the numbers of day0/scan0_denoised.h5:iq differ",
        "the numbers of day1/scan1_denoised.mat:IQ differ",
        "the numbers of day3/scan3_denoised.zarr:iq differ",
    ]
