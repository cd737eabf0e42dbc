"""Trained networks made lighter, and written as files that run elsewhere."""

from adagpr.exporting.edges import edge_inputs
from adagpr.exporting.export import FORMATS, ExportFormat, ExportReport, export_run, pruned_run
from adagpr.exporting.network import About, Exported
from adagpr.exporting.prune import Cost, Pruned, PrunedLayer, prune
from adagpr.exporting.safetensors_file import load_exported

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
