"""One small acquisition, written in every layout that users hold their stacks in; the writers take any other stack too."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Concatenate, ParamSpec

import h5py
import numpy as np
import scipy.io
from numpy.typing import NDArray

P = ParamSpec("P")
Write = Callable[[Path], Path]
"""Writes an acquisition into a folder, and returns the path by which it is loaded."""

N_FRAMES, N_Z, N_X, N_Y = 12, 5, 4, 3
RATE, FREQUENCY, SPEED = 500.0, 15e6, 1500.0
SPACING = {"z": 0.05, "x": 0.1, "y": 0.2}
SCALES = {"frame_rate_hz": RATE, "spacing_mm": [SPACING["z"], SPACING["x"]]}
_RNG = np.random.default_rng(5)


def whole_numbers(*shape: int) -> NDArray[np.complex64]:
    """Small whole numbers: every layout, int16 too, holds them without rounding."""
    real, imaginary = (_RNG.integers(-99, 99, shape) for _ in range(2))
    return (real + 1j * imaginary).astype(np.complex64)


IQ = whole_numbers(N_FRAMES, N_Z, N_X)
VOLUMES = whole_numbers(N_FRAMES, N_Z, N_X, N_Y)


def in_order(axes: str, stack: NDArray[Any] = IQ, own: str = "tzx") -> NDArray[Any]:
    """The stack with its axes in another order."""
    return stack.transpose([own.index(letter) for letter in axes])


def frames_by_loops(stack: NDArray[Any], axes: str) -> NDArray[Any]:
    """The frames of a stack with axes `axes`, pixels in the order z, x, y, one entry after the other."""
    n = dict.fromkeys("tzxy", 1) | dict(zip(axes, stack.shape, strict=True))
    frames = np.empty((n["t"], n["z"] * n["x"] * n["y"]), stack.dtype)
    for t in range(n["t"]):
        for z in range(n["z"]):
            for x in range(n["x"]):
                for y in range(n["y"]):
                    at = {"t": t, "z": z, "x": x, "y": y}
                    pixel = (z * n["x"] + x) * n["y"] + y
                    frames[t, pixel] = stack[tuple(at[letter] for letter in axes)]
    return frames


ZXT = in_order("zxt")


@dataclass(frozen=True)
class Layout:
    """A way to store the stack, and what has to come back from it."""

    write: Write
    axes: str
    container: str
    frame_rate: float | None = None
    spacing: tuple[str, ...] = ()
    frequency: float | None = None
    speed: float | None = None
    name: str = "iq"
    options: tuple[tuple[str, Any], ...] = ()
    volumes: bool = False

    @property
    def expected(self) -> NDArray[Any]:
        """The stack in the order of the file."""
        return self.of_frames(slice(None))

    def of_frames(self, frames: slice) -> NDArray[Any]:
        """Some of its frames."""
        stack, own = (VOLUMES, "tzxy") if self.volumes else (IQ, "tzx")
        return in_order(self.axes, stack[frames], own)


def axes_of(stack: NDArray[Any], unit: float = 1.0) -> dict[str, NDArray[np.float64]]:
    """Coordinates of the pixels along each axis of a stack, time first."""
    sizes = zip("zxy", stack.shape[1:], strict=False)
    return {letter: (3.0 + np.arange(n) * SPACING[letter]) * unit for letter, n in sizes}


def writer(write: Callable[Concatenate[Path, P], Path]) -> Callable[P, Write]:
    """Turn a function of a folder and of what is written there into one that returns a function of the folder."""

    def what(*arguments: P.args, **settings: P.kwargs) -> Write:
        return lambda folder: write(folder, *arguments, **settings)

    return what


# ---------------------------------------------------------------- MATLAB

UF = {"FrameRateUF": RATE, "TwFreq": FREQUENCY / 1e6, "NbFrames": float(N_FRAMES)}
# In wavelengths of 0.1 mm, x, y and z.
PDATA = {"PDelta": np.array([[1.0, 0.0, 0.5]]), "Size": np.array([[5.0, 4.0, 1.0]])}


@writer
def v5(folder: Path, **variables: Any) -> Path:
    """A file of MATLAB before 7.3."""
    scipy.io.savemat(folder / "x.mat", variables)
    return folder / "x.mat"


@writer
def v5_compressed(folder: Path, **variables: Any) -> Path:
    """The same with compressed variables."""
    scipy.io.savemat(folder / "x.mat", variables, do_compression=True)
    return folder / "x.mat"


def cell(*elements: NDArray[Any]) -> NDArray[Any]:
    """A MATLAB cell for scipy."""
    made = np.empty((1, len(elements)), object)
    for place, element in enumerate(elements):
        made[0, place] = element
    return made


def structs(**fields: Any) -> NDArray[Any]:
    """An array of structs for scipy: a field is a list with a value for each of them."""
    made = np.empty((1, len(next(iter(fields.values())))), [(name, object) for name in fields])
    for name, values in fields.items():
        for place, value in enumerate(values):
            made[name][0, place] = value
    return made


def pairs(values: NDArray[Any], names: tuple[str, str], member: str = "f4") -> NDArray[Any]:
    """A compound of two members."""
    made = np.empty(values.shape, [(name, member) for name in names])
    made[names[0]], made[names[1]] = values.real, values.imag
    return made


def put_v73(group: h5py.Group, name: str, value: Any) -> h5py.Dataset:
    """A variable as MATLAB 7.3 lays it out."""
    values = np.asarray(value)
    if values.dtype.kind == "c":
        values = pairs(values, ("real", "imag"))
        kind = "single"
    else:
        kind = {"f": "single" if values.itemsize == 4 else "double"}.get(values.dtype.kind, values.dtype.name)
    values = values.reshape(1, 1) if values.ndim == 0 else values
    dataset = group.create_dataset(name, data=values.transpose())
    dataset.attrs["MATLAB_class"] = np.bytes_(kind)
    return dataset


@writer
def v73(folder: Path, fill: Callable[[h5py.File], None] = lambda file: None, **variables: Any) -> Path:
    """A file of MATLAB 7.3 with the scales of PALA, and what is filled in; a list of arrays is a cell."""
    path = folder / "x.mat"
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, value in {**variables, "speed_of_sound": SPEED}.items():
            if isinstance(value, list):
                put_cell(file, name, *value)
            else:
                put_v73(file, name, value)
        for struct_name, members in (("UF", UF), ("PData", PDATA)):
            group = file.create_group(struct_name)
            group.attrs["MATLAB_class"] = np.bytes_("struct")
            for member, value in members.items():
                put_v73(group, member, value)
        fill(file)
    with path.open("r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")
    return path


def put_cell(file: h5py.File, name: str, *elements: NDArray[Any]) -> None:
    """A cell: references into a group of its own."""
    refs = file.require_group("#refs#")
    references = np.empty((len(elements), 1), h5py.ref_dtype)
    for place, element in enumerate(elements):
        references[place, 0] = put_v73(refs, f"{name}{place}", element).ref
    file.create_dataset(name, data=references, dtype=h5py.ref_dtype).attrs["MATLAB_class"] = np.bytes_("cell")


def put_structs(file: h5py.File, name: str, **fields: Any) -> None:
    """An array of structs: a group of references without a class; a mapping in a field is a struct."""
    group, refs = file.create_group(name), file.require_group("#refs#")
    group.attrs["MATLAB_class"] = np.bytes_("struct")
    for field, values in fields.items():
        references = np.empty((len(values), 1), h5py.ref_dtype)
        for place, value in enumerate(values):
            where = f"{name}{field}{place}"
            for member, inner in value.items() if isinstance(value, dict) else ():
                put_v73(refs.require_group(where), member, inner)
            references[place, 0] = (refs[where] if where in refs else put_v73(refs, where, value)).ref
        group.create_dataset(field, data=references, dtype=h5py.ref_dtype)


# ---------------------------------------------------------------- HDF5


@writer
def hdf5(
    folder: Path,
    attributes: Mapping[str, Any] = MappingProxyType({}),
    fill: Callable[[h5py.File], Any] = lambda file: None,
    user_block: int = 0,
    **datasets: Any,
) -> Path:
    """A file of an h5py user; the attributes are those of the root."""
    with h5py.File(folder / "x.h5", "w", userblock_size=user_block) as file:
        file.attrs.update(attributes)
        for name, value in datasets.items():
            file[name.replace("__", "/")] = value
        fill(file)
    return folder / "x.h5"


@writer
def in_chunks(folder: Path, **how: Any) -> Path:
    """A dataset in chunks, with filters."""
    with h5py.File(folder / "x.h5", "w") as file:
        file.attrs.update(SCALES)
        file.create_dataset("group/iq", data=IQ, chunks=(4, 5, 4), **how)
    return folder / "x.h5"


def virtual(
    path: Path, names: Sequence[str], part: tuple[int, ...], inner: str = "iq", name: str = "iq"
) -> Path:
    """Add a virtual dataset of parts of that shape under any names, one after the other."""
    layout = h5py.VirtualLayout((len(names) * part[0], *part[1:]), "c8")
    for number, source_name in enumerate(names):
        source = h5py.VirtualSource(source_name, inner, part)
        rows = slice(number * part[0], (number + 1) * part[0])
        # The first of several parts is taken through a selection, the others as wholes.
        layout[rows] = source[: part[0]] if number == 0 and len(names) > 1 else source
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "a") as file:
        file.create_virtual_dataset(name, layout).attrs["axes"] = "tzx"
    return path


def external(path: Path, shape: tuple[int, ...], *stores: tuple[str, int, int]) -> Path:
    """A dataset of plain numbers in other files: their names, offsets and sizes."""
    with h5py.File(path, "w") as file:
        file.create_dataset("iq", shape, "c8", external=list(stores)).attrs["axes"] = "tzx"
    return path


@writer
def uff(folder: Path, apart: bool = True, single: bool = True) -> Path:
    """USTB's UFF: (frame, wave, channel, pixel), pixels down the columns."""
    pixels, axes = in_order("txz").reshape(N_FRAMES, -1), axes_of(IQ, 1e-3)
    pixels = pixels[:, None, None, :] if single else pixels
    with h5py.File(folder / "x.uff", "w") as file:
        file.attrs["version"] = np.bytes_("v1.2.0")
        group = file.create_group("b_data")
        group.attrs["class"] = np.bytes_("uff.beamformed_data")
        if apart:
            data = group.create_group("data")
            data["real"], data["imag"] = pixels.real, pixels.imag
        else:
            group["data"] = pixels
        scan = group.create_group("scan")
        scan.attrs["class"] = np.bytes_("uff.linear_scan")
        scan["x_axis"], scan["z_axis"] = axes["x"][None], axes["z"][None]
        group["frame_rate"] = [[20.0]]
        group["modulation_frequency"] = [[FREQUENCY]]
        group["sequence/sequence_0001/sound_speed"] = [[SPEED]]
    return folder / "x.uff"


@writer
def zea(folder: Path, stack: NDArray[Any], new: bool) -> Path:
    """Files of zea, with positions in m for the newer ones."""
    values = np.stack([stack.real, stack.imag], -1).astype(np.float32)
    with h5py.File(folder / "x.hdf5", "w") as file:
        place = "data/beamformed_data"
        file[f"{place}/values" if new else place] = values
        if new:
            axes = axes_of(stack, 1e-3)
            grid = dict(zip(axes, np.meshgrid(*axes.values(), indexing="ij"), strict=True))
            positions = [grid.get(letter, np.zeros(stack.shape[1:])) for letter in "xyz"]
            file[f"{place}/coordinates"] = np.stack(positions, -1).astype(np.float32)
            file[f"{place}/labels"] = np.array([b"I", b"Q"])
        file["scan/center_frequency"], file["scan/sound_speed"] = FREQUENCY, np.float32(SPEED)
        file["scan/time_to_next_transmit"] = np.full((N_FRAMES, 4), 1 / RATE / 4)
        file["scan/n_frames"] = N_FRAMES
    return folder / "x.hdf5"


# ---------------------------------------------------------------- Zarr and NumPy


@writer
def confusius(folder: Path, stack: NDArray[Any] = IQ, version: int = 3) -> Path:
    """A Zarr group of ConfUSIus: time, k (elevation), j (depth), i (lateral), and the matrix that places them."""
    import zarr

    values = stack[:, None] if stack.ndim == 3 else stack.transpose(0, 3, 1, 2)
    root = zarr.open_group(folder / "x.zarr", mode="w", zarr_format=version)

    def put(name: str, data: NDArray[Any], names: tuple[str, ...], chunks: tuple[int, ...]) -> Any:
        named = {"dimension_names": names} if version == 3 else {}
        array = root.create_array(name, shape=data.shape, chunks=chunks, dtype=data.dtype, **named)
        array[...] = data
        if version == 2:
            array.attrs["_ARRAY_DIMENSIONS"] = list(names)
        return array

    iq = put("iq", values, ("time", "k", "j", "i"), (5, *values.shape[1:]))
    matrix = np.diag([SPACING["y"], SPACING["z"], SPACING["x"], 1.0])
    matrix[1:3, 3] = 3.0
    iq.attrs.update({"transmit_frequency": FREQUENCY, "beamforming_sound_velocity": SPEED})
    iq.attrs.update({"voxel_to_world": matrix.tolist(), "voxel_to_world_units": "mm"})
    if version == 3:
        iq.attrs["compound_sampling_frequency"] = RATE
    put("time", 2.0 + np.arange(len(stack)) / RATE, ("time",), (len(stack),)).attrs["units"] = "s"
    for axis, name in enumerate("kji", 1):
        put(name, np.arange(values.shape[axis]), (name,), (values.shape[axis],))
    return folder / "x.zarr"


@writer
def npy(folder: Path, values: NDArray[Any]) -> Path:
    """A bare array."""
    np.save(folder / "x.npy", values)
    return folder / "x.npy"


@writer
def npz(folder: Path, compress: bool, **arrays: Any) -> Path:
    """Several arrays."""
    (np.savez_compressed if compress else np.savez)(folder / "x.npz", **arrays)
    return folder / "x.npz"


_PALA: dict[str, Any] = {"frame_rate": RATE, "frequency": FREQUENCY}
_ALL: dict[str, Any] = {"frame_rate": RATE, "spacing": ("z", "x"), "frequency": FREQUENCY, "speed": SPEED}
_V5, _V73 = "MATLAB before 7.3", "MATLAB 7.3 (HDF5)"
_HALVES = [ZXT[..., :7], ZXT[..., 7:]]
_UFF: dict[str, Any] = {"spacing": ("z", "x"), "frequency": FREQUENCY, "speed": SPEED, "name": "b_data"}

IQDATA_V5 = {
    "IQData v5 compressed": v5_compressed(IQData=ZXT),
    "IQData v5, singletons": v5(IQData=ZXT[:, :, None, None, :]),
    "IQData v5, cell": v5(IQData=cell(*_HALVES)),
    "IQData v5 compressed, cell": v5_compressed(IQData=cell(*_HALVES)),
    "IQData v5, cell of one": v5(IQData=cell(ZXT)),
    "IQData v5, cell of frames": v5(IQData=cell(*(ZXT[..., t] for t in range(N_FRAMES)))),
    "IData, QData v5": v5(IData=ZXT.real, QData=ZXT.imag),
    "IData, QData v5, singletons": v5(IData=ZXT.real[:, :, None], QData=ZXT.imag[:, :, None]),
}
IQDATA_V73 = {
    "IQData v7.3": v73(IQData=ZXT),
    "IQData v7.3, singletons": v73(IQData=ZXT[:, :, None, None, :]),
    "IQData v7.3, cell": v73(IQData=_HALVES),
    "IQData v7.3, cell of singletons": v73(IQData=[half[:, :, None, None] for half in _HALVES]),
    "IData, QData v7.3": v73(IData=ZXT.real, QData=ZXT.imag),
    "IData, QData v7.3, int16": v73(IData=ZXT.real.astype("i2"), QData=ZXT.imag.astype("i2")),
    "IData, QData v7.3, cells": v73(IData=[h.real for h in _HALVES], QData=[h.imag for h in _HALVES]),
}


def _h5(
    write: Write, axes: str = "tzx", scales: Mapping[str, Any] = MappingProxyType({}), **more: Any
) -> Layout:
    return Layout(write, axes, "HDF5", **scales, **more)


_SCALED: dict[str, Any] = {"frame_rate": RATE, "spacing": ("z", "x")}
_ZEA: dict[str, Any] = {"frequency": FREQUENCY, "speed": SPEED, "frame_rate": RATE}
_PARTS = [{"I": half.real, "Q": half.imag} for half in _HALVES]
_IN_ZEA = "data/beamformed_data"

LAYOUTS: dict[str, Layout] = {
    "PALA v5": Layout(v5(IQ=ZXT, UF=UF), "zxt", _V5, name="IQ", **_PALA),
    "PALA v5 with PData": Layout(v5(IQ=ZXT, UF=UF, PData=PDATA, speed_of_sound=SPEED), "zxt", _V5, name="IQ", **_ALL),
    "PALA v7.3": Layout(v73(IQ=ZXT), "zxt", _V73, name="IQ", **_ALL),
    **{key: Layout(write, "zxt", _V5, name="IQData") for key, write in IQDATA_V5.items()},
    **{key: Layout(write, "zxt", _V73, name="IQData", **_ALL) for key, write in IQDATA_V73.items()},
    "IQData v5, in a struct": Layout(v5(Bf={"IQ": ZXT}), "zxt", _V5, name="Bf/IQ"),
    "IQ v7.3, in a struct": Layout(v73(**{"Bf/IQ": ZXT}), "zxt", _V73, name="Bf/IQ", **_ALL),
    "v5, an array of structs": Layout(
        v5(b=structs(IQ=_HALVES, t=[0.0, 0.1], x=[np.arange(5.0)] * 2)), "zxt", _V5, name="b/IQ"
    ),
    "v5, structs in an array of structs": Layout(v5(b=structs(Bf=_PARTS)), "zxt", _V5, name="b/Bf/IQ"),
    "v5, a cell of structs": Layout(v5(b=cell(*[{"IQ": half} for half in _HALVES])), "zxt", _V5, name="b/IQ"),
    "v7.3, an array of structs": Layout(
        v73(lambda file: put_structs(file, "b", IQ=_HALVES, t=[0.0, 0.1])), "zxt", _V73, name="b/IQ", **_ALL
    ),
    "v7.3, structs in an array of structs": Layout(
        v73(lambda file: put_structs(file, "b", Bf=_PARTS)), "zxt", _V73, name="b/Bf/IQ", **_ALL
    ),
    "h5py": _h5(hdf5(SCALES, iq=IQ), scales=_SCALED),
    "h5py, real and imag swapped": _h5(hdf5(SCALES, iq=pairs(IQ.imag + 1j * IQ.real, ("imag", "real"))), scales=_SCALED),
    "h5py, int16 members": _h5(hdf5({}, iq=pairs(IQ, ("i", "q"), "i2"))),
    "h5py, unnamed members": _h5(hdf5({}, iq=pairs(IQ, ("a", "b"), "f4"))),
    "(2, z, x, t)": _h5(hdf5(SCALES, iq=np.stack([ZXT.real, ZXT.imag])), "zxt", _SCALED),
    "(t, z, x, 2)": _h5(hdf5(SCALES, iq=np.stack([IQ.real, IQ.imag], -1)), scales=_SCALED),
    "(t, 2, z, x)": _h5(hdf5(SCALES, iq=np.stack([IQ.real, IQ.imag], 1)), scales=_SCALED),
    "(z, 2, x, t) v5": Layout(v5(IQ=np.stack([ZXT.real, ZXT.imag], 1)), "zxt", _V5, name="IQ"),
    "(t, z, x, 2, y)": _h5(hdf5({}, iq=np.stack([VOLUMES.real, VOLUMES.imag], 3)), "tzxy", volumes=True),
    "(2, t, z, x, y)": _h5(hdf5({}, iq=np.stack([VOLUMES.real, VOLUMES.imag])), "tzxy", volumes=True),
    "rIQ, iIQ, normValue": _h5(
        hdf5({}, rIQ=(IQ.real * 4).astype("i2"), iIQ=(IQ.imag * 4).astype("i2"), normValue_IQ=0.25), name="IQ"
    ),
    "rIQ, iIQ in a group": _h5(hdf5({}, a__rIQ=IQ.real.astype("i2"), a__iIQ=IQ.imag.astype("i2")), name="a/IQ"),
    "real, imag": _h5(hdf5({}, bf__real=IQ.real, bf__imag=IQ.imag), name="bf"),
    "UFF": Layout(uff(), "txz", "USTB UFF (HDF5)", **_UFF),
    "UFF without single axes": Layout(uff(single=False), "txz", "USTB UFF (HDF5)", **_UFF),
    "UFF, native complex": Layout(uff(apart=False), "txz", "USTB UFF (HDF5)", **_UFF),
    "zea": Layout(zea(IQ, True), "tzx", "zea (HDF5)", spacing=("z", "x"), name=f"{_IN_ZEA}/values", **_ZEA),
    "zea, volumes": Layout(
        zea(VOLUMES, True), "tzxy", "zea (HDF5)", spacing=("z", "x", "y"), name=f"{_IN_ZEA}/values", volumes=True, **_ZEA
    ),
    "zea, older": Layout(zea(IQ, False), "tzx", "zea (HDF5)", name=_IN_ZEA, **_ZEA),
    "ConfUSIus": Layout(confusius(), "tzx", "Zarr", **_ALL),
    "ConfUSIus, Zarr 2": Layout(confusius(version=2), "tzx", "Zarr", **_ALL),
    "ConfUSIus, volumes": Layout(
        confusius(VOLUMES), "tyzx", "Zarr", RATE, ("z", "x", "y"), FREQUENCY, SPEED, volumes=True
    ),
    "npy": Layout(npy(IQ), "tzx", "NumPy .npy"),
    "npy, Fortran order": Layout(npy(np.asfortranarray(ZXT)), "zxt", "NumPy .npy"),
    "npz": Layout(npz(False, iq=IQ, b_mode=np.abs(IQ), **SCALES), "tzx", "NumPy .npz", RATE, ("z", "x")),
    "npz compressed": Layout(npz(True, I=IQ.real, Q=IQ.imag), "tzx", "NumPy .npz", name="IQ"),
    "txz, which takes an option": _h5(hdf5({}, iq=in_order("txz")), "txz", options=(("axes", "txz"),)),
    "two stacks, which take an option": _h5(hdf5({}, a=IQ, b=IQ + 1), name="a", options=(("dataset", "a"),)),
}  # fmt: skip
