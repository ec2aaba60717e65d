"""Do a few very frequent tokens spoil the mean of a sentence's tokens? (ConSERT, section 5.1 and Figure 4.)

The k most frequent tokens are left out where the token vectors are averaged; the encoder still reads them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from minbert.bert import BertModel
from minbert.encode import Encoder
from minbert.ragged import Ragged
from tasks.benchmarks import correlation
from tasks.benchmarks.sets import ScoredSet
from tasks.benchmarks.vectors import Way, cosines, encode

# The layers whose token vectors are averaged, for the poolers that are means of tokens.
LAYERS = {"mean": (-1,), "avg-first-last": (1, -1), "avg-static-last": (0, -1), "avg-last-two": (-2, -1)}
STEPS = (0, 1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 34, 36, 40, 50, 60, 80, 100)


def ranks(encoder: Encoder, texts: Iterable[str]) -> np.ndarray:
    """Rank of every id of the vocabulary by frequency: int64 [vocabulary], 0 the most frequent; unseen ids come last.

    [CLS] and [SEP] stand in every text once, beside the words. Ties go to the smaller id.
    """
    texts = list(texts)
    counts = Counter(number for ids in encoder.tokenizer.encode(texts) for number in ids)
    counts.update({encoder.tokenizer.cls: len(texts), encoder.tokenizer.sep: len(texts)})
    frequency = np.zeros(encoder.model.config.vocab_size, dtype=np.int64)
    frequency[list(counts)] = list(counts.values())
    rank = np.empty(len(frequency), dtype=np.int64)
    rank[np.argsort(-frequency, kind="stable")] = np.arange(len(frequency))
    return rank


def mean_without(rank: Tensor, removed: int, layers: Sequence[int]) -> Way:
    """The mean of the tokens whose rank is `removed` or more; a sentence that has none keeps all of its tokens."""

    def pool(model: BertModel, states: Sequence[Tensor], ragged: Ragged) -> Tensor:
        x = torch.stack([states[layer].float() for layer in layers]).mean(0)
        sentence = torch.repeat_interleave(
            torch.arange(len(ragged), device=x.device), torch.tensor(ragged.lengths, device=x.device)
        )
        kept = (rank.to(x.device)[ragged.ids] >= removed).float()
        empty = x.new_zeros(len(ragged)).index_add(0, sentence, kept) == 0
        kept = torch.where(empty[sentence], torch.ones_like(kept), kept)
        total = x.new_zeros(len(ragged), x.shape[1]).index_add(0, sentence, x * kept[:, None])
        return total / x.new_zeros(len(ragged)).index_add(0, sentence, kept)[:, None]

    return pool


def curve(
    encoder: Encoder, pooler: str, sets: Sequence[ScoredSet], counted: Iterable[str], removed: Sequence[int],
    *, name: str,
) -> list[float | None]:  # fmt: skip
    """Mean over the sets of Spearman's rho (protocol `all`) without the k most frequent tokens of `counted`.

    `name` says on standard error whose texts were cut, if any are.
    """
    rank = torch.from_numpy(ranks(encoder, counted))
    texts = list(dict.fromkeys(text for one in sets for pair in one.pairs for text in pair))
    places = {text: place for place, text in enumerate(texts)}
    ways = {str(number): mean_without(rank, number, LAYERS[pooler]) for number in removed}
    found = encode(encoder, texts, ways, name=name)
    return [_score(sets, _looked_up(found[str(number)], places)) for number in removed]


def _looked_up(vectors: np.ndarray, places: dict[str, int]) -> Callable[[Sequence[str]], np.ndarray]:
    return lambda texts: vectors[[places[text] for text in texts]]


def _score(sets: Sequence[ScoredSet], vectors: Callable[[Sequence[str]], np.ndarray]) -> float | None:
    values = []
    for one in sets:
        sides = [vectors([pair[side] for pair in one.pairs]) for side in (0, 1)]
        values.append(correlation.score("all", "spearman", [(cosines(*sides), one.gold)]))
    return correlation.mean_of(values)
