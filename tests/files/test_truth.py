"""The truth that comes with a phantom."""

import h5py
import numpy as np
import pytest

import usdenoise
from tests.stacks import write_stack
from usdenoise.errors import InputError
from usdenoise.files.phantom_file import read_truth


def test_the_truth_of_a_phantom_is_what_the_simulator_wrote(phantom_file, small_phantom):
    phantom, terms = small_phantom
    truth = read_truth(phantom_file, usdenoise.load(phantom_file))
    assert np.array_equal(truth.vessel_mask, phantom.mask)
    assert truth.blood_power == pytest.approx(np.mean(np.abs(terms.blood) ** 2, axis=0), rel=1e-4)


def test_a_file_has_no_truth_or_one_that_fits(tmp_path):
    path = write_stack(tmp_path / "x.h5", np.ones((5, 4, 3), np.complex64), axes="tzx")
    assert read_truth(path, usdenoise.load(path)) is None
    with h5py.File(path, "r+") as file:
        file["truth/blood_power"] = np.ones((2, 2))
        file["truth/vessel_mask"] = np.ones((2, 2))
    with pytest.raises(InputError, match=r"the truth in .* has shape \(2, 2\) and the images \(4, 3\)"):
        read_truth(path, usdenoise.load(path))
