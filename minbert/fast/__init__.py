"""What is only there for speed: `accelerate(model)` puts fast modules in place of a model's plain ones.

A test holds each piece against its plain twin. `minbert.fast.graphs` replays training steps on a GPU.
"""

from minbert.fast.modules import accelerate, keep_freed_memory, packed_weights

__all__ = ["accelerate", "keep_freed_memory", "packed_weights"]
