"""One rank that computes gradients in float64: ``python -m tests.partitioning.share_worker PARTS OUT [bfloat16]``."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from adagpr.nn import AdaGPR
from adagpr.partitioning import group_from_environment, open_parts
from adagpr.training import TrainingConfig
from adagpr.training.partition_strategies import read_shard

DEPTH, COEFFS, WIDTH = 16, 8, 8


def the_model() -> AdaGPR:
    model = AdaGPR(5, WIDTH, 3, num_layers=DEPTH, num_coeffs=COEFFS, dropout=0.0, projection="softmax")
    model.seed(1)
    return model.double()


def sent_by_network() -> int:
    """Bytes that have left this machine, or this namespace of it, by any wire."""
    devices = [device for device in Path("/sys/class/net").iterdir() if device.name != "lo"]
    return sum(int((device / "statistics" / "tx_bytes").read_text()) for device in devices)


def main(folder: str, out: str, *border: str) -> None:
    torch.set_num_threads(1)
    with group_from_environment() as group:
        sent_as = torch.bfloat16 if border else None
        share = read_shard(open_parts(folder), group, TrainingConfig(), sent_as, torch.float64)
        model = the_model()
        loss = share.loss(model)
        loss.backward()
        share.add_up_gradients(model)
        tensors = {f"grad/{name}": parameter.grad for name, parameter in model.named_parameters()}
        tensors |= {"loss": group.sum_(loss.detach().clone()).view(1), "logits": share.evaluate(model)}
        tensors["bytes"] = torch.tensor([group.num_bytes])
        tensors["wire"] = torch.tensor([sent_by_network()])
        kept = {name: value.contiguous() for name, value in tensors.items() if value is not None}
        save_file(kept, Path(out) / f"{group.rank}.safetensors")


if __name__ == "__main__":
    main(*sys.argv[1:])
