"""Memory of a training step does not grow with the number of coefficients."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import gc, sys
from pathlib import Path
import torch
from adagpr.data import csbm
from adagpr.nn import AdaGPR
from adagpr.ops import features, operator

def status(key):
    return int(next(l for l in Path("/proc/self/status").read_text().splitlines() if l.startswith(key)).split()[1])

torch.set_num_threads(1)
graph = csbm(num_nodes=50_000, average_degree=10.0, num_features=64, directed=True)
model = AdaGPR(64, 64, graph.num_classes, num_layers=4, num_coeffs=int(sys.argv[1]), projection="softmax")
x, op = features(graph.x), operator(graph)
gc.collect()
before = status("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
torch.nn.functional.cross_entropy(model(x, op), graph.y).backward()
print(graph.num_edges, (status("VmHWM") - before) / 1024)
"""


def test_peak_memory_of_a_step_is_flat_in_the_number_of_coefficients() -> None:
    peaks = []
    for num_coeffs in ("2", "32"):
        command = [sys.executable, "-c", SCRIPT, num_coeffs]
        # The C library's cache of freed blocks varies by 15 % from run to run; with it off, what is resident is in use.
        environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
        output = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.split()
        assert int(output[0]) == pytest.approx(500_000, rel=0.02)
        peaks.append(float(output[1]))
    assert peaks[1] <= 1.1 * peaks[0]
