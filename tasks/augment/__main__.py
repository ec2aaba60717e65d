"""Preview synonyms or punctuation on a file: each text before and after, in the form `[old -> new]`.

python -m tasks.augment preview FILE [--method 1|2|3] [--p P] [--seed N] [--data DIR]
python -m tasks.augment preview FILE --marks english [--marks-most 3] [--seed N]
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from minbert.errors import UserError
from minbert.files import present
from minbert.token_cache import Row
from minbert.training.cli import Parser, run
from tasks.augment import wordnet
from tasks.augment.wordnet import KINDS, SENSES, Tagged, WordNet, tag
from tasks.readers import read_any

if TYPE_CHECKING:  # at run time torch would delay `--help`
    from tasks.augment.punctuation import Change


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m tasks.augment", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="preview")
    preview = commands.add_parser("preview", help="show texts before and after", allow_abbrev=False)
    preview.add_argument("file", type=Path, metavar="FILE", help="one sentence a line, or any of the data formats")
    preview.add_argument("--method", type=int, choices=tuple(KINDS), default=3, help="(default: 3)")
    p = "probability of a word (methods 1 and 2; default: 0.25), or of a batch, here a row (method 3; default: 1)"
    preview.add_argument("--p", type=float, help=p)
    preview.add_argument("--seed", type=int, default=11711, metavar="N", help="(default: 11711)")
    preview.add_argument("--limit", type=int, default=20, metavar="N", help="number of rows to show (default: 20)")
    preview.add_argument("--synonyms-senses", choices=SENSES, default="first", help="as in training (default: first)")
    marks = "insert punctuation instead (EdaCSE, Table 2): english, chinese or another kind, as in training"
    preview.add_argument("--marks", default="", metavar="KIND", help=marks)
    preview.add_argument("--marks-most", type=int, default=3, metavar="K", help="1 to K marks (default: 3)")
    preview.add_argument("--data", default="", metavar="DIR", help="data folder (default: $DATA_DIR, else data/)")
    return parser


def main(arguments: Sequence[str]) -> None:
    """The command line of `tasks.augment`. Raises `UserError` for invalid flags or files."""
    options = _parser().parse_args(arguments)
    p = options.p if options.p is not None else 1.0 if options.method == 3 else 0.25
    if not 0 <= p <= 1:
        raise UserError(f"--p: {p} is not between 0 and 1")
    if options.limit < 1:
        raise UserError(f"--limit: {options.limit} is less than 1")
    kind, all_rows = read_any(present(options.file))
    rows = [row for row in all_rows if isinstance(row, Row)][: options.limit]
    if not rows:
        raise UserError(f"{options.file}: no row to show")
    if options.marks:
        from tasks.augment.punctuation import insertions

        # row n is marked as in a training set, in its epoch 1
        settings = {"seed": options.seed, "epoch": 0, "most": options.marks_most, "marks": options.marks}
        changes = [[insertions(text, key=key, **settings) for text in row.texts] for key, row in enumerate(rows)]
        summary = f"1 to {options.marks_most} {options.marks} marks in each text"
    else:
        from tasks.augment.synonyms import summary_of

        words = WordNet(wordnet.find_nltk_data(options.data), options.synonyms_senses)
        tagged = tag([text for row in rows for text in row.texts], words)
        changes = list(changes_by_row(rows, tagged, options.method, p, options.seed))
        summary = summary_of(tagged, options.method, p, "these texts")
    for row, of_row in zip(rows, changes, strict=True):
        for column, (text, of_text) in enumerate(zip(row.texts, of_row, strict=True), 1):
            name = row.id if len(row.texts) == 1 else f"{row.id}.{column}"
            print(f"{name}  {marked(text, of_text)}")
    print(f"\n{summary}\nread as {kind} · seed {options.seed}")


def changes_by_row(
    rows: Sequence[Row], tagged: Tagged, method: int, p: float, seed: int
) -> Iterator[list[list["Change"]]]:
    """The changes of every text of every row; for method 3, row n is treated as batch n."""
    from tasks.augment.synonyms import is_augmented, replace_adjectives, replace_words

    numbers, words = iter(range(len(tagged))), tagged.only(KINDS[method])
    for batch, row in enumerate(rows):
        texts = [(next(numbers), column, text) for column, text in enumerate(row.texts)]
        if method != 3:
            yield [replace_words(words, n, text, p=p, seed=seed, row=row.id, column=c) for n, c, text in texts]
        elif is_augmented(batch, p=p, seed=seed):
            yield [replace_adjectives(words, n, text, batch=batch, index=batch, seed=seed) for n, _, text in texts]
        else:
            yield [[] for _ in texts]


def marked(text: str, changes: Sequence["Change"]) -> str:
    """A text with each change in the form `[old -> new]`, or `[+new]` for an insertion."""
    from tasks.augment.punctuation import Change, splice

    old = [text[c.start : c.end] for c in changes]
    forms = [f"[{word} -> {c.new}]" if word else f"[+{c.new}]" for word, c in zip(old, changes, strict=True)]
    return splice(text, [Change(c.start, c.end, form) for c, form in zip(changes, forms, strict=True)])


if __name__ == "__main__":
    run(lambda: main(sys.argv[1:]))
