"""English word forms as far as spelling tells: lemma and inflected form, letter case, and the article before a word.

Regular endings are rules of this file; irregular forms come from WordNet's exception lists (form -> lemmas). Where
neither tells the form, the answer is None and the word stays as it is: no form is guessed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

Irregular = Mapping[str, Sequence[str]]
"""Form -> its lemmas, or lemma -> its forms."""

PARTS = {
    "NN": "n", "NNP": "n", "NNS": "n", "JJ": "a", "JJR": "a", "JJS": "a", "RB": "r",
    "VB": "v", "VBP": "v", "VBZ": "v", "VBG": "v", "VBD": "v", "VBN": "v",
}  # fmt: skip
"""Penn tags whose words can be replaced -> WordNet's part of speech."""
BASE = frozenset({"NN", "NNP", "JJ", "RB", "VB", "VBP"})
"""The tags of words that are their own lemma."""

_PLURAL = (
    ("ies", "y"),
    ("ses", "s"),
    ("xes", "x"),
    ("zes", "z"),
    ("ches", "ch"),
    ("shes", "sh"),
    ("men", "man"),
    ("s", ""),
)
_THIRD = (("ies", "y"), ("es", "e"), ("es", ""), ("s", ""))
_ENDINGS: Mapping[str, Sequence[tuple[str, str]]] = {
    "NNS": _PLURAL,
    "VBZ": _THIRD,
    "VBG": (("ing", "e"), ("ing", "")),
    "VBD": (("ied", "y"), ("ed", "e"), ("ed", "")),
    "VBN": (("ied", "y"), ("ed", "e"), ("ed", "")),
    "JJR": (("ier", "y"), ("er", "e"), ("er", "")),
    "JJS": (("iest", "y"), ("est", "e"), ("est", "")),
}
# Plurals whose pattern holds for the whole family; others of WordNet's list are old or rare (brethren, kine, staves).
_IRREGULAR_PLURALS = (
    ("child", "children"), ("foot", "feet"), ("tooth", "teeth"), ("goose", "geese"), ("mouse", "mice"),
    ("louse", "lice"), ("ife", "ives"), ("lf", "lves"), ("af", "aves"), ("ief", "ieves"), ("sis", "ses"),
)  # fmt: skip
# "man" is no man in these: humans, Germans, talismans.
_NO_MAN = (
    "human",
    "roman",
    "norman",
    "german",
    "shaman",
    "caiman",
    "cayman",
    "ottoman",
    "talisman",
    "dolman",
    "hetman",
)
_WITH_OES = frozenset(
    {"potato", "tomato", "hero", "echo", "veto", "torpedo", "mosquito", "tornado", "buffalo", "embargo"}
)
# Verbs whose past is the verb itself; WordNet's lists do not say so.
_UNCHANGED = re.compile(
    r".*(?:cast|set|put|cut|hit|let|shut|hurt|cost|burst|spread|thrust|beat|shed|split|bid|rid|quit|read|bet|spit|wed|"
    r"wet|knit|fit|slit)"
)


def stems(word: str, tag: str, irregular: Irregular) -> Iterator[str]:
    """What could be the lemma of an inflected word, exception lists first; the caller keeps those that are words."""
    if tag in BASE:
        yield word
        return
    if _could_be(word, tag):
        yield from (lemma for lemma in irregular.get(word, ()) if lemma != word)
    for ending, instead in _ENDINGS.get(tag, ()):
        if word.endswith(ending) and len(word) > len(ending) + 1:
            yield word[: -len(ending)] + instead


def _could_be(form: str, tag: str) -> bool:
    """Whether an irregular form can carry this tag: the exception lists do not say which form it is."""
    if tag in ("VBD", "VBN"):
        return not form.endswith(("ing", "s"))
    return form.endswith({"NNS": "", "VBZ": "s", "VBG": "ing", "JJR": "r", "JJS": "st"}[tag])


def inflect(lemma: str, tag: str, forms: Irregular) -> str | None:
    """The form of a lemma that a Penn tag asks for, or None where it cannot be known.

    Of several words the last is inflected (nouns) or the first (verbs); those with a preposition stay unknown.
    """
    if tag in BASE:
        return lemma
    words = lemma.split(" ")
    if len(words) == 1:
        return _one(lemma, tag, forms)
    if PARTS[tag] == "a" or (tag == "NNS" and set(words) & {"of", "in", "at", "on", "to", "for", "by", "and"}):
        return None
    place = -1 if tag == "NNS" else 0
    form = _one(words[place], tag, forms)
    if form is None:
        return None
    words[place] = form
    return " ".join(words)


def _one(lemma: str, tag: str, forms: Irregular) -> str | None:
    known = forms.get(lemma, ())
    if tag == "NNS":
        return _plural(lemma, known)
    if tag == "VBZ":
        return _with_s(lemma)
    if tag == "VBG":
        return next((form for form in known if form.endswith("ing")), None) or _regular(lemma, "ing")
    if tag in ("VBD", "VBN"):
        return _past(lemma, tag, known)
    return _graded(lemma, "er" if tag == "JJR" else "est", known)


def _with_s(word: str) -> str:
    if re.search(r"[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + ("es" if word in _WITH_OES or re.search(r"(s|x|z|ch|sh)$", word) else "s")


def _plural(lemma: str, known: Sequence[str]) -> str | None:
    if lemma.endswith("man") and not lemma.endswith(_NO_MAN):
        return lemma[:-3] + "men"
    for ending, plural in _IRREGULAR_PLURALS:
        form = lemma[: -len(ending)] + plural
        if lemma.endswith(ending) and form in known:
            return form
    already_plural = re.search(r"[^sui]s$", lemma)
    headed_left = re.search(r"-(?:on|in|by|up|off|out|law|at|to|of|through|down|over|back)\b", lemma)  # passer-by
    return None if known or already_plural or headed_left else _with_s(lemma)


def _regular(lemma: str, ending: str) -> str:
    if ending == "ing" and lemma.endswith("ie"):
        return lemma[:-2] + "ying"
    if ending != "ing" and re.search(r"[^aeiou]y$", lemma):
        return lemma[:-1] + "i" + ending
    silent = lemma.endswith("e") and (ending != "ing" or not lemma.endswith(("ee", "ye", "oe")))
    return (lemma[:-1] if silent else lemma) + ending


def _past(lemma: str, tag: str, known: Sequence[str]) -> str | None:
    """Simple past and participle; a strong verb whose two forms the exception list does not tell apart is unknown."""
    past = [form for form in known if not form.endswith(("ing", "s"))]
    if not past:
        return None if known or _UNCHANGED.fullmatch(lemma) else _regular(lemma, "ed")
    if len(past) > 1 or (past[0].endswith("n") and not past[0].endswith("an")):  # sewn; ran and began stay
        return None
    return past[0] if tag == "VBD" or past[0].endswith(("d", "t")) else None


def _graded(lemma: str, ending: str, known: Sequence[str]) -> str | None:
    """Comparative or superlative by an ending; longer adjectives, which take "more" and "most", have none."""
    form = next((form for form in known if form.endswith(ending)), None)
    if form is not None:
        return form
    syllables = len(re.findall(r"[aeiouy]+", lemma.removesuffix("e")))
    doubles = re.search(r"[^aeiou][aeiou][bdgmnpt]$", lemma)
    short = syllables == 1 or (syllables == 2 and re.search(r"[^aeiou]y$", lemma))
    return _regular(lemma, ending) if short and not doubles and "-" not in lemma else None


def shape(word: str) -> str:
    """`lower`, `capital`, `upper` or `mixed`; one capital letter alone is `capital`."""
    if word.islower():
        return "lower"
    if word[0].isupper() and (word[1:].islower() or len(word) == 1):
        return "capital"
    return "upper" if word.isupper() else "mixed"


def in_shape(word: str, like: str) -> str:
    """A word in the letter case of another: `large`, `Large` or `LARGE`. Capitals of its own (`USA`) are kept."""
    kind = shape(like)
    if kind == "upper":
        return word.upper()
    return word[0].upper() + word[1:] if kind == "capital" else word


# Spelled with h, said without it.
_SILENT_H = re.compile(r"hour|heir|honest|honou?r")
# Spelled with a vowel, said with y or w: university, European, one, use, utility, urine. Not unimportant, utter, urge.
_GLIDE = re.compile(
    r"eu|ewe|one(?![a-z])|once|ouija|ubi|ufo|uk[eru]|unanim|uni(?!n|m|d|gn|ron|rr|ss|sol|llum|tali)|"
    r"us[aeu]|usu|ut[aio]|uten|uter|ur[aeio](?!g)|uv"
)
_SAID_LETTERS = "AEFHILMNORSX"


def takes_an(word: str) -> bool:
    """Whether `an` stands before a word: by its sound, as far as spelling and the well-known exceptions tell."""
    if len(word) > 1 and re.fullmatch(r"[A-Z][B-DF-HJ-NP-TV-XZ]+", word):
        return word[0] in _SAID_LETTERS  # without a vowel it is spelled out: an FM station, a USB stick
    lower = word.lower()
    if lower[0] == "h":
        return _SILENT_H.match(lower) is not None
    return lower[0] in "aeiou" and _GLIDE.match(lower) is None


def article(given: str, before: str) -> str:
    """`a` or `an`, whichever stands right before `before`, in the letter case of the article that was there."""
    right = "an" if takes_an(before) else "a"
    if given.lower() == right:
        return given
    if given[0].islower():
        return right
    return right.upper() if len(before) > 1 and before.isupper() else right.capitalize()
