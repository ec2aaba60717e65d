"""Text augmentation in training: synonyms (CBCL, section 4.4) and punctuation (EdaCSE, section 3.3).

Importing this loads no torch, and a run without synonyms loads neither their code nor WordNet's.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from minbert.train.settings import SettingsGroup, TrainingSettings, flag

if TYPE_CHECKING:
    from minbert.tokenizer import Tokenizer
    from tasks.examples import Augmentation, Examples


class SynonymSettings(SettingsGroup):
    """Settings of WordNet synonyms, shared by both stages."""

    synonyms: Literal["none", "1", "2", "3"] = flag(
        "none",
        "WordNet synonyms (CBCL, section 4.4): 1 = any word, 2 = nouns and adjectives, both before training; "
        "3 = one adjective of each sentence in some batches, at every step",
    )
    synonyms_p: float = flag(0.25, "probability: of a word (1, 2) or of a batch (3)", ge=0, le=1)
    synonyms_grow: bool = flag(
        False, "more synonyms from epoch to epoch, up to --synonyms-p (1, 2) or to 3 adjectives (3)"
    )
    synonyms_senses: Literal["first", "all"] = flag(
        "first",
        "first = synonyms from the usual senses of a word, which keep its meaning; all = from every sense in WordNet, "
        "and phrases: they reach two thirds more words",
    )

    @property
    def used(self) -> bool:
        """Whether texts are augmented with synonyms."""
        return self.synonyms != "none"


def resources(settings: SynonymSettings, data: str) -> "dict[str, tuple[Path, str]]":
    """Folder and hash of WordNet and of the tagger if synonyms are used, else empty.

    Raises `UserError` if one is missing.
    """
    if not settings.used:
        return {}
    from tasks.augment import wordnet

    folder = wordnet.find_nltk_data(data)
    names = (("WordNet", wordnet.WORDNET), ("tagger", wordnet.TAGGER))
    return {name: (folder / resource, wordnet.fingerprint(folder, resource)) for name, resource in names}


def synonym_augmentation(
    settings: SynonymSettings,
    training: TrainingSettings,
    sets: "Mapping[str, Examples]",
    tokenizer: "Tokenizer",
    *,
    data: str,
    run: Path,
) -> "Augmentation[Any]":
    """The augmentation of training sets that `settings` ask for.

    Raises `UserError` if WordNet or the tagger is missing.
    """
    if not settings.used:
        from tasks.examples import unchanged

        return unchanged
    from tasks.augment import synonyms, wordnet

    kinds = wordnet.KINDS[int(settings.synonyms)]
    words = wordnet.WordNet(wordnet.find_nltk_data(data), settings.synonyms_senses)
    texts = {name: list(synonyms.texts_of(examples.cache)) for name, examples in sets.items()}
    tagged = {name: wordnet.tag(of_set, words).only(kinds) for name, of_set in texts.items()}
    return synonyms.Synonyms(settings, training, tokenizer, tagged, run / "synonyms")
