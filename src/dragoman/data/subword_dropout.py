"""BPE dropout (Provilkov et al. 2020): a sentence is cut into other pieces each time it is read.

SentencePiece can do it too, but draws other cuts in every process, whatever its seed: a run could
not go on exactly where it stopped. Here all sentences of a batch are cut at once, by numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dragoman.config import EOS
from dragoman.data.encoded import Ids, Recut
from dragoman.data.tokenizer import Tokenizer

_Integers = npt.NDArray[np.int64]
_Number = TypeVar("_Number", int, _Integers)


class _Merges:
    """The merges of a byte-pair encoding as tables, applied to many words at a time."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._size = size = len(tokenizer)
        ranked = tokenizer.ranked_pieces()
        ids = {piece: id for id, piece in ranked}
        characters = {id: [id] for id in range(size)}  # special pieces and bytes stay whole
        joined: set[int] = set()
        merges = {size * size: len(ranked)}  # an end that no pair reaches, without a rank
        for rank, (id, piece) in enumerate(ranked):
            if any(character not in ids for character in piece):
                continue
            characters[id] = [ids[character] for character in piece]
            joined.update(self._key(*pair) for pair in pairwise(characters[id]))
            for i in range(1, len(piece)):
                if piece[:i] in ids and piece[i:] in ids:
                    merges[self._key(ids[piece[:i]], ids[piece[i:]])] = rank
        self._id_of_rank = np.array([id for id, _ in ranked])
        self._no_rank = len(ranked)
        self._counts = np.array([len(characters[id]) for id in range(size)])
        self._starts = np.cumsum(self._counts) - self._counts
        self._characters: _Integers = np.concatenate([characters[id] for id in range(size)])
        self._joined = np.array(sorted(joined), np.int64)
        self._keys = np.array(sorted(merges))
        self._ranks = np.array([merges[key] for key in sorted(merges)])

    def _key(self, left: _Number, right: _Number) -> _Number:
        return left * self._size + right

    def cut(self, ids: _Integers, probability: float, random: np.random.Generator) -> _Integers:
        """Takes pieces apart into characters and merges these anew.

        Each possible merge is left out with the probability when its two pieces come to stand side
        by side; the others are done in the order in which they were learnt. In each round every
        word has one merge, where a word is what no merge can reach out of.

        Args:
            ids: of many sentences, one after the other.
            probability: of leaving a merge out.
            random: draws.
        """
        symbols = self._take_apart(ids)
        pairs = self._key(symbols[:-1], symbols[1:])
        words = np.cumsum(np.append(True, ~np.isin(pairs, self._joined)))
        ranks = self._draw_ranks(symbols, words, np.arange(len(symbols)), probability, random)
        done = []
        while len(symbols):
            starts = np.flatnonzero(np.diff(words, prepend=0))
            by_rank_and_place = ranks * len(symbols) + np.arange(len(symbols))
            rank, place = np.divmod(np.minimum.reduceat(by_rank_and_place, starts), len(symbols))
            has_merge = rank < self._no_rank
            keep = np.repeat(has_merge, np.diff(starts, append=len(symbols)))
            done.append((words[~keep], symbols[~keep]))
            rank, place = rank[has_merge], place[has_merge]
            symbols[place] = self._id_of_rank[rank]
            keep[place + 1] = False
            place = np.cumsum(keep)[place] - 1
            symbols, words, ranks = symbols[keep], words[keep], ranks[keep]
            for changed in (place, place[place > 0] - 1):
                ranks[changed] = self._draw_ranks(symbols, words, changed, probability, random)
        order = np.argsort(np.concatenate([words for words, _ in done]), kind="stable")
        cut: _Integers = np.concatenate([symbols for _, symbols in done])[order]
        return cut

    def _take_apart(self, ids: _Integers) -> _Integers:
        counts = self._counts[ids]
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        apart: _Integers = self._characters[np.repeat(self._starts[ids], counts) + within]
        return apart

    def _draw_ranks(
        self,
        symbols: _Integers,
        words: _Integers,
        places: _Integers,
        probability: float,
        random: np.random.Generator,
    ) -> _Integers:
        """Returns the rank of the merge of each of some symbols with the next, if it has one."""
        following = np.minimum(places + 1, len(symbols) - 1)
        pairs = self._key(symbols[places], symbols[following])
        found = np.searchsorted(self._keys, pairs)
        possible = (self._keys[found] == pairs) & (words[places] == words[following])
        possible &= (places < following) & (random.random(len(places)) >= probability)
        return np.where(possible, self._ranks[found], self._no_rank)


class SubwordDropout:
    """Cuts encoded sentences anew, leaving out each merge with some probability.

    Nothing but the cut changes: the text of a sentence stays the same.
    """

    def __init__(
        self,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        probability: float,
        max_length: int = 0,
    ) -> None:
        """Keeps how both sides are cut.

        Args:
            source_tokenizer: byte-pair encoding of the source side.
            target_tokenizer: byte-pair encoding of the target side.
            probability: of leaving a merge out; 0 changes nothing.
            max_length: a sentence that would get more tokens, EOS included, keeps its cut; 0 sets
                no limit.
        """
        self._probability = probability
        self._max_length = max_length
        if probability:
            source = _Merges(source_tokenizer)
            joint = source_tokenizer is target_tokenizer
            self._sides = source, source if joint else _Merges(target_tokenizer)

    def recut(self, seed: int | Sequence[int]) -> Recut:
        """Returns a function for `EncodedCorpus.batch`: the seed decides how it cuts a batch."""

        def cut_anew(
            sources: Sequence[Ids], targets: Sequence[Ids]
        ) -> tuple[Sequence[Ids], Sequence[Ids]]:
            if not self._probability:
                return sources, targets
            random = np.random.default_rng(seed)
            source_merges, target_merges = self._sides
            return (
                self._cut(sources, source_merges, random),
                self._cut(targets, target_merges, random),
            )

        return cut_anew

    def _cut(
        self, rows: Sequence[Ids], merges: _Merges, random: np.random.Generator
    ) -> Sequence[Ids]:
        ids = np.concatenate(rows).astype(np.int64)
        cut = merges.cut(ids, self._probability, random)
        cuts = np.split(cut, np.flatnonzero(cut == EOS)[:-1] + 1)
        longest = self._max_length or len(cut)
        return [new if len(new) <= longest else old for old, new in zip(rows, cuts, strict=True)]
