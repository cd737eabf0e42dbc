"""Pruned networks as ONNX files, written node by node so that equal networks give equal bytes.

A product with the operator is ``Gather``, ``Mul`` and ``ScatterElements`` with ``reduction="add"``, whose data are what
the product is added to. ``ScatterND`` would need smaller indices, but onnxruntime has added duplicates wrongly when it
ran on several threads (its issues 18048 and 23396).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

import adagpr
from adagpr.errors import InputError
from adagpr.exporting.module import Exported, PrunedLayer
from adagpr.exporting.safetensors import description
from adagpr.ops import LEAST_SUM, NORM_EPSILON

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

# The first in which ScatterElements can add, and the version of the file form that came with it.
OPSET = 16
_IR_VERSION = 8

# A file of protocol buffers cannot be larger than 2 GiB.
_MOST_BYTES = 2**31 - 2**20


def to_onnx(exported: Exported) -> bytes:
    """The content of an ``.onnx`` file whose graph takes any number of nodes and edges."""
    try:
        import onnx
    except ImportError as error:
        raise InputError("Exporting to ONNX needs the extra: pip install 'adagpr[onnx]'.") from error
    size = 4 * sum(tensor.numel() for tensor in exported.buffers())
    if size > _MOST_BYTES:
        raise InputError(f"The network's {size / 2**30:.1f} GiB are more than an ONNX file can hold; use safetensors.")
    writer = _Writer(exported)
    in_channels, _, out_channels = exported.sizes
    float_type, int_type = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    inputs = [onnx.helper.make_tensor_value_info("x", float_type, ["num_nodes", in_channels])]
    if exported.needs_graph:
        for name, kind in (("edge_source", int_type), ("edge_target", int_type), ("edge_weight", float_type)):
            inputs.append(onnx.helper.make_tensor_value_info(name, kind, ["num_edges"]))
    output = onnx.helper.make_tensor_value_info("logits", float_type, ["num_nodes", out_channels])
    writer.network()
    graph = onnx.helper.make_graph(writer.nodes, "adagpr", inputs, [output], writer.constants)
    model = onnx.helper.make_model(
        graph,
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=_IR_VERSION,
        producer_name="adagpr",
        producer_version=adagpr.__version__,
    )
    onnx.helper.set_model_props(model, {"adagpr": description(exported)})
    onnx.checker.check_model(model, full_check=True)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


class _Writer:
    """Collects the nodes and constants of a graph; every method returns the name of what it computes."""

    def __init__(self, exported: Exported) -> None:
        self.exported = exported
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self._named: set[str] = set()

    def network(self) -> None:
        """Writes the whole network, from ``x`` to ``logits``."""
        network = self.exported
        if network.needs_graph:
            self._edges(network.sizes[1])
        h_0 = h = self._node("Relu", [self._mapped()], "h_0")
        for place, layer in enumerate(network.layers):
            h = self._layer(layer, f"layers.{place}", h, h_0)
        weights = [self._weight("weight_out", network.weight_out), self._weight("bias_out", network.bias_out)]
        self._node("Gemm", [h, *weights], "logits")

    def _mapped(self) -> str:
        """The input map; as `Exported` computes it."""
        network = self.exported
        weight, bias = self._weight("weight_in", network.weight_in), self._weight("bias_in", network.bias_in)
        if not network.about.divides_rows:
            return self._node("Gemm", ["x", weight, bias], "mapped")
        axis = self._constant("axis_1", np.array([1], dtype=np.int64))
        sums = self._node("ReduceSum", [self._node("Abs", ["x"], "sizes"), axis], "sums", keepdims=1)
        least = self._constant("least_sum", np.array(LEAST_SUM, dtype=np.float32))
        rows = self._node("Div", ["x", self._node("Max", [sums, least], "divisors")], "rows")
        return self._node("Gemm", [rows, weight, bias], "mapped")

    def _edges(self, width: int) -> None:
        """The edges as the products take them: weights as a column, targets once for every channel."""
        axis = self._constant("axis_1", np.array([1], dtype=np.int64))
        self._node("Unsqueeze", ["edge_weight", axis], "edge_weights")
        count = self._node("Shape", ["edge_target"], "num_edges_found")
        channels = self._constant("num_channels", np.array([width], dtype=np.int64))
        shape = self._node("Concat", [count, channels], "messages_shape", axis=0)
        layers = self.exported.layers
        read = {
            "edge_target": any(len(layer.hops) > 1 for layer in layers),
            "edge_source": any(len(layer.backward_hops) > 1 for layer in layers),
        }
        for end in (name for name, is_read in read.items() if is_read):
            column = self._node("Unsqueeze", [end, axis], f"{end}s_column")
            self._node("Expand", [column, shape], f"{end}s")

    def _layer(self, layer: PrunedLayer, name: str, h: str, h_0: str) -> str:
        """One layer; as `PrunedLayer` computes it."""
        total = self._sum_of_hops(f"{name}.hop", h, layer.hops, ("edge_source", "edge_targets"), (layer.residual, h_0))
        mapped = [total, self._weight(f"{name}.weight", layer.weight)]
        if layer.shift is None or layer.row_norm is not None:
            z = self._node("MatMul", mapped, f"{name}.mapped")
        else:
            z = self._node("Gemm", [*mapped, self._weight(f"{name}.shift", layer.shift)], f"{name}.mapped")
        if layer.weight_backward is not None:
            ends = "edge_target", "edge_sources"
            total = self._sum_of_hops(f"{name}.backward_hop", h, layer.backward_hops, ends)
            backward = self._weight(f"{name}.weight_backward", layer.weight_backward)
            z = self._node("Gemm", [total, backward, z], f"{name}.mapped_backward")
        for source, end, weight in ((h, "own", layer.weight_own), (h_0, "0", layer.weight_0)):
            if weight is not None:
                inputs = [source, self._weight(f"{name}.weight_{end}", weight), z]
                z = self._node("Gemm", inputs, f"{name}.mapped_{end}")
        if layer.row_norm is not None:
            z = self._normalised(name, z, layer.row_norm, layer.shift)
        return self._node("Relu", [z], f"{name}.h")

    def _normalised(self, name: str, z: str, scale: Tensor, shift: Tensor | None) -> str:
        """Layer normalisation over the channels, of which this version of ONNX has no operation."""
        mean = self._node("ReduceMean", [z], f"{name}.mean", axes=[1], keepdims=1)
        centred = self._node("Sub", [z, mean], f"{name}.centred")
        square = self._node("Mul", [centred, centred], f"{name}.square")
        variance = self._node("ReduceMean", [square], f"{name}.variance", axes=[1], keepdims=1)
        epsilon = self._constant("norm_epsilon", np.array(NORM_EPSILON, dtype=np.float32))
        root = self._node("Sqrt", [self._node("Add", [variance, epsilon], f"{name}.divisor_square")], f"{name}.divisor")
        normal = self._node("Div", [centred, root], f"{name}.normal")
        scaled = self._node("Mul", [normal, self._weight(f"{name}.row_norm", scale)], f"{name}.scaled")
        if shift is None:
            return scaled
        return self._node("Add", [scaled, self._weight(f"{name}.shift", shift)], f"{name}.shifted")

    def _sum_of_hops(
        self, name: str, h: str, hops: tuple[float, ...], ends: tuple[str, str], *first: tuple[float, str]
    ) -> str:
        """Hops by Horner's rule; ``first`` join hop 0."""
        total: str | None = None
        for hop in range(len(hops) - 1, -1, -1):
            start = f"{name}_{hop}"
            plus = self._sum(start, (hops[hop], h), *(() if hop else first))
            total = plus if total is None else self._product(start, total, plus, ends)
        return self._zeros(name, h) if total is None else total

    def _sum(self, name: str, *parts: tuple[float, str]) -> str | None:
        """The sum of matrices, each with its share; none where all shares are 0."""
        total: str | None = None
        for number, (share, matrix) in enumerate(parts):
            if share == 0:
                continue
            scaled = matrix
            if share != 1:
                factor = self._constant(f"{name}.share_{number}", np.array(share, dtype=np.float32))
                scaled = self._node("Mul", [matrix, factor], f"{name}.part_{number}")
            total = scaled if total is None else self._node("Add", [total, scaled], f"{name}.sum")
        return total

    def _product(self, name: str, h: str, plus: str | None, ends: tuple[str, str]) -> str:
        """The operator times ``h``, added to ``plus``; ``ends`` are those that are read and, expanded, written."""
        source, targets = ends
        read = self._node("Gather", [h, source], f"{name}.read", axis=0)
        messages = self._node("Mul", [read, "edge_weights"], f"{name}.messages")
        inputs = [self._zeros(name, h) if plus is None else plus, targets, messages]
        return self._node("ScatterElements", inputs, f"{name}.product", axis=0, reduction="add")

    def _zeros(self, name: str, h: str) -> str:
        return self._node("ConstantOfShape", [self._node("Shape", [h], f"{name}.shape")], f"{name}.zeros")

    def _node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        from onnx import helper

        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def _weight(self, name: str, weight: Tensor) -> str:
        return self._constant(name, weight.float().numpy())

    def _constant(self, name: str, value: np.ndarray) -> str:
        from onnx import numpy_helper

        if name not in self._named:
            self.constants.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
            self._named.add(name)
        return name
