"""Pruned networks as programs of `torch.export`, which torch runs without this package.

TorchScript would do, too, but torch has declared it obsolete. `torch.export.load` can unpickle, and so can run code
from a file that means harm: load only files whose origin you know. The files written here hold no pickle: weights are
raw bytes, the program is JSON, and the example inputs, which torch would pickle, are taken out.
"""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from typing import Any

import torch
from torch import Tensor, nn

from adagpr.errors import InputError
from adagpr.exporting.module import Exported, edge_product, no_product
from adagpr.exporting.safetensors import description

# Example sizes: none is 0 or 1, which torch takes for constants, and no two are alike.
_NUM_NODES, _NUM_EDGES = 5, 7


class _Program(nn.Module):
    """A network that takes the operator as edges, or features alone."""

    def __init__(self, exported: Exported) -> None:
        super().__init__()
        self.exported = exported

    def forward(
        self,
        x: Tensor,
        edge_source: Tensor | None = None,
        edge_target: Tensor | None = None,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        """Logits of all nodes."""
        if edge_source is None or edge_target is None or edge_weight is None:
            return self.exported.compute(x, no_product)
        forward = edge_product(edge_source, edge_target, edge_weight)
        return self.exported.compute(x, forward, edge_product(edge_target, edge_source, edge_weight))


def to_torch(exported: Exported) -> bytes:
    """The content of a ``.pt2`` file whose program takes any number of nodes and edges."""
    weight = exported.weight_in
    nodes, edges = torch.export.Dim("num_nodes"), torch.export.Dim("num_edges")
    inputs: list[Tensor] = [weight.new_zeros(_NUM_NODES, weight.shape[0])]
    shapes: dict[str, Any] = {"x": {0: nodes}}
    if exported.needs_graph:
        ends = torch.arange(_NUM_EDGES) % _NUM_NODES
        inputs += [ends, ends.clone(), weight.new_zeros(_NUM_EDGES)]
        shapes |= {name: {0: edges} for name in ("edge_source", "edge_target", "edge_weight")}
    buffer = io.BytesIO()
    with torch.no_grad(), warnings.catch_warnings():
        # Torch warns of its own old parts while it traces.
        warnings.simplefilter("ignore")
        program = torch.export.export(_Program(exported).eval(), tuple(inputs), dynamic_shapes=shapes)
        program.example_inputs = None
        torch.export.save(program, buffer, extra_files={"adagpr.json": description(exported)})
    content = buffer.getvalue()
    _check_no_pickle(content)
    return content


def _check_no_pickle(content: bytes) -> None:
    """Older versions of torch pickle the weights; such a file is not written."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = archive.namelist()
        pickled = any(name.endswith((".pt", ".pkl")) and archive.getinfo(name).file_size for name in names)
        configs = [json.loads(archive.read(name)) for name in names if name.endswith("_config.json")]
    marked = any(item.get("use_pickle") for config in configs for item in config.get("config", {}).values())
    if pickled or marked or not configs:
        raise InputError(f"torch {torch.__version__} would pickle the weights of a program: install a newer torch.")
