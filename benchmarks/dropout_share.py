"""The share of dropout in a training step on Cora, with torch's own dropout and with ours, measured side by side.

python benchmarks/dropout_share.py            # writes results/dropout_share.json
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import adagpr.nn.model as model_module
from adagpr.data import load
from adagpr.files import write_json
from adagpr.nn import AdaGPR
from adagpr.ops import dropout, features, operator

REPEATS = 40


def step(model: AdaGPR, x: Any, op: Any, y: Tensor, train: Tensor, optimizer: torch.optim.Optimizer) -> None:
    """One training step."""
    optimizer.zero_grad(set_to_none=True)
    F.cross_entropy(model(x, op)[train], y[train]).backward()
    optimizer.step()


def theirs(x: Tensor, rate: float, generator: np.random.Generator) -> Tensor:
    """Torch's dropout under our signature."""
    return F.dropout(x, rate, training=True)


def main() -> None:
    """Measures steps with dropout of either kind and without, interleaved, so that noise hits all alike."""
    torch.set_num_threads(1)
    graph, (split,) = load("cora", "public")
    x, op = features(graph.x), operator(graph)
    rows = []
    for hidden_channels, num_layers in ((32, 8), (64, 8), (64, 64)):
        model = AdaGPR(graph.num_features, hidden_channels, graph.num_classes, num_layers, 4, dropout=0.6).train()
        optimizer = torch.optim.Adam(model.parameters(), fused=True)
        times: dict[str, list[float]] = {"none": [], "torch": [], "ours": []}
        for _ in range(REPEATS):
            for kind, function in (("none", lambda x, rate, generator: x), ("torch", theirs), ("ours", dropout)):
                model_module.dropout = function  # type: ignore[assignment]
                begin = time.perf_counter()
                step(model, x, op, graph.y, split.train, optimizer)
                times[kind].append(time.perf_counter() - begin)
        middle = {kind: median(values) for kind, values in times.items()}
        rows.append(
            {
                "hidden_channels": hidden_channels,
                "num_layers": num_layers,
                "share_torch": round(1 - middle["none"] / middle["torch"], 3),
                "share_ours": round(1 - middle["none"] / middle["ours"], 3),
                "step_torch_over_ours": round(middle["torch"] / middle["ours"], 2),
            }
        )
        print(rows[-1], flush=True)
    write_json(Path(__file__).parent.parent / "results" / "dropout_share.json", rows)


if __name__ == "__main__":
    main()
