"""BERT (Devlin et al. 2019, section 3) over ragged batches; module names are those of the CS 224N course.

Axes: T tokens in the batch, B sentences, L length of a padded row, D hidden, H heads, d = D / H.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from minbert import weights
from minbert.attention import attend
from minbert.config import BertConfig
from minbert.dropout import Dropout
from minbert.linear import Linear, linear
from minbert.packed import Packed
from minbert.ragged import Ragged, inverse


class SelfAttention(nn.Module):
    """Multi-head attention up to, and without, its output projection."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.dropout = config.attention_probs_dropout_prob
        self.query = Linear(config.hidden_size, config.hidden_size)
        self.key = Linear(config.hidden_size, config.hidden_size)
        self.value = Linear(config.hidden_size, config.hidden_size)
        self.packed: Packed | None = None  # of query, key and value

    def forward(self, x: Tensor, ragged: Ragged, rows: Tensor | None = None) -> Tensor:
        """Attend over each sentence of [T, D]; `rows` asks for some rows only: one for each sentence, [B]."""
        if rows is None:
            q, k, v = self._project(x, self.query, self.key, self.value)
        else:
            (q,), (k, v) = self._project(x.index_select(0, rows), self.query), self._project(x, self.key, self.value)
        return attend(q, k, v, ragged, self.dropout if self.training else 0.0).flatten(1)  # [T, D]

    def _project(self, x: Tensor, *projections: Linear) -> list[Tensor]:
        """Several projections of [T, D] in one product, each given as [T, H, d]."""
        packed = self.packed
        if packed and len(projections) == 3:
            return self._by_head(packed(x), 3)
        weight = torch.cat([projection.weight for projection in projections])
        bias = torch.cat([projection.bias for projection in projections])
        return self._by_head(linear(x, weight, bias), len(projections))

    def _by_head(self, projected: Tensor, count: int) -> list[Tensor]:
        return [part.unflatten(1, (self.heads, -1)) for part in projected.chunk(count, 1)]


class Layer(nn.Module):
    """Attention, then a feed-forward network, each added to its input and normalised."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        wide, narrow = config.intermediate_size, config.hidden_size
        self.self_attention = SelfAttention(config)
        self.attention_dense = Linear(narrow, narrow)
        self.attention_layer_norm = nn.LayerNorm(narrow, eps=config.layer_norm_eps)
        self.interm_dense = Linear(narrow, wide)
        self.out_dense = Linear(wide, narrow)
        self.out_layer_norm = nn.LayerNorm(narrow, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def pack(self, dtype: torch.dtype) -> None:
        """Multiply with packed weights from here on."""
        attention = self.self_attention
        attention.packed = Packed([attention.query, attention.key, attention.value], dtype)
        for dense in (self.attention_dense, self.interm_dense, self.out_dense):
            dense.packed = Packed([dense], dtype)

    def unpack(self) -> None:
        """Multiply with the weights themselves again."""
        for module in (self.self_attention, self.attention_dense, self.interm_dense, self.out_dense):
            module.packed = None

    def forward(self, x: Tensor, ragged: Ragged, rows: Tensor | None = None) -> Tensor:
        """[T, D] to [T, D], or to [B, D] where `rows` names one row of each sentence."""
        kept = x if rows is None else x.index_select(0, rows)
        mixed = self.attention_dense(self.self_attention(x, ragged, rows))
        x = self.attention_layer_norm(self.dropout.add(kept, mixed))
        return self.out_layer_norm(self.dropout.add(x, self.out_dense(self.interm_dense.gelu(x))))


class BertModel(nn.Module):
    """The encoder: token ids to hidden states and to one pooled vector a sentence."""

    def __init__(self, config: BertConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or BertConfig()
        width = config.hidden_size
        self.word_embedding = nn.Embedding(config.vocab_size, width)
        self.pos_embedding = nn.Embedding(config.max_position_embeddings, width)
        self.tk_type_embedding = nn.Embedding(config.type_vocab_size, width)
        self.embed_layer_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.embed_dropout = Dropout(config.hidden_dropout_prob)
        self.bert_layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.pooler_dense = Linear(width, width)
        self.apply(self._initialise)

    def _initialise(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=self.config.initializer_range)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)

    @classmethod
    def from_pretrained(cls, name_or_dir: str | Path) -> "BertModel":
        """An encoder with the weights of a folder, of `minilm`, or of a hub name, in evaluation mode.

        Raises `UserError` where the weights cannot be had or do not fit the config.
        """
        folder = weights.resolve(str(name_or_dir))
        model = cls(BertConfig.read(folder))
        model.load_state_dict(weights.read(folder, model))
        return model.eval()

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.pooler_dense.weight.device

    def embed(self, ragged: Ragged) -> Tensor:
        """Sum of word, position and type embeddings, normalised, with dropout: [T, D]."""
        x = self.word_embedding(ragged.ids) + self.pos_embedding(ragged.positions)
        return self.embed_dropout(self.embed_layer_norm(x + self.tk_type_embedding(ragged.types)))

    def encode(self, x: Tensor, ragged: Ragged) -> list[Tensor]:
        """Hidden states from embeddings [T, D]: the input, then every layer's output, each [T, D].

        Fastest where the sentences are sorted by length already.
        """
        if ragged.by_length is not None:
            ragged, order, _ = ragged.by_length
            back = inverse(order)
            return [state.index_select(0, back) for state in self.encode(x.index_select(0, order), ragged)]
        states = [x]
        for layer in self.bert_layers:
            states.append(layer(states[-1], ragged))
        return states

    def pooled(self, ragged: Ragged) -> Tensor:
        """tanh(W h_[CLS] + b) for each sentence, [B, D]; the last layer computes only the [CLS] rows."""
        if ragged.by_length is not None:
            ragged, _, order = ragged.by_length
            return self.pooled(ragged).index_select(0, inverse(order))
        x = self.embed(ragged)
        for layer in self.bert_layers[:-1]:
            x = layer(x, ragged)
        return self.pool(self.bert_layers[-1](x, ragged, ragged.starts))

    def pool(self, first: Tensor) -> Tensor:
        """The pooler of the next-sentence task over [CLS] rows [B, D]."""
        return torch.tanh(self.pooler_dense(first))

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Tensor]:
        """The course's interface over a padded [B, L] batch with a mask of 1 for real tokens.

        Returns `last_hidden_state` [B, L, D], zero where the mask is 0, and `pooler_output` [B, D].
        """
        ragged = Ragged.from_padded(input_ids, attention_mask)
        last = self.encode(self.embed(ragged), ragged)[-1]
        return {
            "last_hidden_state": ragged.to_padded(last, input_ids.shape[1]),
            "pooler_output": self.pool(last.index_select(0, ragged.starts)),
        }
