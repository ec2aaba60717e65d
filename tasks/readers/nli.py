"""NLI data, by the names of its columns: SNLI and MultiNLI (jsonl or tsv), `nli-pairs.tsv`, and files of triplets."""

from tasks.readers.table import DataFile, Request, Table, read_columns

_GAPS = {"-": "no gold label"}  # the annotators did not agree (SNLI, section 2.2)


def read(table: Table, request: Request) -> DataFile:
    """Labelled pairs, or triplets; pairs without a gold label are skipped."""
    return read_columns(table, request, _GAPS if request.kind == "nli" else None)
