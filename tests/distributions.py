"""Build the wheel and the source distribution, install each into a fresh environment, and run it: on demand.

python -m tests.distributions
"""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> int:
    """Return 0 if both distributions install and filter the sample data."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)], check=True)
        built = sorted(folder.glob("usdenoise-*"))
        assert [path.name.endswith((".whl", ".tar.gz")) for path in built] == [True, True], built
        for number, path in enumerate(built):
            home = folder / f"environment{number}"
            venv.create(home, with_pip=True)
            program = home / "bin/usdenoise"
            subprocess.run(
                [str(home / "bin/python"), "-m", "pip", "install", "--quiet", str(path)], check=True
            )
            scan, out = ROOT / "sample_data/phantom.h5", folder / f"out{number}"
            subprocess.run([str(program), "run", str(scan), "-o", str(out), "-q"], check=True, cwd=folder)
            assert (out / "phantom_power_doppler.png").is_file()
            print(f"{path.name} installs and runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
