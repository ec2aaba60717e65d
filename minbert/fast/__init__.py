"""What is only there for speed: `accelerate(model)` puts fast modules in place of a model's plain ones.

A test holds each piece against its plain twin. `minbert.fast.graphs` replays training steps on a GPU.
"""

from minbert.fast.memory import tune_allocator
from minbert.fast.modules import accelerate, packed_weights

__all__ = ["accelerate", "packed_weights", "tune_allocator"]
