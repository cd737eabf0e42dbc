"""``adagpr predict``: the classes of new nodes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

import adagpr
from adagpr.cli.console import show_result
from adagpr.cli.options import AsJson
from adagpr.errors import InputError


def predict(
    run: Annotated[Path, Argument(metavar="RUN", help="Folder of a run that was trained on tables.")],
    nodes: Annotated[Path, Option(help="Table of nodes: CSV, TSV, Parquet or Feather, compressed or not.")],
    edges: Annotated[Path, Option(help="Table of edges.")],
    out: Annotated[Path, Option("--out", "-o", help="The Parquet file to write.")] = Path("predictions.parquet"),
    id_column: Annotated[str | None, Option("--id", help="Column of the node ids. Default: as in training.")] = None,
    source: Annotated[str | None, Option(help="Column where edges start. Default: as in training.")] = None,
    target: Annotated[str | None, Option(help="Column where edges end. Default: as in training.")] = None,
    weight: Annotated[str | None, Option(help="Column of the edge weights. Default: as in training.")] = None,
    as_json: AsJson = False,
) -> None:
    """Predict the class of every node of a table, with calibrated probabilities and reasons for doubt.

    A prediction depends on neighbours: for new nodes of a known graph, give tables of the whole graph.

    For example: adagpr predict runs/accounts --nodes new.csv --edges links.parquet
    """
    import pyarrow.parquet as pq

    from adagpr.files import make_folder, tidied, write_atomically

    if out.suffix.lower() != ".parquet":
        raise InputError(f"The predictions are written as Parquet; {out} must end in .parquet.")
    if (out.parent / "record.json").exists():
        raise InputError(f"{out.parent} is the folder of a run; write {out} elsewhere.")
    table, messages = adagpr.predict(run, nodes, edges, id=id_column, source=source, target=target, weight=weight)
    with tidied(out.parent):
        make_folder(out.parent)
        write_atomically(out, lambda path: pq.write_table(table, path))
    counts = Counter(table["prediction"].to_pylist())
    reasons = Counter(reason for reason in table["doubt"].to_pylist() if reason is not None)
    plain = {"file": str(out), "num_nodes": table.num_rows}
    show_result(
        as_json,
        {**plain, "predictions": counts, "doubts": reasons, "messages": messages},
        *messages,
        "",
        *(f"{count:>9,}  {name}" for name, count in counts.most_common()),
        *(f"{count:>9,}  in doubt: {reason}" for reason, count in reasons.most_common()),
        "",
        f"predictions  {out}",
    )
