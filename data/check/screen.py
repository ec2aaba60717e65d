"""The report as text: files, overlaps, what was skipped; at most 110 characters wide."""

from collections.abc import Sequence
from typing import Any

from data.check.statistics import LONG
from data.check.tables import BLOCKS, aligned, bars, number, percent, short

WIDTH = 110
FIRST = 5  # lines named for a reason to skip
_BINS = (4, 8, 16, 32, 64, 128)  # words
_LEAST, _SHARING = 0.01, 0.1  # of the scored rows: comparisons of different sets below both are left to the JSON

FILES_LEGEND = """\
kept, skip   of the rows read; what was skipped, and why, stands at the end
again, diff  kept rows that repeat an earlier row of the file (a pair in either order), and those of them that
             have another label than it
labels       of classes, their numbers and shares in %; of scores, their range, histogram and mean
words        of a text: 50 and 95 of 100 texts have at most so many, and the longest; histogram of 1-4, 5-8,
             9-16, 17-32, 33-64, 65-128 and more words (a Chinese character is a word)"""
OVERLAPS_LEGEND = """\
same         the row stands on the other side too. Two texts are the same when their letters and digits are:
             case, white space and punctuation do not count. Two pairs are the same in either order
in order     those of the same rows whose texts stand in the same order
near         not the same, but each of the row's texts is near one of a single row of the other side: of the
             different words of two near texts together, at least 80 of 100 are in both
sharing      at least one of the row's texts stands on the other side, in whatever row
Left of the bar are rows to be scored, right of it rows learnt from: a score on rows that were learnt from
says little. Which sets are learnt from is for you to say; dev rows are, where a choice was made by them."""


def render(report: dict[str, Any], blocks: str = BLOCKS) -> str:
    """All tables, one after the other."""
    parts = [f"Files of {report['data']}", *_files(report, blocks), "", FILES_LEGEND, ""]
    parts += [*_splits(report), *_overlaps(report), *_gaps(report), *_manifests(report), *_broken(report)]
    return "\n".join(parts).rstrip()


def _files(report: dict[str, Any], blocks: str) -> list[str]:
    rows = [["", "read", "kept", "skip", "again", "diff", " labels".ljust(21), "50%", "95%", "most", "words"]]
    folder = None
    for entry in report["files"]:
        parent, _, name = entry["file"].rpartition("/")
        if "/" in name or " + " in parent:  # two files that are one set
            parent, _, name = entry["file"].partition(" + ")[0].rpartition("/")
            name = entry["file"][len(parent) + 1 :]
        if parent != folder:
            rows.append([f"{parent}/"])
            folder = parent
        rows.append(_file(f" {short(name, 31)}", entry, blocks))
    return aligned(rows, 1)


def _file(name: str, entry: dict[str, Any], blocks: str) -> list[str]:
    if entry["broken"] is not None:
        return [name, "broken"]
    words = entry["words"]
    counts = [number(value) for value in (entry["read"], entry["kept"], len(entry["skipped"]))]
    lengths = [number(words[what]) for what in ("p50", "p95", "max")]
    again = [number(entry["duplicates"][what]) for what in ("rows", "disagreeing")]
    return [name, *counts, *again, f" {labels(entry['labels'], blocks):<20}", *lengths, _histogram(words, blocks)]


def labels(found: dict[str, Any], blocks: str = BLOCKS) -> str:
    """One cell: `0-2: 34 33 33`, `0-5 ▃▄▆█▅ 2.64`, or a dash."""
    if found["scores"]:
        scores = found["scores"]
        span = f"{scores['min']:g}-{scores['max']:g}"
        return f"{span} {bars(scores['histogram']['counts'], blocks)} {scores['mean']:.2f}"
    if not found["counts"]:
        return "-"
    counts = found["counts"]
    names, total = list(counts), sum(counts.values())
    shares = " ".join(f"{100 * count / total:.0f}" for count in counts.values())
    return f"{names[0]}-{names[-1]}:{' ' * (len(names) < 6)}{shares}"


def _histogram(words: dict[str, Any], blocks: str) -> str:
    heights = [0] * (len(_BINS) + 1)
    for size, count in words["histogram"].items():
        heights[sum(int(size) > most for most in _BINS)] += count
    return bars(heights, blocks).ljust(len(heights))


def _splits(report: dict[str, Any]) -> list[str]:
    several = [split for split in report["splits"] if len(split["files"]) > 1]
    twins = [split for split in report["splits"] if split["same_rows_as"]]
    lines = [
        f"{split['name']}: {number(split['rows'])} rows in {len(split['files'])} files, "
        f"{number(split['duplicates']['rows'])} of them again"
        for split in several
    ]
    lines += [f"{split['name']}: the rows of {split['same_rows_as']}, compared once" for split in twins]
    return [*lines, ""] if lines else []


def _overlaps(report: dict[str, Any]) -> list[str]:
    watched = [one for one in report["overlaps"] if one["watched"]]
    shown = [one for one in watched if _weighs(one)]
    if not watched:
        return []
    rows = [["", "rows", "same", "", "near", "", "sharing", "", "|", "same", "", "in order", "sharing", ""]]
    left = None
    order = [split["name"] for split in report["splits"]]
    for one in sorted(shown, key=lambda one: order.index(one["left"])):
        if one["left"] != left:
            left = one["left"]
            rows.append([f"learnt from {left}, {number(one['of_left']['rows'])} rows"])
        rows.append(_overlap(one))
    head = ["Overlaps: rows to be scored that stand among those learnt from"]
    table = aligned(rows, 1) if shown else ["none"]
    bar = table[0].find("|")
    head += [f"{'rows to be scored':>{bar - 1}} | rows learnt from"] if shown else []
    rest = len(report["overlaps"]) - len(shown)
    tail = [f"{rest} more comparisons found less or nothing: they are in the JSON (--json FILE)."] if rest else []
    return [*head, *table, *tail, "", OVERLAPS_LEGEND, ""]


def _weighs(one: dict[str, Any]) -> bool:
    right = one["of_right"]
    most = max(right["same"] or 0, right["near"] or 0)
    anything = most or right["sharing_a_sentence"]
    enough = most >= _LEAST * right["rows"] or right["sharing_a_sentence"] >= _SHARING * right["rows"]
    return bool(anything and (one["same_set"] or enough))


def _overlap(one: dict[str, Any]) -> list[str]:
    cells = [f"  {one['right']}", number(one["of_right"]["rows"])]
    for what in ("same", "near", "sharing_a_sentence"):
        cells += [number(one["of_right"][what]), percent(one["of_right"][what], one["of_right"]["rows"])]
    left = one["of_left"]
    cells += ["|", number(left["same"]), percent(left["same"], left["rows"]), number(left["same_order"])]
    return [*cells, number(left["sharing_a_sentence"]), percent(left["sharing_a_sentence"], left["rows"])]


def _gaps(report: dict[str, Any]) -> list[str]:
    whole = [entry for entry in report["files"] if entry["broken"] is None]
    lines = []
    for title, what in (("Skipped rows", "skipped"), ("Kept rows that lack something", "noted")):
        found = [line for entry in whole if entry[what] for line in _reasons(entry["file"], entry[what])]
        lines += [title, *found, ""] if found else []
    long = [entry for entry in whole if entry["words"]["long"]]
    found = [f"  {entry['file']}: {_places('row', entry['words']['long'])}" for entry in long]
    return lines + ([f"Texts of more than {LONG} words", *found, ""] if found else [])


def _reasons(name: str, rows: list[dict[str, Any]]) -> list[str]:
    reasons: dict[str, list[int]] = {}
    for row in rows:
        reasons.setdefault(row["why"], []).append(row["line"])
    return [f"  {name}", *(f"    {number(len(at))}: {why} ({_places('line', at)})" for why, at in reasons.items())]


def _places(what: str, places: Sequence[str | int]) -> str:
    more = ", ..." if len(places) > FIRST else ""
    return f"{what}{'s' * (len(places) > 1)} {', '.join(map(str, places[:FIRST]))}{more}"


def _manifests(report: dict[str, Any]) -> list[str]:
    lines = []
    for one in report["manifests"]:
        said = "complete" if one["complete"] else "NOT complete: run get_data.py again"
        said += f", {number(one['files'])} files"
        said += "".join(f"; {what}: {', '.join(one[what])}" for what in ("missing", "changed") if one[what])
        lines.append(f"  {one['manifest']}: {one['broken'] or said}")
    return ["Fetched", *lines, ""] if lines else []


def _broken(report: dict[str, Any]) -> list[str]:
    broken = [entry["broken"] for entry in report["files"] if entry["broken"] is not None]
    return ["Broken files, which are left out above", *(f"  {why}" for why in broken), ""] if broken else []
