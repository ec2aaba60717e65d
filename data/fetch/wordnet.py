"""WordNet and the English tagger, as NLTK reads them: from a mirror, by NLTK's downloader, or from Debian's packages.

NLTK refuses to read outside its data folder, so files are copied into it and never linked.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from data.fetch import archives
from data.fetch.collect import Fetcher
from data.fetch.manifest import Ledger
from data.fetch.sources import TAGGER, WORDNET, File, Part, Way
from data.fetch.verify import rows
from minbert.errors import UserError
from minbert.files import new_folder, write_atomic

SYNSETS = 117_659
"""Of WordNet 3.0."""
TAG_NOTE = "the English tagger is missing: WordNet's own counts decide the part of speech"
_TAGGER_NAME = "averaged_perceptron_tagger_eng"
_TAGGER_FILES = tuple(f"{_TAGGER_NAME}.{kind}.json" for kind in ("classes", "tagdict", "weights"))
_FILES = (
    *(f"{kind}.{pos}" for kind in ("data", "index") for pos in ("noun", "verb", "adj", "adv")),
    *(f"{pos}.exc" for pos in ("noun", "verb", "adj", "adv")),
    *("index.sense", "cntlist.rev", "lexnames"),
)
_FURTHER = ("LICENSE", "README", "sents.vrb", "sentidx.vrb", "frames.vrb")
_POS = {"noun": 1, "verb": 2, "adj": 3, "adv": 4}
_LEXNAMES = """adj.all adj.pert adv.all noun.Tops noun.act noun.animal noun.artifact noun.attribute noun.body
noun.cognition noun.communication noun.event noun.feeling noun.food noun.group noun.location noun.motive noun.object
noun.person noun.phenomenon noun.plant noun.possession noun.process noun.quantity noun.relation noun.shape noun.state
noun.substance noun.time verb.body verb.change verb.cognition verb.communication verb.competition verb.consumption
verb.contact verb.creation verb.emotion verb.motion verb.perception verb.possession verb.social verb.stative
verb.weather adj.ppl"""
_DEBIAN = ("wordnet-base", "wordnet-sense-index")
_SCRIPT = """
import sys
from nltk.downloader import Downloader
name, folder, index = sys.argv[1:]
done = Downloader(server_index_url=index or None, download_dir=folder).download(name, quiet=True)
sys.exit(0 if done else 1)
"""


@dataclass(frozen=True)
class Servers:
    """Where WordNet is asked for. `index`: of an NLTK server, "" for NLTK's own; `seconds` for each attempt."""

    index: str = ""
    seconds: float = 600.0


def lexnames() -> str:
    """WordNet's file of 45 lexicographer file names: number, name, part of speech (lexnames(5WN))."""
    names = _LEXNAMES.split()
    return "".join(f"{number:02d}\t{name}\t{_POS[name.split('.')[0]]}\n" for number, name in enumerate(names))


def fault(folder: Path, synsets: int = SYNSETS) -> str:
    """Why a folder is not the WordNet 3.0 that NLTK opens, or ""."""
    missing = [name for name in _FILES if not (folder / name).is_file()]
    if missing:
        return f"{missing[0]} is missing"
    count = 0
    for pos in _POS:
        with open(folder / f"data.{pos}", "rb") as file:
            count += sum(not line.startswith(b"  ") for line in file)  # the licence's lines start with two blanks
    return "" if count == synsets else f"{count} synsets, not {synsets}"


def collect(fetcher: Fetcher, servers: Servers | None = None, synsets: int = SYNSETS) -> bool:
    """Bring WordNet and the tagger into `nltk_data`; True where WordNet is there. A missing tagger is only noted."""
    folder, asked = fetcher.to / "nltk_data", servers or Servers()
    place, tagger = folder / "corpora" / "wordnet", folder / "taggers" / _TAGGER_NAME
    ledger = Ledger.open(folder)
    print(f"wordnet -> {folder}")
    if fault(place, synsets) or not _has_tagger(tagger):
        ledger.reopen()
    try:
        source = "already there" if not fault(place, synsets) else _wordnet(fetcher, place, asked, synsets)
    except UserError as error:
        ledger.save()
        print(f"  wordnet: MISSING: {error}; synonym augmentation needs it, everything else works without")
        return False
    _say(ledger, place, source, Part("wordnet", (), *WORDNET))
    notes = []
    try:
        source = "already there" if _has_tagger(tagger) else _tagger(fetcher, tagger, asked)
        _say(ledger, tagger, source, Part("tagger", (), *TAGGER))
    except UserError as error:
        notes.append(f"{TAG_NOTE} ({error})")
        print(f"  tagger: {notes[0]}")
    ledger.close(notes, set="wordnet", tagger=not notes)
    print(f"  NLTK finds them with NLTK_DATA={folder}")
    return True


def _say(ledger: Ledger, place: Path, source: str, part: Part) -> None:
    for file in sorted(place.iterdir()):
        path = str(file.relative_to(ledger.folder))
        if source != "already there" or path not in ledger.entries:
            known = source if source != "already there" else "lay there"
            ledger.add(path, source=known, rows=rows(file, "lines"), part=part, pinned=False)
    ledger.save()
    print(f"  {part.name}: {source}\n    licence: {part.licence}\n    cite: {part.citation}")


def _has_tagger(folder: Path) -> bool:
    return all((folder / name).is_file() and (folder / name).stat().st_size for name in _TAGGER_FILES)


def _first(ways: dict[str, Callable[[Path], None]], place: Path, why_not: Callable[[Path], str], what: str) -> str:
    """Fill `place` by the first way after which `why_not` finds no fault; the name of the way."""
    failures = []
    for name, fill in ways.items():
        try:
            with new_folder(place) as beside:
                fill(beside)
                why = why_not(beside)
                if why:
                    raise UserError(why)
        except UserError as error:
            failures.append(f"{name}: {error}")
            continue
        if failures:
            print(f"  not {'; '.join(failures)}")
        return name
    raise UserError(f"{what} cannot be had ({'; '.join(failures)})")


def _wordnet(fetcher: Fetcher, place: Path, servers: Servers, synsets: int) -> str:
    ways: dict[str, Callable[[Path], None]] = {}
    if fetcher.mirror:
        ways[f"mirror {fetcher.mirror}"] = lambda to: _from_mirror(fetcher, place, to, _FILES, _FURTHER)
    else:
        ways["NLTK's downloader"] = lambda to: _from_nltk("wordnet", "corpora", to, servers)
        ways["Debian's packages wordnet-base and wordnet-sense-index"] = lambda to: _from_debian(to, servers)
    return _first(ways, place, lambda folder: fault(folder, synsets), "WordNet")


def _tagger(fetcher: Fetcher, place: Path, servers: Servers) -> str:
    ways: dict[str, Callable[[Path], None]] = {}
    if fetcher.mirror:
        ways[f"mirror {fetcher.mirror}"] = lambda to: _from_mirror(fetcher, place, to, _TAGGER_FILES, ())
    else:
        ways["NLTK's downloader"] = lambda to: _from_nltk(_TAGGER_NAME, "taggers", to, servers)
    return _first(ways, place, lambda folder: "" if _has_tagger(folder) else "its files are missing", "the tagger")


def _from_mirror(fetcher: Fetcher, place: Path, to: Path, needed: tuple[str, ...], further: tuple[str, ...]) -> None:
    below = place.relative_to(fetcher.to).as_posix()
    for name in (*needed, *further):
        try:
            fetcher.bring(fetcher.mirrored(f"{below}/{name}"), to / name, File(f"{below}/{name}"), Way(()), Ledger(to))
        except UserError:
            if name in needed:
                raise


def _from_nltk(name: str, kind: str, to: Path, servers: Servers) -> None:
    """By NLTK's downloader in a process of its own: it knows no time-out, and says False instead of raising."""
    with tempfile.TemporaryDirectory(dir=to.parent, prefix=".nltk-") as scratch:
        command = [sys.executable, "-c", _SCRIPT, name, scratch, servers.index]
        _run(command, Path(scratch), servers.seconds, NLTK_DATA=scratch)  # else it may refuse to write there
        unpacked, packed = Path(scratch, kind, name), Path(scratch, kind, f"{name}.zip")
        if not unpacked.is_dir() and packed.is_file():  # some packages are left zipped
            known = {"corpora": _FILES, "taggers": _TAGGER_FILES}[kind]
            archives.unpack(packed, {f"{name}/{file}": unpacked / file for file in known}, cap=256 << 20)
        if not unpacked.is_dir():
            raise UserError(f"NLTK's downloader left no {kind}/{name}")
        shutil.copytree(unpacked, to, dirs_exist_ok=True)


def _from_debian(to: Path, servers: Servers) -> None:
    """Download and unpack, install nothing; what the packages lack is added."""
    for program in ("apt-get", "dpkg-deb"):
        if not shutil.which(program):
            raise UserError(f"there is no {program}")
    with tempfile.TemporaryDirectory(dir=to.parent, prefix=".debian-") as scratch:
        _run(["apt-get", "download", *_DEBIAN], Path(scratch), servers.seconds)
        for package in sorted(Path(scratch).glob("*.deb")):
            _run(["dpkg-deb", "-x", str(package), "unpacked"], Path(scratch), servers.seconds)
        unpacked = Path(scratch, "unpacked", "usr", "share")
        for name in (*_FILES, *_FURTHER):
            if (unpacked / "wordnet" / name).is_file():
                shutil.copyfile(unpacked / "wordnet" / name, to / name)
        licence = unpacked / "doc" / "wordnet-base" / "copyright"
        if licence.is_file():
            shutil.copyfile(licence, to / "LICENSE")
    write_atomic(to / "lexnames", lexnames())


def _run(command: list[str], folder: Path, seconds: float, **settings: str) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"{Path(command[0]).name} gave no result in {seconds:g} s") from None
    except OSError as error:
        raise UserError(f"{command[0]}: {error.strerror}") from error
    if done.returncode:
        words = " ".join((done.stderr + done.stdout).replace("[nltk_data]", " ").split())
        raise UserError(words[-300:] or f"{Path(command[0]).name} ended with code {done.returncode}")
