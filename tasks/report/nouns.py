"""CBCL's Table 2: are the proper nouns of failed pairs rarer in the fine-tuning sentences than those of others?"""

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd

from minbert.errors import UserError
from minbert.seeds import numpy_generator
from tasks.augment import wordnet
from tasks.report.annotation import original_rows
from tasks.runs import Run
from tasks.tables import MISSING, Table

EXAMINED = 1300  # dev pairs, as in CBCL, section 6.1
SHOWN = 3  # pairs of each side
_WORD = re.compile(r"[^\W\d_]+(?:[-’'][^\W\d_]+)*")
_TOKEN = re.compile(rf"{_WORD.pattern}|\d+(?:[.,]\d+)*|[^\w\s]")


def words(text: str) -> list[str]:
    """The words of a text in lower case, hyphens inside them kept, a possessive 's cut off."""
    return [_bare(word).lower() for word in _WORD.findall(text)]


def _bare(word: str) -> str:
    return re.sub(r"[’']s$", "", word)


def proper_nouns(text: str, tag: wordnet.Tagger) -> list[str]:
    """The words of a text with the tag NNP or NNPS, in order, each once."""
    tagged = tag(_TOKEN.findall(text))
    return list(dict.fromkeys(_bare(token) for token, name in tagged if name in ("NNP", "NNPS") and _WORD.match(token)))


def pairs_of(run: Run, task: str, *, seed: int, data: Path | None = None) -> pd.DataFrame:
    """1,300 labelled dev pairs with their proper nouns, counted over the sentences of all fine-tuning files.

    The columns are `texts` as published, `right` for a correct prediction, `nouns` with their counts in training, and
    `rarest`, the least of these (NaN without nouns). A noun is counted as a word whatever its case. Pairs are sampled
    by the counter (seed, "nouns", task). `UserError` if the run has no dev rows of `task`, its data files are missing,
    or NLTK's tagger is not installed.
    """
    scores = run.tasks.get(task)
    if not run.multitask or scores is None or scores.rows is None or not scores.classes:
        raise UserError(f"{run.folder}: has no dev rows of a task {task} with classes")
    tag = wordnet.tagger(wordnet.find_nltk_data(str(data or "")))
    rows = scores.rows.labelled()
    rows = rows.at(np.sort(numpy_generator(seed, "nouns", task).permutation(len(rows))[:EXAMINED]))
    texts = {row.id: row.texts for row in original_rows(run, task, "dev", data)}
    train = (text for name in run.tasks for row in original_rows(run, name, "train", data) for text in row.texts)
    counts = Counter(word for text in train for word in words(text))
    pairs = pd.DataFrame({"texts": [texts[id_] for id_ in rows.ids], "right": rows.predicted == rows.gold})
    pairs["nouns"] = [
        {noun: counts[noun.lower()] for text in pair for noun in proper_nouns(text, tag)} for pair in pairs["texts"]
    ]
    return pairs.assign(rarest=[min(nouns.values(), default=np.nan) for nouns in pairs["nouns"]])


def tables(pairs: pd.DataFrame) -> list[Table]:
    """The summary over all pairs, and three correct and three failed ones with the rarest nouns."""
    rows, examples = [], []
    for name, right in (("predicted correctly", True), ("predicted incorrectly", False)):
        every = pairs[pairs["right"] == right]
        side = every.dropna(subset="rarest")
        unseen = int((side["rarest"] == 0).sum())
        rows.append(
            {
                "dev pairs": name,
                "examined": f"{len(every):,}",
                "with a proper noun": f"{len(side):,}",
                "a noun in no training file": f"{unseen:,} ({unseen / len(side):.0%})" if len(side) else MISSING,
                "rarest noun: median count": f"{side['rarest'].median():g}" if len(side) else MISSING,
            }
        )
        for _, pair in side.sort_values("rarest", kind="stable").head(SHOWN).iterrows():
            nouns = ", ".join(f"{noun}: {count:,}" for noun, count in pair["nouns"].items())
            examples.append({"pair": " / ".join(pair["texts"]), "noun frequency": nouns, "dev pairs": name})
    tables = [Table("Proper nouns and failed pairs", pd.DataFrame(rows))]
    return [*tables, Table("Pairs with the rarest nouns", pd.DataFrame(examples), left=3)] if examples else tables
