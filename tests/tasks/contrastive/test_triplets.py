"""Guards: triplets of NLI pairs are those of a plain loop over the rows; every row is kept, counted or listed.

python -m pytest --import-mode=importlib tests/tasks/contrastive/test_triplets.py
"""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from minbert.token_cache import Issue, Row
from tasks.contrastive import triplets
from tasks.contrastive.triplets import checked, fold, from_pairs

Pair = tuple[str, str, int]
E, N, C = triplets.ENTAILMENT, triplets.NEUTRAL, triplets.CONTRADICTION


def rows(pairs: list[Pair]) -> Iterator[Row]:
    return (Row(str(line), (p, h), float(label), line) for line, (p, h, label) in enumerate(pairs, 1))


def texts(made: triplets.MergedTriplets) -> list[tuple[str, ...]]:
    return [row.texts for row in made.triplets]


def test_each_defect_is_dropped_counted_and_listed_with_its_line() -> None:
    pairs = [
        ("Rain falls.", "rain  FALLS.", E),  # its own premise
        ("Rain falls.", "It is wet.", E),
        ("Rain falls.", "It is wet.", E),  # a duplicate
        ("Rain falls.", "It is dry.", C),
        ("Rain falls.", "It pours.", E),  # contradictory with the next
        ("Rain falls.", "it pours.", C),
        ("Rain falls.", "It pours.", N),  # neutral is neither
    ]
    made = from_pairs([iter([Issue(99, "label: '-'")]), rows(pairs)], "zip", names=["a.txt", "b.txt"])
    assert texts(made) == [("Rain falls.", "It is wet.", "It is dry.")]
    assert made.skipped == [
        Issue(99, "a.txt: label: '-'"),
        Issue(1, "b.txt: the same text as its anchor"),
        Issue(5, "b.txt: the same text is entailment and contradiction of one premise"),
        Issue(6, "b.txt: the same text is entailment and contradiction of one premise"),
        Issue(3, "b.txt: a duplicate of an earlier line"),
    ]
    assert made.triplets[0].id == "b.txt:2-b.txt:4"
    assert (made.counts["read"], made.counts["skipped"]) == (8, 1)


def by_loop(pairs: list[Pair], per_premise: str) -> tuple[list[tuple[str, ...]], dict[str, int]]:
    """The module's docstring, one row at a time."""
    shown: dict[str, str] = {}
    for pair in pairs:
        for text in pair[:2]:
            shown.setdefault(fold(text), text)
    labels: dict[tuple[str, str], set[int]] = {}
    for premise, hypothesis, label in pairs:
        labels.setdefault((fold(premise), fold(hypothesis)), set()).add(label)
    counts = dict.fromkeys(("same_as_anchor", "contradictory", "duplicates", "neutral"), 0)
    premises: dict[str, dict[int, list[str]]] = {}
    for premise, hypothesis, label in pairs:
        p, h = fold(premise), fold(hypothesis)
        kept = premises.setdefault(p, {E: [], C: []})
        if p == h:
            counts["same_as_anchor"] += 1
        elif label == N:
            counts["neutral"] += 1
        elif {E, C} <= labels[p, h]:
            counts["contradictory"] += 1
        elif h in kept[label]:
            counts["duplicates"] += 1
        else:
            kept[label].append(h)
    found, paired = [], 0
    for p, kept in premises.items():
        zipped = list(zip(kept[E], kept[C]))
        crossed = [(e, c) for e in kept[E] for c in kept[C]]
        chosen = {"first": zipped[:1], "zip": zipped, "cross": crossed}[per_premise]
        found += [(shown[p], shown[e], shown[c]) for e, c in chosen]
        paired += len({e for e, _ in chosen}) + len({c for _, c in chosen})
    counts["alone"] = sum(bool(kept[E]) != bool(kept[C]) for kept in premises.values())
    counts |= {"usable": sum(len(kept[E]) + len(kept[C]) for kept in premises.values()), "premises": len(premises)}
    return found, counts | {"unpaired": counts["usable"] - paired}


TEXT = st.sampled_from(["a", "A", "b", " b", "c", "d e", "d  E", "f"])


@given(
    st.lists(st.tuples(TEXT, TEXT, st.sampled_from([E, N, C])), max_size=40),
    st.sampled_from(["first", "zip", "cross"]),
    st.integers(0, 40),
)
def test_any_file_in_one_piece_or_two_is_the_plain_loop(pairs: list[Pair], per_premise: str, cut: int) -> None:
    pairs = [(p.strip(), h.strip(), label) for p, h, label in pairs]
    made = from_pairs([rows(pairs[:cut]), rows(pairs[cut:])], per_premise)
    expected, counts = by_loop(pairs, per_premise)
    assert texts(made) == expected
    assert counts.items() <= made.counts.items()
    own = made.counts
    dropped = own["skipped"] + own["same_as_anchor"] + own["contradictory"] + own["duplicates"]
    assert own["read"] == len(pairs) == dropped + own["neutral"] + own["usable"]
    assert len(made.skipped) == dropped and own["triplets"] == len(expected)


def test_triplets_are_checked_by_the_same_rule() -> None:
    found = [
        ("Birds sing.", "There is song.", "It is quiet."),
        ("Birds sing.", "there is song.", "It is quiet."),  # a duplicate
        ("Birds sing.", "There is song.", "Birds sleep."),  # another triplet of the anchor
        ("Birds sing.", "birds sing.", "Birds sleep."),  # its own anchor
        ("Kids play.", "Kids have fun.", "Kids have fun."),  # contradictory in itself
        ("Kids play.", "Kids run.", "Kids sit."),  # contradictory with the next
        ("Kids play.", "Kids sit.", "Kids cry."),
        ("Kids nap.", "Kids sit.", "Kids run."),  # another anchor: nothing is wrong
    ]
    made = checked([[Row(str(line), row, line=line) for line, row in enumerate(found, 1)]])
    assert texts(made) == [found[0], found[2], found[7]]
    assert [row.line for row in made.skipped] == [4, 5, 6, 7, 2]
    assert (made.counts["same_as_anchor"], made.counts["contradictory"], made.counts["duplicates"]) == (1, 3, 1)
    assert (made.counts["read"], made.counts["triplets"], made.counts["premises"]) == (8, 3, 3)
