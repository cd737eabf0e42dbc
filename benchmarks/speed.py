"""Time and memory of an epoch, ours beside the other ways of computing it: the tables and figures of docs/speed.md.

adagpr bench headline --out results/bench                # and the other sets: see docs/speed.md
python benchmarks/speed.py                               # writes docs/speed-*.svg and the tables of docs/speed.md
python benchmarks/speed.py --table                       # prints the tables
python benchmarks/speed.py --table --records FOLDER      # from records elsewhere
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import floor, log10
from pathlib import Path
from statistics import fmean, stdev
from textwrap import fill
from typing import Any

import numpy as np

from adagpr.benchmarking import BASELINES, LEAST_RUNS, OURS, Case, cases
from adagpr.charts import COLOURS, Axis, Line, Lines, figure, picture_files
from adagpr.errors import InputError
from adagpr.experiments import experiment
from adagpr.files import read_json, write_text

ROOT = Path(__file__).parent.parent
TRAINING = ROOT / "results" / "catalogue" / "table2_adagpr_cora-8.json"
ROUNDING, MANY = ROOT / "results" / "activations.json", ROOT / "results" / "ten_splits.json"
START, END = "<!-- tables: written by benchmarks/speed.py -->\n", "<!-- end of tables -->\n"
# Implementations have the same colour in every figure.
WAY_COLOURS = dict(zip((OURS, *BASELINES), COLOURS, strict=True))
GRAPHS = {"cora": "Cora", "pubmed": "Pubmed", "rmat": "R-MAT", "csbm": "cSBM"}

Records = Mapping[str, Any]


@dataclass(frozen=True)
class Sweep:
    """A set of cases that differ in one value.

    Attributes:
        name: Name of the set and of the figure.
        key: Where a record has the value.
        label: What the value is called.
        text: What follows the heading.
        unit: What the figure counts the value in.
    """

    name: str
    key: str
    label: str
    text: str
    unit: int = 1

    @property
    def axis(self) -> str:
        """The label with its unit."""
        return self.label if self.unit == 1 else f"{self.label} / {self.unit:,}"


SWEEPS = {
    sweep.name: sweep
    for sweep in (
        Sweep("layers", "num_layers", "layers", "Cora, 64 channels, K = 4."),
        Sweep("coeffs", "num_coeffs", "coefficients (K)", "Cora, 8 layers, 32 channels."),
        Sweep("channels", "hidden_channels", "channels", "Cora, 8 layers, K = 4."),
        Sweep(
            "nodes",
            "num_nodes",
            "nodes",
            "Random graphs with ten stored edges per node; 4 layers, 64 channels, K = 4. In R-MAT graphs few nodes "
            "have very many neighbours and many have none; cSBM are contextual stochastic block models. An "
            "implementation is measured if it fits into memory beside the others and an epoch takes less than a "
            "minute. The figure shows R-MAT.",
        ),
        Sweep(
            "edges",
            "num_edges",
            "stored edges",
            "Ours alone on R-MAT graphs whose nodes and edges grow together; 4 layers, 64 channels, K = 4. The last "
            "row is the exponent p in seconds ~ edges^p, fitted to the logarithms; linear growth has p = 1.",
            unit=1_000_000,
        ),
    )
}


def load(folder: Path) -> Records:
    """All records of a folder by the names of their files."""
    return {path.stem: read_json(path) for path in folder.glob("*.json")}


def recorded(records: Records, name: str) -> list[dict[str, Any]]:
    """The records of a set; a case that has changed since counts as missing, as in `adagpr.benchmarking.run_set`."""
    found = [(case, records.get(case.name)) for case in cases(name)]
    return [record for case, record in found if record is not None and Case.from_plain(record["case"]) == case]


def value_of(record: Records, key: str) -> int:
    """A value of the case or of its graph."""
    value: int = {**record["case"], **record["data"]}[key]
    return value


def kind_of(record: Records) -> str:
    """The graph's name without its size."""
    name: str = record["case"]["graph"].partition(":")[0]
    return name


def number(value: float) -> str:
    """Three significant digits, without an exponent."""
    return f"{value:,.{max(0, 2 - floor(log10(abs(value)))) if value else 0}f}"


def spread(values: Mapping[str, float], factor: float = 1.0) -> str:
    """Median and quartiles."""
    median, lower, upper = (number(factor * values[key]) for key in ("median", "lower", "upper"))
    return f"{median} ({lower} to {upper})"


def share(part: float) -> str:
    """In percent."""
    return f"{100 * part:.0f} %"


def markdown(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table."""
    head = list(head)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def timed(record: Records) -> list[str]:
    """The ways of a record that have times."""
    return [way for way, entry in record["ways"].items() if "seconds" in entry]


def compared(found: list[dict[str, Any]]) -> str:
    """One row for each network and way, with quartiles."""
    rows = []
    for record in found:
        case = record["case"]
        network = f"{case['num_layers']} layers, {case['hidden_channels']} channels"
        for way, entry in record["ways"].items():
            seconds, ratio = entry.get("seconds"), entry.get("ratio")
            times = [spread(seconds, 1000) if seconds else entry["status"], spread(ratio) if ratio else ""]
            rounds = (ratio or seconds or {}).get("rounds", "")
            rows.append([network, way, str(entry.get("num_threads", "")), *times, str(rounds)])
    return markdown(["network", "implementation", "threads", "ms per epoch", "times ours", "rounds"], rows)


def headline(records: Records) -> list[str]:
    """Cora with the paper's settings."""
    found = recorded(records, "headline")
    differences = [entry.get("largest_difference", 0.0) for record in found for entry in record["ways"].values()]
    text = (
        "Cora, K = 4, medians with quartiles in brackets. Before the first step the largest difference of any logit "
        f"from ours is {max(differences, default=0.0):.1e}."
    )
    return [text, compared(found)] if found else []


def gcnii(records: Records) -> list[str]:
    """The network that torch_geometric has a layer for."""
    found = recorded(records, "gcnii")
    text = (
        "GCNII is AdaGPR with K = 2 and all weight fixed on hop 1. For this network torch_geometric has a layer of its "
        "own, `GCN2Conv`. Cora, 64 channels."
    )
    return [text, compared(found)] if found else []


def sweep_part(records: Records, sweep: Sweep) -> list[str]:
    """One table for each kind of graph, and the figure."""
    found = recorded(records, sweep.name)
    kinds = list(dict.fromkeys(kind_of(record) for record in found))
    tables = [ratios([record for record in found if kind_of(record) == kind], sweep) for kind in kinds]
    return [sweep.text, *tables, image(sweep)] if found else []


def ratios(found: list[dict[str, Any]], sweep: Sweep) -> str:
    """Rows are ways, columns values, cells medians of the ratio to ours; ours is in milliseconds."""
    baselines = dict.fromkeys(way for record in found for way in timed(record) if way != OURS)
    rows = []
    for way in baselines:
        entries = [record["ways"].get(way, {}) for record in found]
        rows.append([way, *(median_ratio(entry.get("ratio")) for entry in entries)])
    rows.append(["ours, ms", *(number(1000 * record["ways"][OURS]["seconds"]["median"]) for record in found)])
    head = f"times ours, {GRAPHS[kind_of(found[0])]}, by {sweep.label}"
    return markdown([head, *(f"{value_of(record, sweep.key):,}" for record in found)], rows)


def median_ratio(ratio: Mapping[str, float] | None) -> str:
    """Nothing for a way that took no part; a median of too few rounds says so."""
    if ratio is None:
        return ""
    few = f" (rounds: {ratio['rounds']})" if ratio["rounds"] < LEAST_RUNS else ""
    return f"{number(ratio['median'])}{few}"


def edges(records: Records) -> list[str]:
    """How time grows with the graph."""
    sweep, found = SWEEPS["edges"], recorded(records, "edges")
    if len(found) < 2:
        return []
    sizes = [value_of(record, sweep.key) for record in found]
    seconds = [record["ways"][OURS]["seconds"] for record in found]
    power, _ = np.polyfit(np.log(sizes), np.log([item["median"] for item in seconds]), 1)
    rows = [[f"{size:,}", spread(item)] for size, item in zip(sizes, seconds, strict=True)]
    rows.append(["fitted exponent", f"{power:.2f}"])
    return [sweep.text, markdown(["stored edges", "seconds per epoch"], rows), image(sweep)]


def hops(records: Records) -> list[str]:
    """How time grows with the hops in use."""
    found = recorded(records, "hops")
    if len(found) < 3:
        return []
    kept = [sum(coeff > 0 for coeff in record["case"]["fixed_coeffs"]) for record in found]
    seconds = [record["ways"][OURS]["seconds"] for record in found]
    medians = [1000 * item["median"] for item in seconds]
    slope, _ = np.polyfit(kept, medians, 1)
    rows = [[str(count), spread(item, 1000)] for count, item in zip(kept, seconds, strict=True)]
    text = (
        "Ours alone, K = 16, with coefficients that are zero from some hop on; R-MAT with 50,000 nodes, 4 layers, 64 "
        f"channels. A straight line through the medians has R2 = {np.corrcoef(kept, medians)[0, 1] ** 2:.3f} and adds "
        f"{number(slope)} ms for each hop."
    )
    return [text, markdown(["hops kept of 16", "ms per epoch"], rows)]


def memory(records: Records) -> list[str]:
    """What a training step needs."""
    found = recorded(records, "memory")
    ways = dict.fromkeys(way for record in found for way in record["ways"])
    heads = [f"{value_of(record, 'num_nodes'):,} nodes, K = {record['case']['num_coeffs']}" for record in found]
    rows = [[way, *(weight(record["ways"].get(way, {})) for record in found)] for way in ways]
    text = (
        "Peak memory of one training step beyond what was in use before it, in MB, and in brackets that of the whole "
        "process with libraries and data. Each implementation runs in a fresh process. R-MAT, 4 layers, 64 channels."
    )
    return [text, markdown(["step MB (process MB)", *heads], rows)] if found else []


def weight(entry: Mapping[str, Any]) -> str:
    """The memory of one way, why there is none, or nothing."""
    if "memory_mb" in entry:
        return f"{entry['memory_mb']['step']:,.0f} ({entry['memory_mb']['total']:,.0f})"
    return "failed" if "memory_failed" in entry else ""


def saving(records: Records) -> list[str]:
    """What it costs to keep less for the backward pass, and what keeping it rounded does to accuracy."""
    found = recorded(records, "saving")
    plain = next((record["ways"][OURS]["seconds"]["median"] for record in found), 1.0)
    rows = []
    for record in found:
        case, entry = record["case"], record["ways"][OURS]
        again = "yes" if case["recompute"] else "no"
        rows.append([case["activations"], again, weight(entry), f"{entry['seconds']['median'] / plain:.2f}"])
    text = (
        "Ours alone, R-MAT with 50,000 nodes, 16 layers, 64 channels, K = 4: a part of each layer computed again in "
        "the backward pass (`recompute=true`, automatically where there is little memory), and activations kept as "
        "bfloat16 (`activations=bfloat16`). Time is relative to the first row."
    )
    head = ["kept as", "computed again", "step MB (process MB)", "time"]
    return [text, markdown(head, rows), *rounding()] if rows else []


def rounding() -> list[str]:
    """Test accuracies of equal runs in both precisions."""
    if not ROUNDING.exists():
        return []
    rows = []
    for name, found in read_json(ROUNDING).items():
        exact, rounded = ([100 * value for value in found[kind]] for kind in ("float32", "bfloat16"))
        cells = [f"{fmean(values):.2f} ± {stdev(values):.2f}" for values in (exact, rounded)]
        difference = fmean(other - one for one, other in zip(exact, rounded, strict=True))
        rows.append([name, str(len(exact)), *cells, f"{difference:+.2f}"])
    text = (
        "What rounding does to the test accuracy with the paper's settings: five seeds on Cora, ten splits elsewhere."
    )
    return [text, markdown(["data set", "runs", "float32", "bfloat16", "difference"], rows)]


def many(records: Records) -> list[str]:
    """Ten runs in one command."""
    if not MANY.exists():
        return []
    found = read_json(MANY)
    text = (
        "Ten splits of Texas with the default settings: one command, `adagpr train texas`, takes "
        f"{spread(found['seconds']['together'])} seconds. Ten commands, `adagpr train texas --split geom-gcn/...`, "
        f"take {spread(found['seconds']['alone'])} seconds, {spread(found['ratio'])} times as long. Both are measured "
        "from the start of Python to the last file. The records are "
        f"{'equal' if found['is_equal'] else 'not equal'} but for time and machine."
    )
    return [text]


def products(records: Records) -> list[str]:
    """How much of an epoch is matrix products."""
    rows = []
    for case in cases("products"):
        profile = records.get(f"profile-{case.name}")
        if profile is not None:
            parts = {part: sum(phases.values()) / profile["seconds"] for part, phases in profile["parts"].items()}
            sparse, dense = parts["sparse products"], parts["dense products"]
            network = [GRAPHS[case.graph], str(case.hidden_channels), str(profile["num_threads"])]
            times = [number(1000 * profile["seconds"]), share(sparse), share(dense), share(sparse + dense)]
            rows.append([*network, *times, share(profile["limit_share"])])
    text = (
        "Ours alone, 8 layers, K = 4: the share of an epoch that is spent in its matrix products. The limit is what "
        "the same products need when each runs alone and writes into memory that is already allocated, as a share of "
        "the same epoch: with the same products on the same kernels, no epoch can be shorter than that."
    )
    head = ["graph", "channels", "threads", "ms per epoch", "sparse products", "dense products", "together", "limit"]
    return [text, markdown(head, rows)] if rows else []


def accuracy(records: Records) -> list[str]:
    """Seconds of training on Cora with the paper's settings."""
    timing = next((record for record in recorded(records, "headline") if record["case"]["num_layers"] == 8), None)
    if timing is None or not TRAINING.exists():
        return []
    training = read_json(TRAINING)
    ways = timed(timing)
    cell = next(cell for cell in experiment("table2_adagpr_cora").cells() if cell.layers == 8)
    if training["options"] != cell.options:
        raise InputError(f"{TRAINING.name} is not the record of table2_adagpr_cora with 8 layers.")
    sizes = ("num_layers", "hidden_channels", "num_coeffs")
    if any(timing["case"][key] != cell.options[key] for key in sizes):
        raise InputError("The headline case with 8 layers is not the network of table2_adagpr_cora.")
    run = training["runs"][0]
    reached = round(100 * run["test_acc"], 2)
    text = (
        f"AdaGPR with 8 layers on Cora: the paper prints {training['published']} %. The recorded run, one seed, has "
        f"{reached} % at epoch {run['best_epoch']:,}, which was chosen on the validation nodes. The "
        "seconds are this number of epochs times the time of an epoch in the first table. Only ours was trained; the "
        "others compute the same network and would take the same number of epochs."
    )
    rows = [[way, number(run["best_epoch"] * timing["ways"][way]["seconds"]["median"])] for way in ways]
    return [text, markdown(["implementation", "seconds"], rows)]


def machine(records: Records) -> list[str]:
    """Where all was measured; several columns where records come from several machines."""
    keys = ("processor", "num_cores", "platform", "python", "torch", "adagpr")
    machines = [record["machine"] for _, record in sorted(records.items()) if "machine" in record]
    columns = list(dict.fromkeys(tuple(str(item[key]) for key in keys) for item in machines))
    rows = [[key.replace("num_", ""), *values] for key, values in zip(keys, zip(*columns, strict=True), strict=False)]
    return [markdown(["machine", *("" for _ in columns)], rows)] if columns else []


def image(sweep: Sweep) -> str:
    """The link to a figure."""
    return f"![Milliseconds of an epoch by {sweep.label}, both axes logarithmic](speed-{sweep.name}.svg)"


SECTIONS: dict[str, Callable[[Records], list[str]]] = {
    "Side by side": headline,
    "As GCNII": gcnii,
    "By layers": lambda records: sweep_part(records, SWEEPS["layers"]),
    "By coefficients": lambda records: sweep_part(records, SWEEPS["coeffs"]),
    "By channels": lambda records: sweep_part(records, SWEEPS["channels"]),
    "By nodes": lambda records: sweep_part(records, SWEEPS["nodes"]),
    "By edges": edges,
    "By hops kept": hops,
    "Memory": memory,
    "Keeping less": saving,
    "Many runs at once": many,
    "How much of an epoch is matrix products": products,
    "A training with the paper's settings": accuracy,
    "The machine": machine,
}


def tables(records: Records) -> str:
    """All sections that there are records for, each with its heading."""
    found = {title: part(records) for title, part in SECTIONS.items()}
    blocks = [[f"### {title}", *map(wrapped, paragraphs)] for title, paragraphs in found.items() if paragraphs]
    return "\n\n".join(paragraph for block in blocks for paragraph in block) + "\n"


def wrapped(paragraph: str) -> str:
    """Prose in lines of a bearable length; tables and figures as they are."""
    return paragraph if paragraph[0] in "|!" else fill(paragraph, 120, break_on_hyphens=False, break_long_words=False)


def chart(records: list[dict[str, Any]], sweep: Sweep) -> Lines:
    """Milliseconds per epoch by one value, one line per implementation."""
    ways = dict.fromkeys(way for record in records for way in timed(record))
    values = [value_of(record, sweep.key) / sweep.unit for record in records]
    entries = {way: [record["ways"].get(way, {}).get("seconds") for record in records] for way in ways}
    return Lines(
        name=f"speed-{sweep.name}",
        title=f"An epoch on {GRAPHS[kind_of(records[0])]} by {sweep.label}",
        x=Axis(sweep.axis, ticks=tuple((value, f"{value:,.7g}") for value in values), is_log=True),
        at=values,
        lines=[
            Line(way, [item and 1000 * item["median"] for item in found], WAY_COLOURS[way], has_dots=True)
            for way, found in entries.items()
        ],
        y=Axis("ms per epoch", is_log=True),
    )


def figures(records: Records) -> dict[str, str]:
    """The figures by name of their file; where a set has graphs of several kinds, the first."""
    found: dict[str, str] = {}
    for sweep in SWEEPS.values():
        chosen = recorded(records, sweep.name)
        chosen = [record for record in chosen if kind_of(record) == kind_of(chosen[0])]
        if chosen:
            drawn = figure(chart(chosen, sweep), size=(7.2, 4.2), legend="right")
            found[f"speed-{sweep.name}.svg"] = picture_files(drawn, ["svg"])["svg"].decode()
    return found


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="print the tables and write nothing")
    parser.add_argument("--records", type=Path, default=ROOT / "results" / "bench", help="folder of the records")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder of speed.md and its figures")
    arguments = parser.parse_args()
    records = load(arguments.records)
    if arguments.table:
        print(tables(records), end="")
        return
    page = arguments.docs / "speed.md"
    before, start, rest = page.read_text(encoding="utf-8").partition(START)
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"{page.name}: the lines {START.strip()} and {END.strip()} must be around the tables.")
    for name, text in figures(records).items():
        write_text(arguments.docs / name, text)
    write_text(page, f"{before}{start}\n{tables(records)}\n{end}{after}")


if __name__ == "__main__":
    main()
