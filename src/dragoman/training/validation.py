"""Looking at a model from outside while it trains: forced scores and free translations."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from dragoman.checkpoint import ModelFolder
from dragoman.config import Config
from dragoman.data.batching import plan_in_order
from dragoman.data.corpus import read_pairs
from dragoman.data.encoded import EncodedCorpus
from dragoman.data.preparation import VALIDATION, VALIDATION_TEXT
from dragoman.data.tokenizer import Tokenizers
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.decoding.translator import Translator
from dragoman.evaluation.bleu import evaluate
from dragoman.evaluation.perplexity import forced_scores
from dragoman.model.seq2seq import Seq2Seq
from dragoman.training.metrics import Event

_SAMPLES = 3
_SUSPICIOUS_ACCURACY, _SUSPICIOUS_BLEU, _SUSPICIOUS_CHRF = 0.7, 2.0, 20.0


@dataclass
class Validator:
    """Measures a model on the validation text."""

    config: Config
    corpus: EncodedCorpus
    sources: list[str]
    references: list[str]
    tokenizers: Tokenizers
    batch_tokens: int

    @classmethod
    def open(
        cls, folder: ModelFolder, config: Config, tokenizers: Tokenizers, batch_tokens: int
    ) -> Validator:
        """Reads the validation text of a model's folder, to take so many tokens at a time."""
        path: Path = folder.run / "data"
        pairs = list(read_pairs((), (), (str(path / VALIDATION_TEXT),)))
        pairs = pairs[: config.training.validation_lines]
        corpus = EncodedCorpus.open(path / VALIDATION, tokenizers.fingerprint, tokenizers.sizes)
        for batch in plan_in_order(corpus.lengths.max(axis=1), batch_tokens):
            corpus.batch(batch)  # damage shows now, not after hours of training
        return cls(
            config,
            corpus,
            [source for source, _ in pairs],
            [target for _, target in pairs],
            tokenizers,
            batch_tokens,
        )

    def measure(self, model: Seq2Seq) -> Event:
        """Returns a `validation` event, its step and seconds left to the caller.

        The loss is taken over all pairs in float32; the first `training.validation_lines` are
        translated greedily.
        """
        training = self.config.training
        forced = forced_scores(model, self.corpus, self.batch_tokens, training.label_smoothing)
        translator = Translator(TorchEngine(model), self.tokenizers.source, self.tokenizers.target)
        translations = [
            translation.text for translation in translator.translate(self.sources, beam_size=1)
        ]
        bleu, chrf = evaluate(
            translations, [self.references], target_language=self.config.data.target_language
        )
        rows = zip(self.sources, self.references, translations, strict=True)
        keys = ("source", "reference", "translation")
        return {
            "event": "validation",
            "loss": forced.loss,
            "nll": forced.nll,
            "perplexity": forced.perplexity,
            "accuracy": forced.accuracy,
            "bleu": bleu.value,
            "chrf": chrf.value,
            "signature": bleu.signature,
            "samples": [dict(zip(keys, row, strict=True)) for row in islice(rows, _SAMPLES)],
        }


def suspicion(event: Event) -> str | None:
    """Returns a warning where a validation contradicts itself."""
    if event["accuracy"] <= _SUSPICIOUS_ACCURACY or event["bleu"] >= _SUSPICIOUS_BLEU:
        return None
    if event["chrf"] < _SUSPICIOUS_CHRF:
        return (
            f"{event['accuracy']:.0%} of the tokens are right under teacher forcing, but free "
            f"translations reach BLEU {event['bleu']:.1f}: a mask that lets the decoder see what "
            f"it should predict, or another tokenizer than the model was trained with"
        )
    return (
        f"BLEU {event['bleu']:.1f} beside chrF {event['chrf']:.1f}: BLEU counts words between "
        f"blanks here; for a language that has none give its --target-language, or judge by "
        f"--training.best_by chrf"
    )
