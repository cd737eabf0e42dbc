"""Two tables that do not fit, cut into parts in a bounded amount of memory.

The tables are read in batches. What stays in memory grows with the nodes alone, by some 50 bytes each; edges and
features go through files below ``.work``, in slices that fit what is left. Each stage is a file of this folder:

1. *nodes*: ids, classes and the split; nodes are put in the order of their ids.
2. *edges*: each end looked up and written, both ways unless directed, to the bucket of its source.
3. *rows*: every slice of sources sorted, repeated edges merged: the rows of the adjacency in one long file.
4. *assign*: `greedy` reads that file again and again.
5. *scatter*: rows and features sent to a file for each part, and the sum of the graph taken.
6. *finish*: the parts, one by one.

A stage that was interrupted starts anew, one that is done is not repeated. The result is a function of the tables and
the arguments, not of the memory, and its graph is that of the tables when they are read whole with ``as_is``, to the
bit and with the same sums (unless features are so sparse that they are then kept as such).
"""

from adagpr.partitioning.stream.columns import Columns
from adagpr.partitioning.stream.stages import partition_tables
from adagpr.partitioning.stream.table import Table

__all__ = ["Columns", "Table", "partition_tables"]
