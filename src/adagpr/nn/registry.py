"""The models by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from adagpr.arguments import check_call, signature_fields
from adagpr.errors import unknown_name
from adagpr.nn.adagpr import AdaGPR
from adagpr.nn.adagpr_signed import AdaGPRSigned
from adagpr.nn.appnp import APPNP
from adagpr.nn.gat import GAT
from adagpr.nn.gcn import GCN
from adagpr.nn.gcnii import GCNII
from adagpr.nn.geom_gcn import GeomGCN
from adagpr.nn.gprgnn import GPRGNN
from adagpr.nn.graphsage import GraphSAGE
from adagpr.nn.incepgcn import IncepGCN
from adagpr.nn.jknet import JKNet
from adagpr.nn.label_propagation import LabelPropagation
from adagpr.nn.mlp import MLP
from adagpr.nn.model import Model
from adagpr.nn.ppnp import PPNP
from adagpr.nn.scattering_gcn import ScatteringGCN
from adagpr.nn.sgc import SGC
from adagpr.system import require_memory

_CONVOLUTIONS: tuple[type[Model], ...] = (
    *(AdaGPR, AdaGPRSigned, GCNII, GCN),
    *(JKNet, IncepGCN, GAT, GeomGCN, ScatteringGCN),
)
_OTHERS: tuple[type[Model], ...] = (APPNP, PPNP, GPRGNN, SGC, GraphSAGE, LabelPropagation, MLP)
MODELS: dict[str, type[Model]] = {model.name: model for model in (*_CONVOLUTIONS, *_OTHERS)}

_DEFAULT_HIDDEN_CHANNELS = 64
_FROM_DATA = ("in_channels", "out_channels")

# The sizes that `describe_model` counts parameters for: those of Cora.
_NUM_FEATURES, _NUM_CLASSES = 1433, 7


@dataclass(frozen=True)
class ModelInfo:
    """A model of the registry with its depth, if it has one, number of parameters on Cora, and options by default."""

    name: str
    paper: str
    num_layers: int | None
    num_parameters: int
    good_for: str
    options: dict[str, Any]
    options_note: str = ""


def model_class(name: str) -> type[Model]:
    """The class of the model with that name."""
    if name not in MODELS:
        raise unknown_name("model", name, MODELS)
    return MODELS[name]


def model_options(name: str) -> dict[str, Any]:
    """The arguments of a model that a user chooses, with their defaults; the data set chooses the others."""
    fields = signature_fields(_unwrapped(model_class(name))).model_fields
    defaults = {key: None if field.is_required() else field.default for key, field in fields.items()}
    if "hidden_channels" in defaults:
        defaults["hidden_channels"] = _DEFAULT_HIDDEN_CHANNELS
    return {key: value for key, value in defaults.items() if key not in _FROM_DATA}


def build(name: str, arguments: Mapping[str, Any], copies: int = 1) -> Model:
    """Makes a model from its name and arguments, to be seeded or given a state; torch's random state is kept.

    An `InputError` says so where there is no memory for so many ``copies`` of its parameters.
    """
    model = model_class(name)
    values = check_call(model.__name__, _unwrapped(model), arguments)
    with torch.device("meta"):  # where nothing is allocated
        required = sum(item.numel() * item.element_size() for item in model(**values).parameters())
    require_memory(copies * required, f"{model.__name__}: its parameters")
    with torch.random.fork_rng(devices=[]):
        return model(**values)


def describe_model(name: str) -> ModelInfo:
    """What a model is, as it is by default; an `InputError` where a package that it needs is not installed.

    Example:
        >>> describe_model("gcn").num_parameters
        92231
    """
    options = model_options(name)
    model = build(name, {**options, "in_channels": _NUM_FEATURES, "out_channels": _NUM_CLASSES})
    count = sum(parameter.numel() for parameter in model.parameters())
    return ModelInfo(name, model.paper, options.get("num_layers"), count, model.good_for, options, model.options_note)


def _unwrapped(model: type[Model]) -> Any:
    return model.__init__.__wrapped__  # type: ignore[attr-defined]
