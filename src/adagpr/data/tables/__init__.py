"""A user's tables: a graph and a split from a table of nodes and a table of edges, and the recipe of its features."""
