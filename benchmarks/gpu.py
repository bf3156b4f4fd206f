"""Training and decoding at the paper's sizes on a GPU, beside torch.nn.Transformer and others.

    python benchmarks/gpu.py --output gpu.json

Batches are of 25,000 tokens a side, as the paper's; the lengths of the sentences are drawn as those
of news text are spread. Shown are real target tokens a second, and useful operations a second as a
share of the best rate of matrix products measured in the same run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch

from dragoman.bench.contestants import PACKAGES, versions
from dragoman.bench.jobs import Plan, decode, train
from dragoman.bench.report import to_json
from dragoman.bench.sentences import Workload, batch_pairs, choose_batches
from dragoman.bench.setting import PAPER_SIZES
from dragoman.config import EOS
from dragoman.data.atomic import write_text

_PAIRS = 60_000
_MEDIAN, _SPREAD, _LONGEST = 25, 0.6, 250
"""Of the lengths in tokens, which are taken to be log-normal."""


def draw_sentences(vocab_size: int, batch_tokens: int, batches: int) -> Workload:
    """Draws pairs whose two sides are about as long, and cuts them into batches."""
    random = np.random.default_rng(1)
    source = random.lognormal(np.log(_MEDIAN), _SPREAD, _PAIRS)
    target = source * random.lognormal(0, 0.15, _PAIRS)
    lengths = np.stack([source, target], axis=1).clip(2, _LONGEST).astype(np.int64)

    def draw(length: int) -> list[int]:
        return [*random.integers(EOS + 1, vocab_size, length - 1).tolist(), EOS]

    chosen = choose_batches(lengths, batch_tokens, batches)
    return batch_pairs(
        [[(draw(int(a)), draw(int(b))) for a, b in lengths[batch]] for batch in chosen]
    )


def main() -> None:
    """Prints the tables as they come."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", choices=PAPER_SIZES, default=list(PAPER_SIZES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=20, help="steps of a round")
    parser.add_argument("--output", type=Path, help="a JSON file")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("error: torch finds no CUDA device here")
    any_size = next(iter(PAPER_SIZES.values()))
    workload = draw_sentences(any_size.vocab_size, any_size.batch_tokens, arguments.batches)
    parts = []
    with tempfile.TemporaryDirectory() as folder:
        workload.save(Path(folder) / "sentences.json")
        plan = Plan(
            sizes=arguments.sizes,
            rounds=arguments.rounds,
            peers=list(PACKAGES),
            threads=None,
            folder=Path(folder),
            say=partial(print, file=sys.stderr, flush=True),
            device="cuda",
        )
        for job in (train, decode):
            for part in job(plan):
                parts.append(part)
                print("\n".join(part.to_lines()) + "\n", flush=True)
    if arguments.output:
        device = {"device": torch.cuda.get_device_name(), "versions": versions()}
        write_text(arguments.output, json.dumps(to_json(parts, device), indent=1) + "\n")


if __name__ == "__main__":
    main()
