"""Scores of translations against references, each with the signature that makes it comparable.

sacreBLEU (Post 2018) computes all of them. `bleu`, `chrf` and `ter` take plain text; the others
repeat how published numbers were made. Only scores of the same signature may be compared.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dragoman.config import InputError, nearest_hint

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

METRICS = ("bleu", "chrf", "ter", "paper", "multi-bleu", "multi-bleu-lc")
"""What can be asked for.

- `bleu`, `chrf`, `ter`: sacreBLEU's, on plain text.
- `paper`: plain multi-bleu over Moses tokens, in German with compounds split at their hyphens: how
  *Attention Is All You Need* was scored.
- `multi-bleu`: what multi-bleu.perl gives: blanks in the text separate tokens, nothing is smoothed.
- `multi-bleu-lc`: the same over lower-cased, normalised Moses tokens: how Multi30k is published.
"""

TOKENIZERS = ("13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none", "flores101", "flores200")
"""sacreBLEU's tokenisers for `bleu`; the last two fetch a model at their first use."""

_CHINESE = ("zh", "zho", "cmn", "yue", "wuu", "nan", "hak", "gan", "lzh")
_WITHOUT_BLANKS = ("th", "lo", "km", "my", "bo", "dz")
"""Of words, and without a tokeniser here: a whole clause would count as one."""


@dataclass(frozen=True)
class Score:
    """A metric's value with all that it takes to repeat it."""

    name: str
    value: float
    """In percent; for `ter` lower is better."""
    signature: str
    details: dict[str, Any]
    """Of the BLEU kinds: brevity_penalty, precisions, hypothesis_length, reference_length."""


@dataclass(frozen=True)
class Measure:
    """One of `METRICS`, made for a language: sacreBLEU's part, and ours before it."""

    name: str
    metric: Metric
    language: str
    """A code of two or three letters, or nothing."""

    def prepare(self, lines: list[str]) -> list[str]:
        """Returns translations or references as `metric` takes them."""
        if self.name == "paper":
            tokenized = moses_tokenize(lines, self.language)
            if self.language == "de":
                return [split_compounds(line) for line in tokenized]
            return tokenized
        if self.name == "multi-bleu-lc":
            return moses_tokenize(lines, self.language, lowercase=True)
        return lines

    @property
    def signature(self) -> str:
        """SacreBLEU's signature with our preparation; complete once something was scored."""
        signature = str(self.metric.get_signature())
        if self.name not in ("paper", "multi-bleu-lc"):
            return signature
        from sacremoses import __version__

        tokens = f"moses-{self.language or 'en'}-{__version__}"
        if self.name == "multi-bleu-lc":
            tokens = f"normalised+{tokens}"
        elif self.language == "de":
            tokens = f"{tokens}+compounds"
        return signature.replace("tok:none", f"tok:{tokens}")


def evaluate(
    hypotheses: list[str],
    references: list[list[str]],
    metrics: Sequence[str] = ("bleu", "chrf"),
    target_language: str = "",
    tokenize: str | None = None,
) -> list[Score]:
    """Scores translations against one or more references.

    Args:
        hypotheses: One translation a line.
        references: For each reference, as many lines as there are translations.
        metrics: Names out of `METRICS`; the result has their order.
        target_language: Such as `de` or `zh_CN`; chooses the tokenisers.
        tokenize: One of `TOKENIZERS` for `bleu`, instead of the language's.

    Raises:
        InputError: If the counts of lines differ, nothing is given to score, or a name is unknown.
    """
    check_lines(hypotheses, references)
    measures = choose_measures(metrics, target_language, tokenize)
    return [_evaluate(measure, hypotheses, references) for measure in measures]


def choose_measures(
    metrics: Sequence[str], target_language: str = "", tokenize: str | None = None
) -> list[Measure]:
    """Makes metrics as `evaluate` does, which says what the arguments and the errors are."""
    for name in metrics:
        _check_name("metric", name, METRICS)
    if tokenize is not None:
        _check_name("tokenize", tokenize, TOKENIZERS)
    language = re.split("[-_]", target_language)[0].lower()
    return [
        Measure(name, _metric(name, tokenize or _bleu_tokenizer(language), language), language)
        for name in metrics
    ]


def moses_tokenize(lines: Sequence[str], language: str, lowercase: bool = False) -> list[str]:
    """Tokenises lines as Moses does, its XML escapes included.

    Args:
        lines: Plain text.
        language: Two letters; an unknown one takes the rules of English.
        lowercase: Lower-cases and normalises the punctuation first, as Multi30k was prepared.
    """
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    tokenizer = MosesTokenizer(lang=language or "en")
    if lowercase:
        normalizer = MosesPunctNormalizer(lang=language or "en")
        lines = [normalizer.normalize(line.lower()) for line in lines]
    return [tokenizer.tokenize(line, return_str=True, escape=True) for line in lines]


def split_compounds(line: str) -> str:
    """Makes a hyphen within a word a token of its own, as tensor2tensor's scoring script does.

    A letter between two hyphens belongs to the first match, so that `a-b-c` is split once.
    """
    return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", line)


def check_lines(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Raises `InputError` unless there is something to score and as many lines of each."""
    if not hypotheses:
        raise InputError("the hypotheses have 0 lines, accepted is 1 or more")
    if not references:
        raise InputError("0 references are given, accepted is 1 or more")
    for number, reference in enumerate(references, start=1):
        if len(reference) != len(hypotheses):
            raise InputError(
                f"the hypotheses have {len(hypotheses)} lines and reference {number} has "
                f"{len(reference)}, accepted is as many in both"
            )


def _check_name(kind: str, name: str, accepted: Sequence[str]) -> None:
    if name not in accepted:
        raise InputError(
            f"{kind} is {name!r}, accepted is one of {', '.join(accepted)}",
            nearest_hint(name, accepted),
        )


def _evaluate(measure: Measure, hypotheses: list[str], references: list[list[str]]) -> Score:
    from sacrebleu.metrics.bleu import BLEUScore

    result = measure.metric.corpus_score(
        measure.prepare(hypotheses), [measure.prepare(reference) for reference in references]
    )
    details = {}
    if isinstance(result, BLEUScore):
        details = {
            "brevity_penalty": result.bp,
            "precisions": result.precisions,
            "hypothesis_length": result.sys_len,
            "reference_length": result.ref_len,
        }
    return Score(measure.name, result.score, measure.signature, details)


def _metric(name: str, tokenize: str, language: str) -> Metric:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    if name == "chrf":
        return CHRF()
    if name == "ter":
        by_character = language in (*_CHINESE, "ja")
        return TER(normalized=by_character, asian_support=by_character)
    if name == "bleu":
        try:
            return BLEU(tokenize=tokenize, force=True)
        except (RuntimeError, OSError) as error:
            raise InputError(
                f"tokenize is {tokenize}, which needs more than is installed",
                " ".join(str(error).split()),
            ) from None
    return BLEU(tokenize="none", smooth_method="none", lowercase=name.endswith("-lc"), force=True)


def _bleu_tokenizer(language: str) -> str:
    """Chooses sacreBLEU's tokeniser; where a dictionary isn't installed, characters do."""
    if language in _CHINESE:
        return "zh"
    if language in _WITHOUT_BLANKS:
        return "char"
    for word_language, tokenizer, module in (
        ("ja", "ja-mecab", "MeCab"),
        ("ko", "ko-mecab", "mecab_ko"),
    ):
        if language == word_language:
            return tokenizer if importlib.util.find_spec(module) else "char"
    return "13a"
