"""Time the filter on a GPU, and the exact SVD filter in CuPy beside it. It needs CuPy, and no network.

    python -m benchmarks.gpu                    # a minute
    python -m benchmarks.gpu --blocks 12 --volume 48x48x48x100

Filtered blocks and a session must equal the processor's results; otherwise the benchmark stops. Blocks of
128 x 128 x 300 are filtered (a) from the memory of the GPU, (b) from the memory of the host, then a volume, and
(c) blocks from files, which includes reading, quality control, estimate and series. The shares are bytes over time over the
measured rate of a copy: for (a) the bytes that the steps of the filter read and write, for (b) the bytes of the blocks.
"""

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import cupy
import cupyx
import h5py
import numpy as np

import usdenoise
from benchmarks.shared import command_line
from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.blood.noise import clutter_projection
from usdenoise.linalg.array_library import to_host
from usdenoise.options import DenoiseOptions
from usdenoise.pipeline.devices import cupy_on, to_device
from usdenoise.pipeline.filter_chunk import filter_chunk
from usdenoise.pipeline.inspection import inspect_block
from usdenoise.pipeline.measures import Clutter
from usdenoise.pipeline.series import BlockLags
from usdenoise.system.resources import blas_on_one_thread, use_one_heap

LOW, N_TEMPORAL, NEAR = 24, 6, 1e-5


def draw(rng, *size):
    return rng.standard_normal((*size, 2), np.float32).view(np.complex64)[..., 0]


def components(rng, shape):
    """Speckle times slow waves along the axes, orthonormal columns."""
    waves = [np.cos(np.pi * np.outer(np.linspace(0, 1, size), np.arange(5))) for size in shape]
    fields = waves[0]
    for along in waves[1:]:
        fields = (fields[:, None, :, None] * along[:, None, :]).reshape(len(fields) * len(along), -1)[
            :, : 2 * LOW
        ]
    return np.linalg.qr(draw(rng, len(fields), 1) * fields[:, :LOW].astype(np.float32))[0]


def block(rng, u, n):
    """Clutter of slow sines, the strongest 40 dB over white noise, and blood of 6 dB in every eighth run of pixels."""
    t = np.arange(n)[:, None] / n
    amplitudes = np.append(140, np.geomspace(30, 1, LOW - 1)) * np.sqrt(len(u))
    courses = np.exp(2j * np.pi * (t * rng.uniform(-3, 3, LOW) + rng.uniform(0, 1, LOW))) * amplitudes
    x = courses.astype(np.complex64) @ u.T + draw(rng, n, len(u))
    vessels = np.arange(len(u)) // 1024 % 8 == 0
    flow = draw(rng, n + 3, np.count_nonzero(vessels)) * np.exp(0.5j * np.pi * np.arange(n + 3))[
        :, None
    ].astype(np.complex64)
    x[:, vessels] += sum(flow[lag : lag + n] for lag in range(4))
    return x


def clutter_of(rng, u, shape, n):
    projection = clutter_projection(np.linalg.qr(draw(rng, n, LOW))[0])
    grid = Neighbourhood(np.ones(shape, bool))
    return Clutter(left=u, low=LOW, high=LOW, projection=projection, grid=grid, n_temporal=N_TEMPORAL)


def largest_error(found, wanted, scale=None):
    return float(np.abs(found - wanted).max() / np.abs(wanted if scale is None else scale).max())


def check_equal(name, error, near=NEAR):
    print(f"  {name:52s} error {error:.1e}", flush=True)
    assert error < near, name


def seconds(function, repeats=20, warm=3):
    """Median time of a call after which the device has finished."""
    times = []
    for _ in range(warm + repeats):
        cupy.cuda.Device().synchronize()
        began = time.perf_counter()
        function()
        cupy.cuda.Device().synchronize()
        times.append(time.perf_counter() - began)
    return float(np.median(times[warm:]))


def rates():
    """Bytes/s of a copy on the device, read and written, and from pinned memory of the host to the device and back."""
    there, copy = (cupy.ones(1 << 28, cupy.float32) for _ in range(2))
    own = 2 * there.nbytes / seconds(lambda: cupy.copyto(copy, there))
    pinned = cupyx.empty_pinned(1 << 26, np.float32)
    pinned[:] = 1
    part = there[: pinned.size]
    to = pinned.nbytes / seconds(lambda: part.set(pinned))
    back = pinned.nbytes / seconds(lambda: part.get(out=pinned))
    return own, to, back


def exact_filter(x, wide):
    """Power Doppler of a block, (n, n_pixels), without its LOW strongest components, as a user with CuPy would write it."""
    pixels = x.astype(wide)
    vectors = cupy.linalg.eigh(pixels @ pixels.conj().T)[1][:, -LOW:].astype(x.dtype)
    rest = x - vectors @ (vectors.conj().T @ x)
    return (rest.real**2 + rest.imag**2).sum(axis=0)


def in_threads(n_threads, function, items):
    """Seconds of a function of all items on some threads, each with a stream of its own."""
    with ThreadPoolExecutor(n_threads, initializer=cupy_on, initargs=("cuda",)) as pool:
        list(pool.map(function, items[:n_threads]))
        began = time.perf_counter()
        list(pool.map(function, items))
        return time.perf_counter() - began


def line(what, took, n, moved=None, rate=None):
    share = "" if moved is None else f", {100 * moved / took / rate:.0f} % of {rate / 1e9:.0f} GB/s"
    print(f"  {what:52s} {1e3 * took:8.2f} ms {n / took:10,.0f} frames/s{share}", flush=True)


def moved_bytes(x):
    """Bytes that the steps of the filter of a block read and write: coefficients, W, product, subtraction; Fourier
    transform, conjugate, product and its sum."""
    return x.nbytes * (1 + 1 + 1 + 3 + 3 + 2 + 3 + 1)


def compare(rng, shape, n):
    x, clutter = blocks_of(rng, shape, n, 1)
    print("\nthe same results as by the processor")
    wanted = filter_chunk(x[0], clutter, np.zeros(n, bool), is_kept=True)
    found = filter_chunk(cupy.asarray(x[0]), clutter, np.zeros(n, bool), is_kept=True)
    # Rounding errors are relative to the tissue.
    check_equal(
        "filtered block, over the block", largest_error(to_host(found.filtered), wanted.filtered, x[0])
    )
    check_equal("its power", largest_error(found.power, wanted.power), 1e-3)
    check_equal("its lags", largest_error(found.sums, wanted.sums), 1e-3)


def blocks_of(rng, shape, n, count):
    u = components(rng, shape)
    return [block(rng, u, n) for _ in range(count)], clutter_of(rng, u, shape, n)


def time_blocks(rng, own_rate, bus, shape=(128, 128), n=300):
    blocks, clutter = blocks_of(rng, shape, n, 8)
    there, none, options = [cupy.asarray(x) for x in blocks], np.zeros(n, bool), DenoiseOptions()
    moved, numbers = moved_bytes(blocks[0]), count()

    def filtered(x):
        return filter_chunk(x, clutter, none)

    def measured(x):
        y, search = inspect_block(x, clutter, options, "iq")
        return BlockLags.of(filter_chunk(y, clutter, search.excluded), clutter)

    def of_next(function, *more):
        # Not the block that is in the cache
        return seconds(lambda: function(there[next(numbers) % len(there)], *more))

    print("\n(a) blocks of 128 x 128 x 300 from the memory of the GPU")
    line("filter and 13 lags", of_next(filtered), n, moved, own_rate)
    line("with the filtered frames", of_next(lambda x: filter_chunk(x, clutter, none, is_kept=True)), n)
    line("with quality control and series", of_next(measured), n)
    for n_threads in (2, 4, 8):
        for what, function in (
            ("filter and 13 lags", filtered),
            ("with quality control and series", measured),
        ):
            line(
                f"{what}, {n_threads} threads",
                in_threads(n_threads, function, there * 6) / (6 * len(there)),
                n,
            )
    line("exact SVD in CuPy, Gram matrix in double precision", of_next(exact_filter, cupy.complex128), n)
    line("exact SVD in CuPy, Gram matrix in single precision", of_next(exact_filter, cupy.complex64), n)
    with blas_on_one_thread():
        line("filter and 13 lags, one thread of the processor", seconds(lambda: filtered(blocks[0]), 3, 1), n)

    print("\n(b) the same from the memory of the host")
    for n_threads in (1, 2, 4, 8):
        took = in_threads(n_threads, lambda x: filtered(to_device(x, "cuda")), blocks * 8) / (8 * len(blocks))
        line(f"copy, filter and 13 lags, {n_threads} threads", took, n, blocks[0].nbytes, bus)
        took = in_threads(n_threads, lambda x: to_device(x, "cuda"), blocks * 8) / (8 * len(blocks))
        line(f"copy alone, {n_threads} threads", took, n, blocks[0].nbytes, bus)
    for n_threads in (1, 4):
        exact = in_threads(
            n_threads, lambda x: exact_filter(cupy.asarray(x), cupy.complex128).get(), blocks * 4
        )
        took = exact / (4 * len(blocks))
        line(f"copy and exact SVD in CuPy, {n_threads} threads", took, n, blocks[0].nbytes, bus)


def time_volume(rng, own_rate, bus, shape, n):
    (x,), clutter = blocks_of(rng, shape, n, 1)
    there, none = cupy.asarray(x), np.zeros(n, bool)
    print(f"\na volume of {' x '.join(map(str, shape))}, {n} frames")
    took = seconds(lambda: filter_chunk(there, clutter, none), 5, 1)
    line("filter and 13 lags, from the memory of the GPU", took, n, moved_bytes(x), own_rate)
    took = seconds(lambda: filter_chunk(to_device(x, "cuda"), clutter, none), 3, 1)
    line("filter and 13 lags, from the memory of the host", took, n, x.nbytes, bus)
    line(
        "exact SVD in CuPy, from the memory of the GPU",
        seconds(lambda: exact_filter(there, cupy.complex128), 3, 1),
        n,
    )
    with blas_on_one_thread():
        line("one thread of the processor", seconds(lambda: filter_chunk(x, clutter, none), 1, 0), n)


def time_files(rng, n_blocks, shape=(128, 128), n=300):
    print(f"\n(c) a session of {n_blocks} files of 128 x 128 x 300")
    u, results = components(rng, shape), {}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(n_blocks):
            with h5py.File(Path(folder) / f"block{number:03d}.h5", "w") as file:
                file["iq"] = block(rng, u, n).reshape(n, *shape)
        # CuPy and Numba compile their functions when they are first used, and keep them on disk.
        for device in ("cuda", "cpu"):
            usdenoise.session(sorted(Path(folder).iterdir())[:3], axes="tzx", frame_rate=500, device=device)
        for device in ("cuda", "cpu"):
            began = time.perf_counter()
            results[device] = usdenoise.session(folder, axes="tzx", frame_rate=500, device=device)
            line(f"estimate, all blocks, series; device {device}", time.perf_counter() - began, n * n_blocks)
    for image in ("power_doppler", "blood_power"):
        found, wanted = (getattr(results[device], image) for device in ("cuda", "cpu"))
        check_equal(f"{image} of the session", largest_error(found, wanted), 1e-2)


def main():
    arguments = command_line(__doc__, blocks=24, volume=(96, 96, 96, 200))
    # As the commands do
    use_one_heap()
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    own_rate, bus, back = rates()
    print(
        f"{name}: {own_rate / 1e9:.0f} GB/s on the device, {bus / 1e9:.1f} GB/s to it, {back / 1e9:.1f} GB/s back"
    )
    rng = np.random.default_rng(0)
    compare(rng, (128, 128), 300)
    time_blocks(rng, own_rate, bus)
    time_volume(rng, own_rate, bus, arguments.volume[:-1], arguments.volume[-1])
    time_files(rng, arguments.blocks)


if __name__ == "__main__":
    main()
