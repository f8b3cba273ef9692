"""Files whose compressed data claim, or expand to, much more than they are."""

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import zarr

from tests.fuzz import bombs
from tests.fuzz.originals import CODECS
from usdenoise import load
from usdenoise.errors import InputError
from usdenoise.formats.damage import HARMLESS_BYTES, LIKELY_EXPANSION, MAX_EXPANSION, claims_too_much
from usdenoise.formats.matlab import matlab_tags
from usdenoise.formats.zarr import zarr_expansion

_RNG = np.random.default_rng(2)
IQ = (_RNG.standard_normal((9, 4, 3)) + 1j * _RNG.standard_normal((9, 4, 3))).astype(np.complex64)


@pytest.mark.parametrize(("version", "codec"), CODECS)
def test_a_chunk_of_zarr_that_expands_to_more(
    version: int, codec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zarr_expansion, "HARMLESS_BYTES", 100)
    made = CODECS[version, codec]
    path = tmp_path / "x.zarr"
    zarr.create_array(path, data=IQ, chunks=(4, 4, 3), compressors=[made], zarr_format=version)
    assert np.array_equal(load(path).iq, IQ)
    chunk = path / ("c/1/0/0" if version == 3 else "1.0.0")
    chunk.write_bytes(CODECS[2, codec].encode(bytes(100_000)))
    says = r"the chunk .* expands to more than the 2432 bytes .*corrupt; write it again"
    with pytest.raises(InputError, match=says):
        load(path)
    # The frames of the other chunks are sound.
    assert np.array_equal(load(path, frames=slice(0, 4)).iq, IQ[:4])


def test_what_a_file_may_claim() -> None:
    assert not claims_too_much(1000 * MAX_EXPANSION, 1000)
    assert claims_too_much(1000 * MAX_EXPANSION + 1, 1000)
    assert not claims_too_much(HARMLESS_BYTES, 1 << 20)
    assert claims_too_much(HARMLESS_BYTES + 1, 1 << 20)
    assert not claims_too_much(LIKELY_EXPANSION << 22, 1 << 22)
    assert claims_too_much((LIKELY_EXPANSION << 22) + 1, 1 << 22)


def test_npz_of_zeros_that_claim_gigabytes(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(bombs.npz_of_zeros((1 << 10, 1 << 9, 768)))
    says = r"'iq.npy' in .*x.npz claims 3221225472 bytes .*truncated or corrupt"
    with pytest.raises(InputError, match=says):
        load(path)


def mat_of(tmp_path: Path, expanded: bytes) -> Path:
    """A version 5 file of one compressed element."""
    path = tmp_path / "x.mat"
    scipy.io.savemat(path, {"IQ": IQ})
    element = zlib.compress(expanded)
    path.write_bytes(path.read_bytes()[:128] + struct.pack("<II", 15, len(element)) + element)
    return path


def test_a_compressed_matrix_that_claims_gigabytes(tmp_path: Path) -> None:
    path = mat_of(tmp_path, bombs.matlab_matrix((1 << 10, 1 << 9, 1 << 10), 1 << 31))
    with pytest.raises(matlab_tags.DamagedTagError, match="bytes that claim to be 21474"):
        matlab_tags.check_tags(path)
    with pytest.raises(InputError, match="is truncated or corrupt"):
        load(path)


def test_a_compressed_cell_of_very_many_elements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matlab_tags, "_MOST_READS", 1000)
    head = struct.pack("<IIII", 6, 8, 1, 0) + struct.pack("<IIII", 5, 8, 1, 2000) + struct.pack("<II", 1, 0)
    inner = head + 2000 * struct.pack("<II", 14, 0)
    path = mat_of(tmp_path, struct.pack("<II", 14, len(inner)) + inner)
    with pytest.raises(matlab_tags.DamagedTagError, match="more elements than a file of echoes has"):
        matlab_tags.check_tags(path)


@pytest.mark.parametrize("place", [4, 8, 16])
def test_a_version_4_file_that_claims_more_than_it_holds(place: int, tmp_path: Path) -> None:
    path = tmp_path / "x.mat"
    scipy.io.savemat(path, {"IQ": IQ.reshape(36, 3).real}, format="4")
    assert matlab_tags.check_tags(path) == []
    raw = bytearray(path.read_bytes())
    raw[place : place + 4] = struct.pack("<I", 1 << 30)
    path.write_bytes(raw)
    with pytest.raises(matlab_tags.DamagedTagError, match=rf"ends at byte \d+ of {len(raw)}"):
        matlab_tags.check_tags(path)
    with pytest.raises(InputError, match="is truncated or corrupt"):
        load(path)
