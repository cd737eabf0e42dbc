"""A user's tables: a graph and a split from a table of nodes and a table of edges, and the recipe of its features."""

from adagpr.data.tables.read import Tables, from_tables, read_tables

__all__ = ["Tables", "from_tables", "read_tables"]
