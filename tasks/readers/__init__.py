"""Readers of data files: rows in file order, columns by name, every row kept or listed as skipped.

A row that cannot be used ends the reading with `file:line: column: why`, except the known gaps that each reader names,
which are skipped and counted.
"""

from tasks.readers.course import cfimdb, clean_pair, clean_sentence, find, quora, sst, sts
from tasks.readers.formats import companions, digest, open_as
from tasks.readers.nli import triplets
from tasks.readers.records import table

__all__ = [
    "cfimdb",
    "clean_pair",
    "clean_sentence",
    "companions",
    "digest",
    "find",
    "open_as",
    "quora",
    "sst",
    "sts",
    "table",
    "triplets",
]
