"""Attention over a whole batch in one call without padding, by the variable-length kernels of a GPU.

`torch.nn.attention.varlen` offers flash attention without dropout, so these functions call torch's own operators, which
are not public. Where an operator is missing or has changed, the batch is padded instead (`minbert.attention.padded`).

Axes: T tokens in the batch, B sentences, H heads, d width of a head.
"""

import warnings
from functools import cache

import torch
from torch import Tensor

from minbert.attention import padded
from minbert.ragged import Ragged

# The meta device counts as a recent GPU, so that tests choose these kernels without one.
_GPUS = ("cuda", "meta")
# The positional arguments that `flash` and `efficient` pass.
ARGUMENTS = {
    "_flash_attention_forward": (
        "query key value cum_seq_q cum_seq_k max_q max_k dropout_p is_causal return_debug_mask"
    ),
    "_efficient_attention_forward": (
        "query key value bias cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k dropout_p custom_mask_type "
        "compute_log_sumexp"
    ),
}


def attend(query: Tensor, key: Tensor, value: Tensor, ragged: Ragged, dropout: float) -> Tensor:
    """`minbert.attention.attend` by the fastest kernel of a GPU.

    `query` is [T, H, d], or [B, H, d] for one query per sentence; `key` and `value` are [T, H, d].
    """
    name = kernel_name(query.device, query.dtype, query.shape[2], dropout)
    if name == "flash":
        return flash(query, key, value, ragged, dropout)
    if name == "efficient":
        return efficient(query, key, value, ragged)
    return padded(query, key, value, ragged, dropout)


@cache
def kernel_name(device: torch.device, dtype: torch.dtype, width: int, dropout: float = 0.0) -> str:
    """The attention of an accelerated model for heads of d = `width`: "grouped" on a CPU, else as `attend` chooses.

    Flash attention (Dao et al. 2022) needs half precision, compute capability 8.0 and a width divisible by 8; the
    memory-efficient kernel (Rabe & Staats 2021) needs fp32 or fp16, aligned to 16 bytes.
    """
    if device.type == "cpu":
        return "grouped"
    if device.type not in _GPUS:
        return "padded"
    recent = device.type == "meta" or torch.cuda.get_device_capability(device) >= (8, 0)
    half = dtype in (torch.float16, torch.bfloat16)
    aligned = width * dtype.itemsize % 16 == 0
    if half and recent and width % 8 == 0:
        return "flash" if _has_operator("_flash_attention_forward") else "padded"
    # With dropout and sentences of several lengths, the backward pass of this kernel draws another mask.
    if dtype in (torch.float32, torch.float16) and aligned and not dropout:
        return "efficient" if _has_operator("_efficient_attention_forward") else "padded"
    return "padded"


def _has_operator(name: str) -> bool:
    """Whether torch has the operator with the arguments that this file passes; warns if not."""
    operator = getattr(torch.ops.aten, name, None)
    arguments = operator.default._schema.arguments if operator is not None else []
    if " ".join(argument.name for argument in arguments if not argument.kwarg_only) == ARGUMENTS[name]:
        return True
    warnings.warn(
        f"torch {torch.__version__} has changed the arguments of {name}; attention pads the batch instead, which is "
        "slower",
        stacklevel=2,
    )
    return False


def flash(query: Tensor, key: Tensor, value: Tensor, ragged: Ragged, dropout: float = 0.0) -> Tensor:
    """All sentences in one call of flash attention."""
    ends, max_queries = _query_ends(query, ragged)
    longest = max(ragged.lengths)
    kernel = torch.ops.aten._flash_attention_forward
    return kernel(query, key, value, ends, ragged.cu_seqlens, max_queries, longest, dropout, False, False)[0]


def efficient(query: Tensor, key: Tensor, value: Tensor, ragged: Ragged) -> Tensor:
    """All sentences in one call of the memory-efficient kernel, without dropout, for older GPUs and for fp32."""
    ends, max_queries = _query_ends(query, ragged)
    output: Tensor = torch.ops.aten._efficient_attention_forward(
        query.unsqueeze(0),  # [1, T or B, H, d]
        key.unsqueeze(0),
        value.unsqueeze(0),
        None,
        ends,
        ragged.cu_seqlens,
        max_queries,
        max(ragged.lengths),
        0.0,
        0,
        torch.is_grad_enabled(),
    )[0]
    return output.squeeze(0)


def _query_ends(query: Tensor, ragged: Ragged) -> tuple[Tensor, int]:
    """Cumulative numbers of queries of the sentences, int32 [B + 1], and the largest number of a sentence."""
    if len(query) == len(ragged.ids):
        return ragged.cu_seqlens, max(ragged.lengths)
    return torch.arange(len(ragged) + 1, dtype=torch.int32, device=query.device), 1
