"""How the tokens of a batch lie in memory. Only attention, which mixes them, has to know."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from dragoman.config import ModelConfig
from dragoman.kernels.packing import PackingIndex


class Layout:
    """Sentence by sentence, filled up on the right: x is (batch, length, d_model)."""

    def pack(self, x: Float[Tensor, "batch length d_model"]) -> Float[Tensor, "*tokens d_model"]:
        """Brings a padded batch into this layout."""
        return x

    def fold(self, x: Float[Tensor, "*tokens d_model"], rows: int) -> Tensor:
        """Lets the hypotheses of a sentence share its row: they follow one another in it."""
        return x.reshape(rows, -1, x.shape[-1])

    def split_heads(
        self, x: Float[Tensor, "*tokens d"], num_heads: int
    ) -> Float[Tensor, "batch {num_heads} length d_k"]:
        """Cuts each token's vector into heads, (batch, heads, length, d_k)."""
        # Without the transpose, heads and positions would be mixed: the shape fits all the same.
        return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)

    def merge_heads(
        self, x: Float[Tensor, "batch heads length d_v"]
    ) -> Float[Tensor, "*tokens heads_x_d_v"]:
        """Joins what the heads have found for each token, head after head."""
        return x.transpose(1, 2).flatten(2)


class PackedLayout(Layout):
    """The real tokens alone, one sentence behind the other: x is (tokens, d_model).

    Attention spreads them out to rectangles; all else has no padding to work on.
    """

    def __init__(self, real: Bool[Tensor, "batch length"]) -> None:
        """Takes note of where the real tokens are.

        Args:
            real: (batch, length), True where there is no padding; one at least.
        """
        self._real = real
        self._indices: dict[int, PackingIndex] = {}

    def pack(self, x: Tensor) -> Tensor:
        return self._index(1).pack(x[:, None])

    def fold(self, x: Tensor, rows: int) -> Tensor:
        return x

    def split_heads(self, x: Tensor, num_heads: int) -> Tensor:
        return self._index(num_heads).pad(x.reshape(x.shape[0] * num_heads, -1))

    def merge_heads(self, x: Tensor) -> Tensor:
        num_heads = x.shape[1]
        return self._index(num_heads).pack(x).unflatten(0, (-1, num_heads)).flatten(1)

    def _index(self, parts: int) -> PackingIndex:
        if parts not in self._indices:
            self._indices[parts] = PackingIndex(self._real, parts)
        return self._indices[parts]


PADDED = Layout()


def supports_packing(config: ModelConfig) -> bool:
    """Says whether packed tokens give what padded ones give: not where padding has a part in it."""
    return config.padding_mask and config.norm != "batch" and config.head_transpose == "both"
