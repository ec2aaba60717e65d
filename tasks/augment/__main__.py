"""Preview synonyms or punctuation on a file: each text before and after, with what changes marked.

python -m tasks.augment preview FILE [--method 1|2|3] [--synonyms-senses first|all] [--p P] [--seed N] [--data DIR]
python -m tasks.augment preview FILE --marks english [--marks-most 3] [--seed N]
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from minbert.errors import UserError
from minbert.files import present
from minbert.token_cache import Row
from minbert.training.cli import Parser, run
from tasks.augment import wordnet
from tasks.augment.wordnet import KINDS, SENSES, Tagged, WordNet, tag
from tasks.readers import open_as

if TYPE_CHECKING:  # at run time torch would delay `--help`
    from tasks.augment.punctuation import Change

FORMS = ("triplet", "nli", "pair-class", "pair-score", "single", "lines")
"""The kinds of rows that are tried, in this order; every text file can be read as lines."""
_MEANT = {1: "words (method 1)", 2: "nouns and adjectives (2)", 3: "adjectives (3)"}


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m tasks.augment", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="preview")
    preview = commands.add_parser("preview", help="show texts before and after", allow_abbrev=False)
    preview.add_argument("file", type=Path, metavar="FILE", help="one sentence a line, or any of the data formats")
    preview.add_argument("--form", choices=FORMS, help="what kind of file it is (default: recognised)")
    preview.add_argument("--method", type=int, choices=tuple(KINDS), default=3, help="(default: 3)")
    preview.add_argument(
        "--p",
        type=float,
        help="probability that a word is replaced (methods 1 and 2; default: 0.25), or that a batch is (method 3; "
        "default here: 1; every row is shown as a batch of its own)",
    )
    preview.add_argument("--seed", type=int, default=11711, metavar="N", help="(default: 11711)")
    preview.add_argument("--limit", type=int, default=20, metavar="N", help="number of rows to show (default: 20)")
    preview.add_argument(
        "--synonyms-senses", choices=SENSES, default="first", help="as in training (default: first, the usual senses)"
    )
    marks = "insert punctuation instead (EdaCSE, Table 2): english, chinese or another kind, as in training"
    preview.add_argument("--marks", default="", metavar="KIND", help=marks)
    preview.add_argument("--marks-most", type=int, default=3, metavar="K", help="1 to K marks (default: 3)")
    preview.add_argument("--data", default="", metavar="DIR", help="data folder (default: $DATA_DIR, else data/)")
    return parser


def main(arguments: Sequence[str]) -> None:
    """The command line of `tasks.augment`. Raises `UserError` for invalid flags or files."""
    given = _parser().parse_args(arguments)
    p = given.p if given.p is not None else 1.0 if given.method == 3 else 0.25
    if not 0 <= p <= 1:
        raise UserError(f"--p: {p} is not between 0 and 1")
    if given.limit < 1:
        raise UserError(f"--limit: {given.limit} is less than 1")
    ignored = ("method", "p", "synonyms_senses", "data") if given.marks else ("marks_most",)
    for name in ignored:
        if f"--{name.replace('_', '-')}" in {word.partition("=")[0] for word in arguments}:
            said = f"note: --{name.replace('_', '-')} has no effect {'with' if given.marks else 'without'} --marks"
            print(said, file=sys.stderr)
    form, rows = _rows(given.file, given.form, given.limit)
    texts = [text for row in rows for text in row.texts]
    colour = sys.stdout.isatty()
    if given.marks:
        for row, changes in zip(rows, marks_by_row(rows, given.marks, given.marks_most, given.seed), strict=True):
            print("\n".join(_lines(row, changes, colour=colour)))
        print(f"\n1 to {given.marks_most} {given.marks} marks in each text · seed {given.seed} · read as {form}")
        return
    tagged = tag(texts, WordNet(wordnet.find(given.data), given.synonyms_senses))
    changed = 0
    for row, changes in zip(rows, changes_by_row(rows, tagged, given.method, p, given.seed), strict=True):
        changed += sum(map(bool, changes))
        print("\n".join(_lines(row, changes, colour=colour)))
    print(
        f"\n{changed:,} of {len(texts):,} texts changed · method {given.method}, p = {p:g}, seed {given.seed} · "
        f"read as {form} · parts of speech by {tagged.tagging}"
    )
    shares = ", ".join(f"{tagged.coverage(method):.0%} of the {meant}" for method, meant in _MEANT.items())
    print(f"of these texts have a synonym (--synonyms-senses {given.synonyms_senses}): {shares}")


def _rows(path: Path, form: str | None, limit: int) -> tuple[str, list[Row]]:
    """The kind of rows of a file, `form` or the first kind that it can be read as; and its first `limit` rows."""
    present(path)
    for kind in [form] if form else FORMS:
        try:
            rows = list(islice((row for row in open_as(path, kind).rows if isinstance(row, Row)), limit))
        except UserError:
            if form or kind == FORMS[-1]:
                raise
            continue
        if rows:
            return kind, rows
    raise UserError(f"{path}: no row to show")


def changes_by_row(
    rows: Sequence[Row], tagged: Tagged, method: int, p: float, seed: int
) -> Iterator[list[list["Change"]]]:
    """The changes of every text of every row; for method 3, row n is treated as batch n."""
    from tasks.augment.synonyms import chosen, drawn, live

    numbers, words = iter(range(len(tagged))), tagged.only(KINDS[method])
    for batch, row in enumerate(rows):
        texts = [(next(numbers), column, text) for column, text in enumerate(row.texts)]
        if method != 3:
            yield [drawn(words, n, text, p=p, seed=seed, row=row.id, column=column) for n, column, text in texts]
        elif chosen(batch, p=p, seed=seed):
            yield [live(words, n, text, batch=batch, turn=batch, seed=seed) for n, _, text in texts]
        else:
            yield [[] for _ in texts]


def marks_by_row(rows: Sequence[Row], marks: str, most: int, seed: int) -> Iterator[list[list["Change"]]]:
    """The punctuation marks inserted into every text of every row, as for row n of a training set in its epoch 1."""
    from tasks.augment.punctuation import insertions

    for key, row in enumerate(rows):
        yield [insertions(text, seed=seed, epoch=0, key=key, most=most, marks=marks) for text in row.texts]


def _lines(row: Row, changes: Sequence[Sequence["Change"]], *, colour: bool) -> Iterator[str]:
    for column, (text, of) in enumerate(zip(row.texts, changes, strict=True)):
        name = row.id if len(row.texts) == 1 else f"{row.id}.{column + 1}"
        if not of:
            yield f"{name}  = {text}"
            continue
        old, new = marked(text, of, colour=colour)
        yield f"{name}  - {old}"
        yield f"{' ' * len(name)}  + {new}"


def marked(text: str, changes: Sequence["Change"], *, colour: bool) -> tuple[str, str]:
    """A text before and after its changes, with changes in red and green, or in the form `[old -> new]`."""

    from tasks.augment.punctuation import Change, splice

    def changed(form: str) -> str:
        spans = [(one.start, one.end, form.format(old=text[one.start : one.end], new=one.new)) for one in changes]
        return splice(text, [Change(*span) for span in spans])

    if colour:
        return changed("\033[31m{old}\033[0m"), changed("\033[32m{new}\033[0m")
    return text, changed("[{old} -> {new}]")


if __name__ == "__main__":
    run(lambda: main(sys.argv[1:]))
