"""What every test stands on: no network, a cache folder of its own, a tiny BERT folder and MiniLM.

python -m pytest --import-mode=importlib tests
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

ROOT = Path(__file__).parent.parent
GUARD = Path(__file__).parent / "guard"
sys.path[:0] = [str(ROOT), str(GUARD)]
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(GUARD)])
for _name in ("HF_ENDPOINT", "HF_TOKEN", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_OFFLINE"):
    os.environ.pop(_name, None)
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # where cores are shared, threads that spin make tests 30 times as slow
os.environ.setdefault("OMP_NUM_THREADS", "2")  # of this process and of the runs that tests start
os.environ["no_proxy"] = "127.0.0.1"  # the server of a test is on this machine
os.environ["HF_HUB_OFFLINE"] = "1"  # huggingface_hub reads it when it is imported: no test waits for a hub
# A background job of a shell ignores SIGINT, and one under nohup SIGHUP; so would the runs that tests start and stop.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

import offline  # noqa: E402

offline.guard()
hypothesis.settings.register_profile("house", deadline=None, max_examples=40)  # a busy machine is no failure
hypothesis.settings.load_profile("house")

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = "the a cat dog bird sat sleeps runs on under mat tree is not very happy sad who what ? ! . , ##s ##ing un ##a"


# They start first, the longest first, so that no worker is left alone with one of them at the end.
LONGEST = [
    "e2e/test_multitask_train.py",
    "e2e/test_pretrain_cbcl.py",
    "e2e/test_resume.py",
    "e2e/golden/test_golden.py",
    "ablations/test_run.py",
    "test_install.py",
    "e2e/test_ranks.py",
    "e2e/test_scripts_bad_input.py",
    "e2e/test_posix.py",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first."""
    order = {str(Path(__file__).parent / name): number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(str(item.path), len(order)))


@pytest.fixture(scope="module", autouse=True)
def _gpu_for_its_tests_alone(request: pytest.FixtureRequest) -> Iterator[None]:
    """The other tests compare with the CPU."""
    with pytest.MonkeyPatch.context() as patch:
        if request.path.name != "test_cuda.py":
            patch.setattr("torch.cuda.is_available", lambda: False)
        yield


@pytest.fixture(scope="session", autouse=True)
def _own_folders_and_threads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Caches go to a folder of this session, never to the user's own."""
    import torch

    patch = pytest.MonkeyPatch()
    patch.setenv("MINBERT_CACHE", str(tmp_path_factory.mktemp("minbert-cache")))
    patch.setenv("HF_HOME", str(tmp_path_factory.mktemp("hf-home")))
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    yield
    patch.undo()


@pytest.fixture(autouse=True)
def _same_start() -> Iterator[None]:
    """Every test draws the same numbers, alone or among others, and a run in it sets its algorithms for it alone."""
    import torch

    torch.manual_seed(20240611)
    yield
    torch.set_deterministic_debug_mode("default")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random BERT of 2 layers, width 32 and 4 heads in transformers' layout, with a vocabulary of its own."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizer

    folder = tmp_path_factory.mktemp("tiny-bert")
    letters = "abcdefghijklmnopqrstuvwxyz"
    vocabulary = list(dict.fromkeys([*SPECIAL, *WORDS.split(), *letters, *(f"##{letter}" for letter in letters)]))
    torch.manual_seed(7)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.2,  # large, so that attention is far from uniform
    )
    BertModel(config).save_pretrained(folder)
    BertTokenizer({piece: number for number, piece in enumerate(vocabulary)}).save_pretrained(folder)
    return folder


@pytest.fixture
def tiny_copy(tiny: Path, tmp_path: Path) -> Callable[..., Path]:
    """A function that copies the tiny folder, without the named files, into this test's own folder."""
    import shutil

    def copy(*without: str, name: str = "copy") -> Path:
        target = tmp_path / name
        shutil.copytree(tiny, target, ignore=shutil.ignore_patterns(*without))
        return target

    return copy


@pytest.fixture
def tokenizer(tiny: Path) -> Any:
    """The tiny BERT's."""
    from minbert.tokenizer import Tokenizer

    return Tokenizer.load(tiny)


@pytest.fixture
def examples_of(tiny: Path, tmp_path: Path) -> Callable[..., Any]:
    """A function that makes examples of rows of texts, with labels, for the tiny BERT."""
    from minbert import token_cache
    from minbert.files import sha256_of
    from minbert.tokenizer import Tokenizer
    from tasks.examples import Examples

    def make(rows: Any, labels: Any = None, max_length: int = 64) -> Any:
        labels = [float("nan")] * len(rows) if labels is None else labels
        lines = [token_cache.Row(f"id-{n}", row, float(label)) for n, (row, label) in enumerate(zip(rows, labels))]
        source = tmp_path / f"rows-{len(list(tmp_path.iterdir()))}.txt"
        source.write_text(repr(lines))
        tokenizer = Tokenizer.load(tiny)
        cache = token_cache.load(source, lines, "rows of a test", tokenizer, sha256=sha256_of(source))
        return Examples(cache, tokenizer, max_length)

    return make


@pytest.fixture
def toy() -> Any:
    """A training run of milliseconds."""
    from tests.toy import Toy

    return Toy


@pytest.fixture
def run(toy: Any, tmp_path: Path) -> Any:
    """An opened run folder for the toy."""
    return toy.begin(tmp_path / "run")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of the real data sets."""
    if not os.environ.get("DATA_DIR"):
        pytest.skip("DATA_DIR is not set")
    return Path(os.environ["DATA_DIR"])


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder of the packaged MiniLM weights."""
    from minbert import weights

    return weights.resolve("minilm")


@pytest.fixture(scope="session")
def write_wordnet() -> Callable[..., Path]:
    """A function that writes a WordNet of a few synsets, and a tagger for their words, into an NLTK data folder."""
    return _write_wordnet


def _write_wordnet(folder: Path, *synsets: tuple[str, dict[str, int]], rude: tuple[str, ...] = ()) -> Path:
    """`synsets` are (part of speech n, v, a or r; lemma -> how often it was counted in this sense).

    The lemmas in `rude` are marked as disparaging, as WordNet marks them. "old(a)" is an adjective "old" that only
    stands before a noun.
    """
    names = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
    wordnet = folder / "corpora" / "wordnet"
    wordnet.mkdir(parents=True, exist_ok=True)
    (wordnet / "lexnames").write_text("00\tadj.all\t3\n", encoding="utf-8")
    offsets: dict[str, dict[str, list[int]]] = {part: {} for part in names}
    data = dict.fromkeys(names, "")
    counts = []
    for number, (part, lemmas) in enumerate([("n", {"disparagement": 0}), *synsets]):
        offset = len(data[part])
        words = " ".join(f"{lemma.replace(' ', '_')} {number:x}" for lemma in lemmas)
        marks = ""
        for position, lemma in enumerate(lemmas, 1):
            if lemma in rude:
                marks += f" ;u 00000000 n {position:02x}00"
        frames = " 01 + 02 00" if part == "v" else ""
        pointers = f"{marks.count(';u'):03d}{marks}{frames}"
        data[part] += f"{offset:08d} 00 {part} {len(lemmas):02x} {words} {pointers} | of a test  \n"
        for lemma, count in lemmas.items():
            name = lemma.partition("(")[0].replace(" ", "_").lower()
            offsets[part].setdefault(name, []).append(offset)
            kind = "nvar".index(part) + 1
            counts.append(f"{name}%{kind}:00:{number:02d}:: 1 {count}\n")
    for part, name in names.items():
        index = ""
        for lemma, of_lemma in sorted(offsets[part].items()):
            numbers = " ".join(f"{offset:08d}" for offset in of_lemma)
            index += f"{lemma} {part} {len(of_lemma)} 0 {len(of_lemma)} 0 {numbers}\n"
        (wordnet / f"data.{name}").write_text(data[part], encoding="utf-8")
        (wordnet / f"index.{name}").write_text(index, encoding="utf-8")
        (wordnet / f"{name}.exc").write_text("", encoding="utf-8")
    (wordnet / "cntlist.rev").write_text("".join(counts), encoding="utf-8")
    (wordnet / "index.sense").write_text("", encoding="utf-8")
    tags = {"n": "NN", "v": "VB", "a": "JJ", "r": "RB"}
    tagged = {}
    for part, lemmas in synsets:
        for lemma in lemmas:
            tagged |= {lemma: tags[part], lemma.capitalize(): tags[part]}
    tagger = folder / "taggers" / "averaged_perceptron_tagger_eng"
    tagger.mkdir(parents=True, exist_ok=True)
    for name, content in (("weights", {}), ("tagdict", tagged), ("classes", ["CD"])):  # any other word is a CD
        (tagger / f"{tagger.name}.{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder.resolve()
