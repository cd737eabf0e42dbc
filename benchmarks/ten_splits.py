"""Ten splits of Texas in one command, against ten commands one after another, and whether both give the same.

python benchmarks/ten_splits.py     # writes results/ten_splits.json; the machine should have nothing else to do

Both are what a person would type, from the start of Python to the last file. They are timed in turn, three rounds.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from adagpr.benchmarking import ratios, spread
from adagpr.files import read_json, write_json
from adagpr.system import describe_machine

RECORD = Path(__file__).parent.parent / "results" / "ten_splits.json"
SPLITS = [f"geom-gcn/{number}" for number in range(10)]
ROUNDS = 3


def train(out: Path, *words: str) -> None:
    """Runs ``adagpr train texas``."""
    command = [sys.executable, "-m", "adagpr", "train", "texas", "--out", str(out), *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def timed(folder: Path) -> tuple[float, float]:
    """Seconds of ten commands and of one."""
    began = time.perf_counter()
    for number, split in enumerate(SPLITS):
        train(folder / "alone" / str(number), "--split", split)
    between = time.perf_counter()
    train(folder / "together")
    return between - began, time.perf_counter() - between


def is_equal(folder: Path) -> bool:
    """Whether every record is the same either way, but for what stands under ``machine``."""
    for number, split in enumerate(SPLITS):
        alone = read_json(folder / "alone" / str(number) / "record.json")
        together = read_json(folder / "together" / f"{split.replace('/', '-')}-seed-0" / "record.json")
        if any(alone[key] != together[key] for key in alone if key != "machine"):
            return False
    return True


def main() -> None:
    """Measures and writes the record."""
    times: dict[str, list[float]] = {"alone": [], "together": []}
    equal = True
    began = time.perf_counter()
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as name:
            alone, together = timed(Path(name))
            equal = equal and is_equal(Path(name))
        times["alone"].append(alone)
        times["together"].append(together)
        print(f"{alone:.1f} s alone, {together:.1f} s together, {alone / together:.2f} times", flush=True)
    record: dict[str, Any] = {
        "seconds": {name: spread(values).plain() for name, values in times.items()},
        "ratio": ratios(times, of="together")["alone"].plain(),
        "is_equal": equal,
        "machine": describe_machine(time.perf_counter() - began),
    }
    write_json(RECORD, record)


if __name__ == "__main__":
    main()
