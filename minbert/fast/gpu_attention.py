"""Attention over a whole batch in one call without padding, by the flash attention of a GPU (Dao et al. 2022).

`torch.nn.attention.varlen` offers it without dropout, so this file calls torch's own operator, which is not public.
Where the operator cannot be used, or has changed, the batch is padded instead (`minbert.attention.padded`).

Axes: T tokens in the batch, B sentences, H heads, d width of a head.
"""

import warnings
from functools import cache

import torch
from torch import Tensor

from minbert.attention import padded
from minbert.ragged import Ragged

# The meta device counts as a recent GPU, so that tests choose this kernel without one.
_GPUS = ("cuda", "meta")
ARGUMENTS = "query key value cum_seq_q cum_seq_k max_q max_k dropout_p is_causal return_debug_mask"
"""The positional arguments that `flash` passes to torch's operator."""


def attend(query: Tensor, key: Tensor, value: Tensor, ragged: Ragged, dropout: float) -> Tensor:
    """`minbert.attention.attend` by the fastest kernel of a GPU.

    `query` is [T, H, d], or [B, H, d] for one query per sentence; `key` and `value` are [T, H, d].
    """
    if kernel_name(query.device, query.dtype, query.shape[2]) == "flash":
        return flash(query, key, value, ragged, dropout)
    return padded(query, key, value, ragged, dropout)


@cache
def kernel_name(device: torch.device, dtype: torch.dtype, width: int) -> str:
    """The attention of an accelerated model for heads of d = `width`: "grouped" on a CPU, else "flash" or "padded".

    Flash attention needs half precision, compute capability 8.0 and a width divisible by 8, at most 256.
    """
    if device.type == "cpu":
        return "grouped"
    half = dtype in (torch.float16, torch.bfloat16)
    if device.type not in _GPUS or not half or width % 8 != 0 or width > 256:
        return "padded"
    recent = device.type == "meta" or torch.cuda.get_device_capability(device) >= (8, 0)
    return "flash" if recent and _has_flash() else "padded"


def _has_flash() -> bool:
    """Whether torch has the operator with the arguments that this file passes; warns if not."""
    operator = getattr(torch.ops.aten, "_flash_attention_forward", None)
    arguments = operator.default._schema.arguments if operator is not None else []
    if " ".join(argument.name for argument in arguments if not argument.kwarg_only) == ARGUMENTS:
        return True
    warnings.warn(
        f"torch {torch.__version__} has changed the arguments of _flash_attention_forward; attention pads the batch "
        "instead, which is slower",
        stacklevel=2,
    )
    return False


def flash(query: Tensor, key: Tensor, value: Tensor, ragged: Ragged, dropout: float) -> Tensor:
    """All sentences in one call of flash attention."""
    longest = max(ragged.lengths)
    ends = ragged.cu_seqlens
    most_queries = longest
    if len(query) != len(ragged.ids):  # one query per sentence
        ends = torch.arange(len(ragged) + 1, dtype=torch.int32, device=query.device)
        most_queries = 1
    kernel = torch.ops.aten._flash_attention_forward
    return kernel(query, key, value, ends, ragged.cu_seqlens, most_queries, longest, dropout, False, False)[0]
