"""BERT (Devlin et al. 2019, section 3) over ragged batches, with the module names of the CS 224N course.

Axes: T tokens in the batch, B sentences, L length of a padded row, D hidden.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from minbert import weights
from minbert.attention import Layer, in_length_order, sorted_by_length
from minbert.config import BertConfig
from minbert.errors import UserError
from minbert.ragged import Ragged, inverse


class Outputs(dict[str, Tensor]):
    """A dict whose values are attributes too, as in transformers."""

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
        self.pooler_dense = nn.Linear(width, width)
        self.apply(self._initialise)

    def _initialise(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=self.config.initializer_range)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)

    @classmethod
    def from_pretrained(cls, name_or_dir: str | Path) -> "BertModel":
        """Load weights from a folder, `minilm` or a hub name; the model is in evaluation mode.

        `minbert.fast.accelerate(model)` makes it faster. Raises `UserError` if the weights are missing or do not fit
        the config.
        """
        folder = weights.resolve(str(name_or_dir))
        return cls.with_weights(folder, BertConfig.read(folder)).eval()

    @classmethod
    def with_weights(cls, folder: Path, config: BertConfig) -> "BertModel":
        """A model in training mode with the weights of a folder. Raises `UserError` if they do not fit `config`.

        The shapes are compared before the model takes any memory.
        """
        with weights.shapes_only():
            model = cls(config)
        state = weights.read(folder, model)
        model.to_empty(device="cpu").load_state_dict(state)
        return model

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.pooler_dense.weight.device

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
        ordered = sorted_by_length(ragged)
        if ordered is None:
            return self._hidden_states(x, ragged)
        states = self._hidden_states(x.index_select(0, ordered.tokens), ordered.ragged)
        back = inverse(ordered.tokens)
        return [state.index_select(0, back) for state in states]

    def _hidden_states(self, x: Tensor, ragged: Ragged) -> list[Tensor]:
        states = [x]
        for layer in self.bert_layers:
            x = layer(x, ragged)
            states.append(x)
        return states

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
        """The pooling layer of next-sentence prediction: [CLS] hidden states [B, D] to [B, D]."""
        return torch.tanh(self.pooler_dense(first))

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Outputs:
        """The course's interface: a padded batch [B, L] and its mask [B, L], 1 for tokens and 0 for padding.

        Returns `last_hidden_state` [B, L, D], zero where the mask is 0, and `pooler_output` [B, D]. Raises `UserError`
        if L is above the number of positions, as a token's position is its column.
        """
        positions = self.config.max_position_embeddings
        columns = input_ids.shape[-1]
        if columns > positions:
            raise UserError(f"a batch of {columns} columns: the encoder has {positions} positions")
        ragged = Ragged.from_padded(input_ids, attention_mask)
        last = self.encode(self.embed(ragged), ragged)[-1]
        return Outputs(
            last_hidden_state=ragged.to_padded(last, columns),
            pooler_output=self.pool(last.index_select(0, ragged.starts)),
        )
