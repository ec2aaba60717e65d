"""The share of words that each way of replacing synonyms changes, in the NLI triplets (CBCL, section 4.4).

python ablations/changed_words.py --data DIR > ablations/results/changed-words.csv
"""

import re
import sys
from itertools import chain
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pandas as pd

from minbert.files import data_path
from minbert.train.cli import Parser, run
from tasks import readers
from tasks.augment import synonyms, wordnet

P = 0.25
"""The paper's probability of a batch (method 3); here it is that of a word too (methods 1 and 2)."""
FILES = ("nli_for_simcse.csv", "nli-triplets.csv")


def main() -> None:
    """Count the words and texts that have a synonym, for each method and choice of senses, and print them as CSV."""
    parser = Parser(prog="python ablations/changed_words.py", doc=__doc__)
    parser.add_argument("--data", default="", metavar="DIR", help="folder of the data (default: $DATA_DIR, else data/)")
    options = parser.parse_args()
    path = readers.find_file(data_path(options.data), "nli", FILES)
    rows_read = readers.open_as(path, "triplet", "train").rows
    texts = list(dict.fromkeys(chain.from_iterable(row.texts for row in rows_read)))
    words = sum(len(re.findall(r"[^\W\d_]+", text)) for text in texts)
    folder = wordnet.find_nltk_data(options.data)
    keep = synonyms.words_of(synonyms.KEEP)
    rows = []
    for senses in ("first", "all"):
        tagged = wordnet.tag(texts, wordnet.WordNet(folder, senses, keep))
        for method, kinds in wordnet.PARTS_OF_METHOD.items():
            of_method = tagged.only(kinds)
            replaceable = len(of_method.spans)
            with_synonym = sum(bool(of_method.of(number)) for number in range(len(texts)))
            # method 3 replaces one adjective of each sentence of a batch
            changed = P * (with_synonym if method == 3 else replaceable)
            rows.append(
                {
                    "method": method,
                    "senses": senses,
                    "texts": len(texts),
                    "texts with a synonym": round(with_synonym / len(texts), 4),
                    "words": words,
                    "words with a synonym": round(replaceable / words, 4),
                    "words changed at p = 0.25": round(changed / words, 4),
                }
            )
    sys.stdout.write(pd.DataFrame(rows).to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    run(main)
