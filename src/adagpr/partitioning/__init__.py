"""Graphs that do not fit: partitions on disk, borders exchanged between processes, batches of parts."""
