"""Layers, and one file per model."""

from adagpr.nn.adagpr import AdaGPR
from adagpr.nn.adagpr_conv import AdaGPRConv
from adagpr.nn.adagpr_signed import AdaGPRSigned
from adagpr.nn.adagpr_signed_conv import AdaGPRSignedConv
from adagpr.nn.batched_models import BatchedModels
from adagpr.nn.gcnii import GCNII
from adagpr.nn.mlp import MLP
from adagpr.nn.model import EDGES, Capabilities, LayerView, Linear, Model
from adagpr.nn.registry import MODELS, ModelInfo, build, describe_model, model_class, model_options

__all__ = [
    "EDGES",
    "GCNII",
    "MLP",
    "MODELS",
    "AdaGPR",
    "AdaGPRConv",
    "AdaGPRSigned",
    "AdaGPRSignedConv",
    "BatchedModels",
    "Capabilities",
    "LayerView",
    "Linear",
    "Model",
    "ModelInfo",
    "build",
    "describe_model",
    "model_class",
    "model_options",
]
