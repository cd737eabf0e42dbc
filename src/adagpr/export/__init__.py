"""Trained networks made lighter, and written as files that run elsewhere."""

from adagpr.export.edges import edge_inputs
from adagpr.export.export import FORMATS, ExportFormat, ExportReport, export_run, pruned_run
from adagpr.export.network import About, Exported
from adagpr.export.prune import Cost, Pruned, PrunedLayer, prune
from adagpr.export.safetensors_file import load_exported

__all__ = [
    "FORMATS",
    "About",
    "Cost",
    "ExportFormat",
    "ExportReport",
    "Exported",
    "Pruned",
    "PrunedLayer",
    "edge_inputs",
    "export_run",
    "load_exported",
    "prune",
    "pruned_run",
]
