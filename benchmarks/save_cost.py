"""The cost of a checkpoint: plain safetensors writing of the same tensors, synced, and the loop's own save.

python -m benchmarks.save_cost --to DIR      a folder on the disk to measure
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import safetensors.torch
import torch

from benchmarks import harness
from minbert.bert import BertModel
from minbert.config import BertConfig
from minbert.files import sync
from minbert.optimizer import AdamW
from minbert.training import checkpoint, cli

KEYS = ("exp_avg", "exp_avg_sq")


def main() -> None:
    """Print the seconds of each, with quartiles."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, required=True, help="folder on the disk to measure")
    parser.add_argument("--times", type=int, default=5, help="(default: %(default)s)")
    options = parser.parse_args()
    model = BertModel(BertConfig())  # bert-base
    optimizer = AdamW(model.parameters(), lr=1e-5)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()

    def plain(number: int) -> None:
        moments = {
            f"{key}/{number}": state[key] for number, state in enumerate(optimizer.state.values()) for key in KEYS
        }
        for name, tensors in (("model", model.state_dict()), ("optimizer", moments)):
            path = folder / f"{name}.safetensors"
            safetensors.torch.save_file(tensors, path)
            sync(path)

    def ours(number: int) -> None:
        checkpoint.save(folder, number, model, optimizer, {})
        checkpoint.rotate(folder, {number})

    with TemporaryDirectory(dir=options.to) as name:
        folder = Path(name)
        seconds = harness.measure({"plain": plain, "checkpoint": ours}, range(options.times + 1), 1)
    harness.print_machine("torch", "safetensors")
    print(harness.markdown(seconds, "save", ["plain"]))


if __name__ == "__main__":
    cli.run(main)
