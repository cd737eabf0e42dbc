"""Trained networks reduced to what they still compute, and written as files that run elsewhere."""

from adagpr.exporting.module import About, Exported, PrunedLayer, edge_inputs
from adagpr.exporting.prune import Cost, prune
from adagpr.exporting.run import FORMATS, ExportFormat, ExportReport, LayerUse, export, pruned_run
from adagpr.exporting.safetensors import load_exported

__all__ = [
    "FORMATS",
    "About",
    "Cost",
    "ExportFormat",
    "ExportReport",
    "Exported",
    "LayerUse",
    "PrunedLayer",
    "edge_inputs",
    "export",
    "load_exported",
    "prune",
    "pruned_run",
]
