"""The public data sets as data: what files each has, where they come from, how they are known, under what licence."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from data.fetch import pins

_MIB = 1 << 20


@dataclass(frozen=True)
class File:
    """One file below its set's folder. Zero and "" mean that it is not known."""

    path: str
    blob: str = ""  # git blob id
    sha256: str = ""
    size: int = 0  # bytes
    rows: int = 0
    form: str = "lines"  # what a row is: lines, tsv, csv
    member: str = ""  # its path at the source, where that is another


@dataclass(frozen=True)
class Way:
    """One way to have a part: single files below `base`, or members of `archive`. Neither: from a mirror alone."""

    files: tuple[File, ...]
    base: str = ""
    archive: str = ""
    sha256: str = ""  # of the archive
    size: int = 0  # of the archive
    cap: int = 64 * _MIB  # most bytes of a download
    unpacked: int = 256 * _MIB  # most bytes of the unpacked files together
    exact: bool = True  # False: another edition, known by its rows and not by the pinned ids
    lesser: bool = False  # a sample or fewer splits: taken only where the ways before it fail


@dataclass(frozen=True)
class Part:
    """Files that belong together, by the first of the ways that works."""

    name: str
    ways: tuple[Way, ...]
    licence: str
    citation: str
    optional: bool = False


@dataclass(frozen=True)
class DataSet:
    """A folder of the data directory."""

    name: str
    folder: str
    parts: tuple[Part, ...]


def hub() -> str:
    """The model hub's address: `HF_ENDPOINT`, else huggingface.co."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"


_RAW = "https://raw.githubusercontent.com"
_HANDOUTS = {
    2024: f"{_RAW}/amahankali10/CS224N-Spring2024-DFP-Student-Handout/3f64c60c8a0e40a9fe581235b08f4607ff187077/data",
    2023: f"{_RAW}/gpoesia/minbert-default-final-project/7ac8260577fc12a86c7aaf38918056c30054ef39/data",
}
_SST = (
    File("ids-sst-train.csv", "9cb7333cb1dae49c2bd2a4b56a24882a6e8704b5", "", 1175139, 8544, "tsv"),
    File("ids-sst-dev.csv", "3171aa629a340809d2db4a50df8f6e5ec9420ab0", "", 151384, 1101, "tsv"),
    File("ids-sst-test-student.csv", "bbd2313758825f86e24416d6aad64cd93370cf7a", "", 313202, 2210, "tsv"),
)
_STS = (
    File("sts-train.csv", "12b17760e7795fee35aeeabc290d5651de02622a", "", 928832, 6040, "tsv"),
    File("sts-dev.csv", "9392860e584717976b8d817cc40c9e6ceeec27e0", "", 132265, 863, "tsv"),
    File("sts-test-student.csv", "25f0cf8fafdd1f82b9e2bb460c708af34341ce60", "", 256677, 1725, "tsv"),
)
_QUORA = {
    2024: (
        File("quora-train.csv", "1f2e73b884113e629e2786001fb9cc8ae4a696c1", "", 0, 283010, "tsv"),
        File("quora-dev.csv", "97f9430a53b7f5544f857ff27a236c40bb42b5c7", "", 0, 40429, "tsv"),
        File("quora-test-student.csv", "a1b1e5ba3ef282ba1e9b169c509eb80dbbc68666", "", 0, 80859, "tsv"),
    ),
    2023: (
        File("quora-train.csv", "a3b5546f6a0e65b60a328a5d294d1038f5bed1da", "", 0, 141506, "tsv"),
        File("quora-dev.csv", "de7cfa32428fd470b93f778fccc45a619e01336f", "", 3205321, 20214, "tsv"),
        File("quora-test-student.csv", "f257ef00558555afb50819578a58205732b16354", "", 0, 40431, "tsv"),
    ),
}
_CFIMDB = (
    File("ids-cfimdb-train.csv"),
    File("ids-cfimdb-dev.csv", "8a0f5dcf3d40189b96c801a12cd79bf8003e61de", "", 249095, 245, "tsv"),
    File("ids-cfimdb-test-student.csv"),
)
_SOCHER = "Socher et al. 2013, Recursive Deep Models for Semantic Compositionality Over a Sentiment Treebank"
_CER = "Cer et al. 2017, SemEval-2017 Task 1: Semantic Textual Similarity"


def course(year: int) -> DataSet:
    """The CS 224N default project's files: the handout of spring 2024, or that of 2023 with half the question pairs."""
    base, quora = _HANDOUTS[year], "Quora's terms of service; for research"
    parts = (
        ("sst", _SST, "as the Stanford Sentiment Treebank; for research", _SOCHER),
        ("quora", _QUORA[year], quora, "Iyer, Dandekar and Csernai 2017, First Quora Dataset Release: Question Pairs"),
        ("sts", _STS, "the licences of its sources, as LICENSE.txt of STS-B names them; for research", _CER),
    )
    imdb = Part(
        "cfimdb",
        (Way(_CFIMDB, base=_HANDOUTS[2023]),),
        "as handed out with the course's project; for research",
        "Kaushik, Hovy and Lipton 2020, Learning the Difference that Makes a Difference (reviews of IMDb)",
        optional=True,
    )
    return DataSet(
        "course",
        "course",
        (
            *(
                Part(name, (Way(files, base=base, cap=256 * _MIB),), licence, cite)
                for name, files, licence, cite in parts
            ),
            imdb,
        ),
    )


def nli() -> DataSet:
    """SimCSE's triplets and the originals of SNLI and MultiNLI; a mirror may hold samples in their place."""
    simcse = f"{hub()}/datasets/princeton-nlp/datasets-for-simcse/resolve/main"
    snli = tuple(
        File(f"snli_1.0/snli_1.0_{split}.jsonl", rows=count)
        for split, count in (("train", 550152), ("dev", 10000), ("test", 10000))
    )
    multinli = tuple(
        File(f"multinli_1.0/multinli_1.0_{split}.jsonl", rows=count)
        for split, count in (("train", 392702), ("dev_matched", 10000), ("dev_mismatched", 10000))
    )
    sample = Way((File("nli-pairs.tsv"),), lesser=True)
    return DataSet(
        "nli",
        "nli",
        (
            Part(
                "triplets",
                (
                    Way((File("nli_for_simcse.csv", rows=275601, form="csv"),), base=simcse, cap=256 * _MIB),
                    Way((File("nli-triplets.csv"),), lesser=True),
                ),
                "as SNLI and MultiNLI, of which it is made",
                "Gao, Yao and Chen 2021, SimCSE: Simple Contrastive Learning of Sentence Embeddings",
            ),
            Part(
                "snli",
                (
                    Way(
                        snli,
                        archive="https://nlp.stanford.edu/projects/snli/snli_1.0.zip",
                        sha256="afb3d70a5af5d8de0d9d81e2637e0fb8c22d1235c2749d83125ca43dab0dbd3e",
                        cap=256 * _MIB,
                        unpacked=2048 * _MIB,
                    ),
                    sample,
                ),
                "CC BY-SA 4.0",
                "Bowman et al. 2015, A large annotated corpus for learning natural language inference",
            ),
            Part(
                "multinli",
                (
                    Way(
                        multinli,
                        archive="https://cims.nyu.edu/~sbowman/multinli/multinli_1.0.zip",
                        sha256="049f507b9e36b1fcb756cfd5aeb3b7a0cfcb84bf023793652987f7e7e0957822",
                        cap=512 * _MIB,
                        unpacked=3072 * _MIB,
                    ),
                    sample,
                ),
                "OANC's licence for most genres, CC BY(-SA) 3.0 and public domain for fiction (see the paper)",
                "Williams, Nangia and Bowman 2018, A Broad-Coverage Challenge Corpus for Sentence Understanding",
            ),
        ),
    )


_STS_TASKS = "the licences of its sources, as the shared task names them; for research"
_RELEASED = "as released by its authors; for research"
_SENTEVAL_PARTS = {  # folder below downstream/: licence, citation
    "STS/STS12-en-test": (_STS_TASKS, "Agirre et al. 2012, SemEval-2012 Task 6"),
    "STS/STS13-en-test": (_STS_TASKS + "; the SMT pairs are not public", "Agirre et al. 2013, *SEM 2013 shared task"),
    "STS/STS14-en-test": (_STS_TASKS, "Agirre et al. 2014, SemEval-2014 Task 10"),
    "STS/STS15-en-test": (_STS_TASKS, "Agirre et al. 2015, SemEval-2015 Task 2"),
    "STS/STS16-en-test": (_STS_TASKS, "Agirre et al. 2016, SemEval-2016 Task 1"),
    "STS/STSBenchmark": ("the licences of its sources, as LICENSE.txt of STS-B names them; for research", _CER),
    "SICK": ("CC BY-NC-SA 3.0", "Marelli et al. 2014, A SICK cure for the evaluation of compositional models"),
    "MR": (_RELEASED, "Pang and Lee 2005, Seeing stars"),
    "CR": (_RELEASED, "Hu and Liu 2004, Mining and summarizing customer reviews"),
    "SUBJ": (_RELEASED, "Pang and Lee 2004, A sentimental education"),
    "MPQA": (_RELEASED, "Wiebe, Wilson and Cardie 2005, Annotating expressions of opinions and emotions"),
    "SST/binary": ("as the Stanford Sentiment Treebank; for research", _SOCHER),
    "TREC": (_RELEASED, "Li and Roth 2002, Learning question classifiers"),
    "MRPC": ("Microsoft Research's data licence", "Dolan and Brockett 2005, a corpus of sentential paraphrases"),
}
_SENTEVAL_OWN = {  # what SentEval's script takes as it is, without its tokeniser
    "SST/binary": f"{_RAW}/PrincetonML/SIF/master/data",
    "MRPC": "https://dl.fbaipublicfiles.com/senteval/senteval_data",
}


def _pinned(text: str, folder: str) -> tuple[File, ...]:
    rows = [line.split(maxsplit=3) for line in text.strip().splitlines()]
    every = (File(path, blob, "", int(size), int(lines)) for blob, size, lines, path in rows)
    return tuple(file for file in every if str(PurePosixPath(file.path).parent) == folder)


def _below(folder: str, files: Iterable[File]) -> tuple[File, ...]:
    return tuple(
        File(f"{folder}/{file.path}", file.blob, "", file.size, file.rows, member=file.member or file.path)
        for file in files
    )


def senteval() -> DataSet:
    """SentEval's tasks in the shape its own script leaves: pinned single files, else SimCSE's archive of the same."""
    copy = f"{_RAW}/yan-soares/research_embeddings_fine_tuning/045c5e94572a60c6bd7173e152c897f6b694c5a8/data/downstream"
    simcse = f"{hub()}/datasets/princeton-nlp/datasets-for-simcse/resolve/main/senteval.tar"
    parts = []
    for folder, (licence, citation) in _SENTEVAL_PARTS.items():
        files = _below("downstream", _pinned(pins.SENTEVAL, folder))
        ways = [Way(files, base=copy), Way(files, archive=simcse, cap=1024 * _MIB, exact=False)]
        if folder in _SENTEVAL_OWN:
            named = tuple(File(f.path, rows=f.rows, member=PurePosixPath(f.path).name) for f in files)
            ways.append(Way(named, base=_SENTEVAL_OWN[folder], exact=False))
        parts.append(Part(folder, tuple(ways), licence, citation))
    return DataSet("senteval", "senteval", tuple(parts))


_CHINESE = {  # folder: (name in the archive, lines of train, valid and test, licence, citation)
    "ATEC": ("ATEC", (62477, 20000, 20000), _RELEASED, "Ant Financial 2018, ATEC NLP sentence similarity competition"),
    "BQ": ("BQ", (100000, 10000, 10000), "free for academic research", "Chen et al. 2018, The BQ Corpus"),
    "LCQMC": ("LCQMC", (238766, 8802, 12500), "for academic research", "Liu et al. 2018, LCQMC"),
    "PAWS-X": ("PAWSX", (49401, 2000, 2000), "free use with attribution to Google", "Yang et al. 2019, PAWS-X"),
    "STS-B": ("STS-B", (5231, 1458, 1361), "as STS-B; for research", "Zeng, CNSD: Chinese natural language inference"),
}
_CHINESE_COPIES = {
    "PAWS-X": f"{_RAW}/zejunwang1/CSTS/560e04bea8d593ed2e7af1224a90fc20803af47b",
    "STS-B": f"{_RAW}/shuxinyin/SimCSE-Pytorch/f049d17684194ad6de0db705bb4ffc1b982b2de5/data",
}


def chinese() -> DataSet:
    """ATEC, BQ, LCQMC, PAWS-X, STS-B in Chinese: the archive with all splits, else single files in circulation."""
    archive = "https://github.com/shibing624/text2vec/releases/download/1.1.2/senteval_cn.zip"
    parts = []
    for folder, (name, counts, licence, citation) in _CHINESE.items():
        splits = zip(("train", "valid", "test"), counts, strict=True)
        whole = tuple(
            File(f"{folder}/{name}.{split}.data", rows=count, member=f"{name}/{name}.{split}.data")
            for split, count in splits
        )
        single = tuple(f for f in _pinned(pins.CHINESE, folder) if "sts-b-" not in f.path)
        ways = (
            Way(whole, archive=archive, cap=128 * _MIB),
            Way(single, base=_CHINESE_COPIES.get(folder, ""), lesser=True),
        )
        parts.append(Part(folder, ways, licence, citation))
    ccks = Way(_pinned(pins.CHINESE, "ATEC_CCKS"))
    parts.append(Part("ATEC_CCKS", (ccks,), _RELEASED, "ATEC and CCKS 2018 Task 3, shared tasks", optional=True))
    return DataSet("chinese", "zh", tuple(parts))


WORDNET = ("WordNet's licence (Princeton)", "Miller 1995, WordNet: a lexical database for English")
TAGGER = ("MIT (NLTK's model)", "Honnibal 2013, averaged perceptron tagger, as trained by NLTK")
