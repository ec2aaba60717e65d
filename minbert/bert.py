"""BERT (Devlin et al. 2019, section 3) over ragged batches, with the module names of the CS 224N course.

Axes: T tokens in the batch, B sentences, L length of a padded row, D hidden.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from minbert import weights
from minbert.attention import Layer, in_length_order, sorted_by_length
from minbert.config import BertConfig
from minbert.errors import UserError
from minbert.ragged import Ragged, inverse

# MKL finds out the processor in the first call of any of its vector functions (tanh, exp, log, erf). If two threads
# make this call at once, one of them may compute its part with the kernel of least accuracy, for tanh 5e-5 off
# (https://github.com/pytorch/pytorch/issues/188792). One element takes one thread.
torch.tanh(torch.zeros(1, device="cpu"))


class Outputs(dict[str, Tensor]):
    """A dict whose values are attributes too, and can be indexed by their position, as in transformers."""

    def __getitem__(self, key: str | int | slice) -> Any:
        if isinstance(key, int | slice):
            return tuple(self.values())[key]
        return super().__getitem__(key)

    def __getattr__(self, name: str) -> Tensor:
        if name not in self:
            raise AttributeError(f"no output {name!r}; there are {', '.join(self)}")
        return self[name]


class BertModel(nn.Module):
    """The encoder: token ids to hidden states, or to one pooled vector per sentence."""

    def __init__(self, config: BertConfig | None = None) -> None:
        super().__init__()
        if config is None:
            config = BertConfig()
        self.config = config
        width = config.hidden_size
        self.word_embedding = nn.Embedding(config.vocab_size, width)
        self.pos_embedding = nn.Embedding(config.max_position_embeddings, width)
        self.tk_type_embedding = nn.Embedding(config.type_vocab_size, width)
        self.embed_layer_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.embed_dropout = nn.Dropout(config.hidden_dropout_prob)
        self.bert_layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.pooler_dense: nn.Linear | None = nn.Linear(width, width)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=config.initializer_range)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    @classmethod
    def from_pretrained(cls, name_or_dir: str | Path) -> "BertModel":
        """Load weights from a folder, `minilm` or a hub name; the model is in evaluation mode.

        `minbert.fast.accelerate(model)` makes it faster. Raises `UserError` if the weights are missing or do not fit
        the config.
        """
        folder = weights.resolve(str(name_or_dir), vocabulary=False)
        return cls.with_weights(folder, BertConfig.read(folder)).eval()

    @classmethod
    def with_weights(cls, folder: Path, config: BertConfig) -> "BertModel":
        """A model in training mode with the weights of a folder. Raises `UserError` if they do not fit `config`.

        The shapes are compared before the model takes any memory. Weights without the pooling layer give a model
        without one: every pooler but `pooler` works.
        """
        with weights.shapes_only():
            model = cls(config)
        tensors = weights.read(folder)
        # many checkpoints have none, as masked language models need none
        if not any("pooler" in name for name in tensors):
            model.pooler_dense = None
        state = weights.to_state_dict(tensors, model, folder / "model.safetensors")
        model.to_empty(device="cpu").load_state_dict(state)
        return model

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.word_embedding.weight.device

    def embed(self, ragged: Ragged) -> Tensor:
        """Sum of word, position and token type embeddings, then layer normalisation and dropout: [T, D].

        Raises `UserError` if a sentence has more tokens than the encoder has positions.
        """
        positions = self.config.max_position_embeddings
        longest = max(ragged.lengths)
        if longest > positions:  # on a GPU the lookup would end the process
            raise UserError(f"a sentence of {longest} tokens: the encoder has {positions} positions")
        x = self.word_embedding(ragged.ids) + self.pos_embedding(ragged.positions)
        x = x + self.tk_type_embedding(ragged.types)
        return self.embed_dropout(self.embed_layer_norm(x))

    def encode(self, x: Tensor, ragged: Ragged) -> list[Tensor]:
        """Hidden states from embeddings [T, D]: the input, then every layer's output, each [T, D].

        Fastest if the sentences are already sorted by length.
        """
        # on a CPU attention is one call for each run of sentences of equal length: of sorted ones there are few
        ordered = sorted_by_length(ragged)
        if ordered is not None:
            x = x.index_select(0, ordered.token_order)
            ragged = ordered.ragged
        states = [x]
        for layer in self.bert_layers:
            x = layer(x, ragged)
            states.append(x)
        if ordered is None:
            return states
        back = inverse(ordered.token_order)
        return [state.index_select(0, back) for state in states]

    def pooled(self, ragged: Ragged) -> Tensor:
        """tanh(W h_[CLS] + b) for each sentence: [B, D]."""
        return in_length_order(self._pooled, ragged)

    def _pooled(self, ragged: Ragged) -> Tensor:
        x = self.embed(ragged)
        for layer in self.bert_layers[:-1]:
            x = layer(x, ragged)
        # the last layer computes only the [CLS] tokens
        return self.pool(self.bert_layers[-1](x, ragged, ragged.starts))

    def pool(self, first: Tensor) -> Tensor:
        """tanh(W h + b) of [CLS] hidden states: [B, D] to [B, D]. Raises `UserError` as `pooling_layer` does."""
        return torch.tanh(self.pooling_layer()(first))

    def pooling_layer(self, label: str = "") -> nn.Linear:
        """The pooling layer of next-sentence prediction. Raises `UserError`, beginning with `label`, without one."""
        if self.pooler_dense is None:
            raise UserError(f"{label}the weights have no pooling layer: choose another pooler, such as mean")
        return self.pooler_dense

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Outputs:
        """The course's interface: a padded batch [B, L], its mask [B, L], 1 for tokens and 0 for padding, and types.

        Returns `last_hidden_state` [B, L, D], zero where the mask is 0, and `pooler_output` [B, D], which weights
        without a pooling layer do not have. Raises `UserError` for an empty batch, and for ids, types and positions
        that have no embedding; a token's position is its column.
        """
        ragged = Ragged.from_padded(input_ids, attention_mask, token_type_ids)
        _check_ids("input_ids", input_ids, self.config.vocab_size)
        _check_ids("positions", ragged.positions, self.config.max_position_embeddings)
        if token_type_ids is not None:
            _check_ids("token_type_ids", token_type_ids, self.config.type_vocab_size)
        last = self.encode(self.embed(ragged), ragged)[-1]
        outputs = Outputs(last_hidden_state=ragged.to_padded(last, input_ids.shape[1]))
        if self.pooler_dense is not None:
            outputs["pooler_output"] = self.pool(last.index_select(0, ragged.starts))
        return outputs


def _check_ids(name: str, ids: Tensor, rows: int) -> None:
    """Raises `UserError` for ids that have no row in an embedding; on a GPU such a lookup would end the process."""
    # a device sync
    low, high = torch.stack(ids.aminmax()).tolist()
    if low < 0 or high >= rows:
        raise UserError(f"{name} reach from {low} to {high}; the encoder embeds 0 to {rows - 1}")
