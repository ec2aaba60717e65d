"""The report as text tables, at most 110 characters wide."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.data.check.corpus import LONG
from tasks.data.check.overlaps import DEFINITIONS

_BLOCKS = "▁▂▃▄▅▆▇█"
_FIRST = 5  # places listed for each reason
_BINS = (4, 8, 16, 32, 64, 128)  # words
_SAME, _SHARING = 0.01, 0.1  # fractions of the scored rows; smaller overlaps of different sets are only in the JSON

_FILES = {
    "kept, skip": "rows kept and skipped; the reasons for skipping are listed at the end",
    "dup, diff": "kept rows that repeat an earlier row of the file, and those of them with a label different from it",
    "labels": "classes with their shares in %, or the range, histogram and mean of scores",
    "words": "median, 95th percentile and maximum of the words in a text, and a histogram of 1-4, 5-8, 9-16, 17-32, "
    "33-64, 65-128 and more words. " + DEFINITIONS["word"].capitalize(),
}
_OVERLAPS = {
    "same": DEFINITIONS["same"],
    "in order": DEFINITIONS["same_order"],
    "sharing": DEFINITIONS["sharing_a_sentence"],
    "": "A score on rows that the model was trained on says little. A dev split counts as training data for what was "
    "chosen by it.",
}


def render(report: dict[str, Any]) -> str:
    """All tables of the report as one text."""
    parts = [_files(report), _splits(report), _overlaps(report)]
    sound = [entry for entry in report["files"] if entry["broken"] is None]
    for title, key in (("Skipped rows", "skipped"), ("Kept rows with a gap", "noted")):
        parts.append([line for entry in sound for line in _reasons(entry["file"], entry[key])])
        parts[-1] = [title, *parts[-1]] if parts[-1] else []
    long = [f"  {file['file']}: {_locations('row', file['words']['long'])}" for file in sound if file["words"]["long"]]
    parts.append([f"Texts of more than {LONG} words", *long] if long else [])
    parts.append(_manifests(report))
    broken = [f"  {entry['broken']}" for entry in report["files"] if entry["broken"] is not None]
    parts.append(["Broken files, left out above", *broken] if broken else [])
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def _files(report: dict[str, Any]) -> list[str]:
    rows = [["", "read", "kept", "skip", "dup", "diff", " labels".ljust(21), "50%", "95%", "max", "words"]]
    folder = None
    for entry in report["files"]:
        parent = entry["file"].partition(" + ")[0].rpartition("/")[0]
        rows += [] if parent == folder else [[f"{parent}/"]]
        folder, name = parent, entry["file"][len(parent) :].lstrip("/")
        name = f" {name if len(name) <= 31 else name[:28] + '...'}"
        if entry["broken"] is not None:
            rows.append([name, "broken"])
            continue
        words, numbers = entry["words"], [entry["read"], entry["kept"], len(entry["skipped"])]
        numbers += [entry["duplicates"]["rows"], entry["duplicates"]["disagreeing"]]
        heights = [0] * (len(_BINS) + 1)
        for size, count in words["histogram"].items():
            heights[sum(int(size) > edge for edge in _BINS)] += count
        sizes = [_number(words[statistic]) for statistic in ("p50", "p95", "max")]
        rows.append([name, *map(_number, numbers), f" {_labels(entry['labels']):<20}", *sizes, f"{_bars(heights):<7}"])
    return [f"Files of {report['data']}", *_aligned(rows), "", *_legend(_FILES)]


def _labels(labels: dict[str, Any]) -> str:
    if scores := labels["scores"]:
        histogram = _bars(scores["histogram"]["counts"])
        return f"{scores['min']:g}-{scores['max']:g} {histogram} {scores['mean']:.2f}"
    if not (counts := labels["counts"]):
        return "-"
    names, total = list(counts), sum(counts.values())
    shares = " ".join(f"{100 * count / total:.0f}" for count in counts.values())
    return f"{names[0]}-{names[-1]}:{' ' * (len(names) < 6)}{shares}"


def _splits(report: dict[str, Any]) -> list[str]:
    lines = [
        f"{split['name']}: {split['rows']:,} rows in {len(split['files'])} files, "
        f"duplicates: {split['duplicates']['rows']:,}"
        for split in report["splits"]
        if len(split["files"]) > 1
    ]
    twins = [entry for entry in report["splits"] if entry["same_rows_as"]]
    return lines + [f"{entry['name']}: has the rows of {entry['same_rows_as']}, compared once" for entry in twins]


def _overlaps(report: dict[str, Any]) -> list[str]:
    shown = [pair for pair in report["overlaps"] if pair["watched"] and _matters(pair)]
    order = [split["name"] for split in report["splits"]]
    rows = [["", "rows", "same", "", "sharing", "", "|", "same", "", "in order", "sharing", ""]]
    left = None
    for pair in sorted(shown, key=lambda pair: order.index(pair["left"])):
        of_left, of_right = pair["of_left"], pair["of_right"]
        rows += [] if pair["left"] == left else [[f"trained on {pair['left']}, {of_left['rows']:,} rows"]]
        left = pair["left"]
        cells = [f"  {pair['right']}", _number(of_right["rows"])]
        for side, count in ((of_right, "same"), (of_right, "sharing_a_sentence")):
            cells += [_number(side[count]), _percent(side[count], side["rows"])]
        cells += ["|", _number(of_left["same"]), _percent(of_left["same"], of_left["rows"])]
        cells += [_number(of_left["same_order"]), _number(of_left["sharing_a_sentence"])]
        rows.append([*cells, _percent(of_left["sharing_a_sentence"], of_left["rows"])])
    if not any(pair["watched"] for pair in report["overlaps"]):
        return []
    table = _aligned(rows) if shown else ["none"]
    head = [f"{'scored split':>{table[0].index('|') - 1}} | training split"] if shown else []
    hidden = len(report["overlaps"]) - len(shown)
    note = [f"{hidden} comparisons with less overlap are only in the JSON (--json FILE)."] if hidden else []
    return ["Overlaps of scored splits with training splits", *head, *table, *note, "", *_legend(_OVERLAPS)]


def _matters(pair: dict[str, Any]) -> bool:
    right = pair["of_right"]
    same = right["same"] or 0
    enough = same >= _SAME * right["rows"] or right["sharing_a_sentence"] >= _SHARING * right["rows"]
    return bool((same or right["sharing_a_sentence"]) and (pair["same_set"] or enough))


def _reasons(name: str, rows: list[dict[str, Any]]) -> list[str]:
    reasons: dict[str, list[int]] = {}
    for row in rows:
        reasons.setdefault(row["why"], []).append(row["line"])
    lines = [f"    {len(numbers):,}: {reason} ({_locations('line', numbers)})" for reason, numbers in reasons.items()]
    return [f"  {name}", *lines] if lines else []


def _locations(noun: str, locations: Sequence[str | int]) -> str:
    ending = ", ..." if len(locations) > _FIRST else ""
    return f"{noun}{'s' * (len(locations) > 1)} {', '.join(map(str, locations[:_FIRST]))}{ending}"


def _manifests(report: dict[str, Any]) -> list[str]:
    lines = []
    for manifest in report["manifests"]:
        state = "complete" if manifest["complete"] else "NOT complete, run get_data.py again"
        state += f", {manifest['files']:,} files"
        changes = "".join(f"; {key}: {', '.join(manifest[key])}" for key in ("missing", "changed") if manifest[key])
        lines.append(f"  {manifest['manifest']}: {manifest['broken'] or state + changes}")
    return ["Fetched", *lines] if lines else []


def _legend(words: Mapping[str, str]) -> list[str]:
    lines = [
        textwrap.fill(text, 110, initial_indent=f"{word:<13}", subsequent_indent=" " * 13)
        for word, text in words.items()
    ]
    return "\n".join(lines).splitlines()


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns separated by a space, the first left-aligned, the others right-aligned; a row of one cell is a title."""
    widths = [max(len(row[column]) for row in rows if 1 < len(row) > column) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        first, *values = row
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(values, widths[1:], strict=False))]
        lines.append(" ".join(cells).rstrip() if values else first)
    return lines


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _percent(part: int | None, total: int) -> str:
    if not part:
        return ""
    share = 100 * part / total
    return "<.1%" if share < 0.05 else f"{share:.1f}%"


def _bars(counts: Sequence[int]) -> str:
    """One block character per count, its height relative to the largest count; a space for zero."""
    largest = max(counts, default=0)
    return "".join(_BLOCKS[-(-count * len(_BLOCKS) // largest) - 1] if count else " " for count in counts)
