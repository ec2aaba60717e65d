"""A user's own table, comma- or tab-separated with a header, or JSON lines: which of its columns is what.

`--columns sentence1=premise,sentence2=hypothesis,label=gold_label` says it: what is wanted, then the file's name.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from minbert.errors import UserError
from minbert.token_cache import Row, Skipped
from tasks.readers.nli import NLI
from tasks.readers.records import Record, head, json_records, quotes_of, records
from tasks.readers.rows import ANY_CLASS, BINARY, SCORE, Label, rows


@dataclass(frozen=True)
class Kind:
    """What a row of a file holds: its texts, of which some may be wanting, and its label."""

    name: str
    texts: tuple[str, ...]
    label: Label | None = None
    optional: tuple[str, ...] = ()

    @property
    def targets(self) -> tuple[str, ...]:
        """Everything that a column can be."""
        return (*self.texts, *(["label"] if self.label else []), "id")

    def required(self, split: str) -> tuple[str, ...]:
        """What a file must have; labels are not needed to predict a test file."""
        labelled = self.label is not None and split != "test"
        return (*(text for text in self.texts if text not in self.optional), *(["label"] if labelled else []))


_PAIR = ("sentence1", "sentence2")
KINDS = {
    kind.name: kind
    for kind in (
        Kind("lines", ("sentence",)),
        Kind("single", ("sentence",), ANY_CLASS),
        Kind("pair-class", _PAIR, BINARY),
        Kind("pair-score", _PAIR, SCORE),
        Kind("nli", _PAIR, NLI),
        Kind("triplet", ("anchor", "positive", "negative"), optional=("negative",)),
    )
}


def parse(spec: str, kind: Kind) -> dict[str, str]:
    """`{wanted: name in the file}` from `wanted=name,wanted=name`; `UserError` says what cannot be wanted."""
    chosen: dict[str, str] = {}
    for part in spec.split(","):
        wanted, equals, name = (piece.strip() for piece in part.partition("="))
        if not (wanted and equals and name):
            raise UserError(f"--columns {spec}: {part.strip()!r} is not of the form wanted=name")
        if wanted not in kind.targets:
            raise UserError(f"--columns {spec}: {wanted!r} is none of {', '.join(kind.targets)}")
        if wanted in chosen:
            raise UserError(f"--columns {spec}: {wanted!r} is named twice")
        chosen[wanted] = name
    return chosen


def choose(path: Path, kind: Kind, split: str, given: Mapping[str, str], keys: Sequence[str]) -> dict[str, str]:
    """The file's name for each target it has: as given, else of the same name.

    Raises `UserError` where a given name is not in the file, or a target that must be there has none.
    """
    there = f"the file has {', '.join(map(repr, keys))}"
    for wanted, name in given.items():
        if name not in keys:
            raise UserError(f"{path}:1: no column {name!r} for --columns {wanted}={name}; {there}")
    chosen = {target: given.get(target, target) for target in kind.targets if target in given or target in keys}
    missing = [target for target in kind.required(split) if target not in chosen]
    if missing:
        raise UserError(f"{path}:1: no column {missing[0]!r}; name one with --columns {missing[0]}=...; {there}")
    return chosen


def read(
    path: Path, kind: Kind, chosen: Mapping[str, str], label: Label | None = None
) -> tuple[int, Iterator[Row | Skipped]]:
    """How many texts a row has, and the rows, by the file's names of the targets.

    `label` takes the place of the kind's rule. Ids are the column `id` if it is chosen, else line numbers.
    """
    texts = tuple(chosen[text] for text in kind.texts if text in chosen)
    rule = (label or kind.label) if "label" in chosen else None
    names = (*texts, *(chosen[target] for target in ("label", "id") if target in chosen))
    _, delimiter = head(path)
    found: Iterator[Record]
    if delimiter == "json":
        found = json_records(path, names)
    else:
        found = records(path, names, delimiter=delimiter, quotes=quotes_of(delimiter))
    made = rows(path, found, texts, rule, column=chosen.get("label", ""), ident="id" in chosen)
    return len(texts), made
