"""Layers, and one file per model."""

from adagpr.nn.adagpr import AdaGPR
from adagpr.nn.adagpr_conv import AdaGPRConv
from adagpr.nn.gcnii import GCNII
from adagpr.nn.mlp import MLP
from adagpr.nn.model import Model
from adagpr.nn.registry import MODELS, build, model_class, model_options

__all__ = ["GCNII", "MLP", "MODELS", "AdaGPR", "AdaGPRConv", "Model", "build", "model_class", "model_options"]
