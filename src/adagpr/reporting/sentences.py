"""What a page says in words: the sentences at its top, made from the same numbers as its pictures."""

from __future__ import annotations

from contextlib import suppress
from statistics import fmean

from adagpr.errors import InputError
from adagpr.insight import Comparison, Explanation
from adagpr.reporting.reported_model import ReportedModel


def headline(model: ReportedModel) -> list[tuple[str, str]]:
    """The numbers at the top of the page, each with what it is."""
    is_single, data = len(model.runs) == 1, model.record["data"]
    numbers = []
    if data["num_test"]:
        mean, low, high = model.accuracy()
        over = f"on {data['num_test']} test nodes" if is_single else f"over {len(model.runs)} runs"
        numbers += [(f"{mean:.1f} %", f"test accuracy {over}"), (f"{low:.1f} to {high:.1f}", "its 95 % interval")]
        with suppress(InputError):  # older runs were not measured by it
            scores = [run.score("test", "macro_f1") for run in model.runs]
            numbers.append((f"{fmean(scores):.3f}", "test macro F1: every class counts the same"))
    if data["num_val"]:
        words = f"on {data['num_val']} validation nodes" if is_single else "validation accuracy"
        numbers.append((f"{model.accuracy('val')[0]:.1f} %", words))
    if is_single:
        epochs = f"{model.first.best_epoch} of {model.first.num_epochs}"
        numbers.append((epochs, "epochs: chosen by validation, trained"))
    return numbers


def sentences(model: ReportedModel) -> list[str]:
    """What the page says about the graph, for somebody who reads nothing else of it."""
    messages = []
    found = model.explanation
    if len(model.runs) > 1:
        split, seed = model.record["data"]["split"], model.record["config"]["training"]["seed"]
        messages.append(
            f"What follows, sentences and pictures, is split {split} with seed {seed}, the first of "
            f"{len(model.runs)} runs, unless it says mean."
        )
    if found is not None:
        idle = [part.layer for part in found.layers if not part.uses_graph]
        if len(idle) == len(found.layers):
            messages.append("No layer uses the graph: every prediction reads nothing but its own node.")
        else:
            some = f"{len(found.layers) - len(idle)} of {len(found.layers)} layers use"
            which, reach = some if idle else "Every layer uses", found.reach
            share = 100 * reach.mean_nodes / reach.num_nodes
            messages.append(
                f"{which} the graph. Together they look {reach.total_hops} hop{'s' * (reach.total_hops != 1)} far, "
                f"where a prediction can read {share:.0f} % of all nodes on average."
            )
            if found.ablations:
                messages.append(_worth(found))
    if model.bounds is not None:
        gap = model.bounds.transductive
        says = "which says nothing about a gap of at most 1" if gap.log10_total >= 0 else "which says something"
        messages.append(
            f"Test less training error is {100 * gap.error_gap:+.1f} points; the paper's bound allows "
            f"10^{gap.log10_total:.1f}, {says}."
        )
    return [*messages, *model.left_out]


def _worth(found: Explanation) -> str:
    """What the validation nodes lose without the graph."""
    without = found.ablations[0]
    if not (without.right_only_with or without.right_only_without):
        return "Taking the graph away from the trained weights changes no validation node from right to wrong or back."
    verb = "costs" if without.difference >= 0 else "gains"
    return (
        f"Taking the graph away from the trained weights {verb} {abs(without.difference):.1f} points on the validation "
        f"nodes: {without.right_only_with} are right only with it, {without.right_only_without} only without it."
    )


def paired_sentence(found: Comparison, one: str, other: str) -> str:
    """What the paired differences of two models say."""
    spread = ""
    if found.t_interval is not None:
        low, high = found.t_interval
        spread = f" (95 % interval {low:+.1f} to {high:+.1f}, p = {found.p_value:.3f}, {len(found.pairs)} pairs)"
    node = "" if found.node_points is None else f" One test node is {found.node_points:.1f} points."
    ahead = "ahead of" if found.mean_difference >= 0 else "behind"
    verdicts = {"A is better": f"{one} is better", "B is better": f"{other} is better"}
    verdict = verdicts.get(found.verdict, found.verdict) if spread else "one pair shows no more than itself"
    difference = f"{abs(found.mean_difference):.1f} points {ahead} {other}{spread}"
    return f"In test accuracy {one} is {difference}: {verdict}.{node}"
