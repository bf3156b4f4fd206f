"""Where a token stands (section 3.5), and the ways that came later."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Float64, Shaped
from torch import Tensor, nn

from dragoman.config import InputError, ModelConfig
from dragoman.kernels.blockwise import PartMaker


def sinusoidal_positions(
    positions: Shaped[Tensor, " length"],
    d_model: int,
    *,
    layout: str = "interleaved",
    denominator: str = "d",
) -> Float64[Tensor, "length {d_model}"]:
    """Computes PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(the same).

    Args:
        positions: (length,), any numbers.
        d_model: how many dimensions; of an odd number the last has a sine only.
        layout: `interleaved` as the paper writes it, or `halves`, all sines before all cosines, as
            tensor2tensor and others compute it.
        denominator: `d` for the exponent 2i/d, `d/2-1` for tensor2tensor's i/(d/2-1).

    Returns:
        (length, d_model), float64.
    """
    num_sines = (d_model + 1) // 2
    i = torch.arange(num_sines, dtype=torch.float64, device=positions.device)
    exponent = 2 * i / d_model if denominator == "d" else i / max(d_model // 2 - 1, 1)
    angles = positions.to(torch.float64)[:, None] * 10000.0**-exponent
    waves = torch.stack([angles.sin(), angles.cos()])
    if layout == "interleaved":
        return waves.permute(1, 2, 0).flatten(1)[:, :d_model]
    return waves.permute(1, 0, 2).flatten(1)[:, :d_model]


class SinusoidalPositions(nn.Module):
    """Adds sinusoids to embeddings; computed when needed, so there is no longest sentence."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.first_position = config.first_position
        self.layout = config.sinusoid_layout
        self.denominator = config.sinusoid_denominator

    def forward(
        self, x: Float[Tensor, "batch length d_model"], first: int = 0
    ) -> Float[Tensor, "batch length d_model"]:
        """Adds the positions from `first` on to x, (batch, length, d_model)."""
        start = self.first_position + first
        positions = torch.arange(start, start + x.shape[1], device=x.device)
        table = sinusoidal_positions(
            positions, x.shape[2], layout=self.layout, denominator=self.denominator
        )
        return x + table.to(x.dtype)


class LearnedPositions(nn.Module):
    """Adds a learned vector for each position (Table 3, row E)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.first_position = config.first_position
        self.max_positions = config.max_positions
        self.weight = nn.Parameter(
            torch.empty(self.first_position + self.max_positions, config.d_model)
        )

    def forward(
        self, x: Float[Tensor, "batch length d_model"], first: int = 0
    ) -> Float[Tensor, "batch length d_model"]:
        """Adds the positions from `first` on to x, (batch, length, d_model).

        Raises:
            InputError: if x is longer than the positions that were learned.
        """
        end = first + x.shape[1]
        if end > self.max_positions:
            raise InputError(
                f"a sentence of {end} tokens, accepted is at most model.max_positions "
                f"({self.max_positions}), for its positions are learned"
            )
        return x + self.weight[self.first_position + first : self.first_position + end]


class NoPositions(nn.Module):
    """Adds nothing: order is unknown, or comes in through self-attention."""

    def forward(
        self, x: Float[Tensor, "batch length d_model"], first: int = 0
    ) -> Float[Tensor, "batch length d_model"]:
        return x


class RelativePositions(nn.Module):
    """What self-attention does with the distance of two tokens: here, nothing."""

    def rotate(
        self, x: Float[Tensor, "batch heads length d_k"], first: int
    ) -> Float[Tensor, "batch heads length d_k"]:
        """Turns queries or keys, (batch, heads, length, d_k), whose positions begin at `first`."""
        return x

    def bias(self, num_queries: int, keys: Tensor) -> Tensor | None:
        """Returns what is added to the scores of keys, (batch, heads, key, d_k)."""
        return None

    def bias_parts(self, num_queries: int, keys: Tensor) -> PartMaker | None:
        """Returns what makes parts of `bias`, so that the whole of it need not be."""
        return None


class RotaryPositions(RelativePositions):
    """Turns each pair of dimensions by an angle that grows with the position (Su et al. 2021)."""

    def rotate(
        self, x: Float[Tensor, "batch heads length d_k"], first: int
    ) -> Float[Tensor, "batch heads length d_k"]:
        positions = torch.arange(first, first + x.shape[-2], device=x.device)
        sin, cos = (
            sinusoidal_positions(positions, x.shape[-1])
            .to(x.dtype)
            .unflatten(-1, (-1, 2))
            .unbind(-1)
        )
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


class AlibiPositions(RelativePositions):
    """Lowers scores in proportion to the distance, head by head (Press et al. 2022).

    The distance is taken without its sign, so that the encoder sees both ways alike.
    """

    def bias(self, num_queries: int, keys: Tensor) -> Tensor:
        everything = slice(None)
        return self.bias_parts(num_queries, keys)(everything, everything, everything)[0]

    def bias_parts(self, num_queries: int, keys: Tensor) -> Callable[[slice, slice, slice], Tensor]:
        num_heads, num_keys = keys.shape[1], keys.shape[2]
        heads = torch.arange(1, num_heads + 1, dtype=torch.float64, device=keys.device)
        slopes = 2.0 ** (-8.0 * heads / num_heads)
        at_key = torch.arange(num_keys, device=keys.device)
        at_query = torch.arange(num_keys - num_queries, num_keys, device=keys.device)
        dtype = keys.dtype

        def part(_: slice, rows: slice, columns: slice) -> Tensor:
            distance = (at_query[rows, None] - at_key[columns]).abs()
            return (-slopes[None, :, None, None] * distance).to(dtype)

        return part


def build_positions(config: ModelConfig) -> nn.Module:
    """Makes what is added to the embeddings."""
    if config.architecture == "recurrent":  # which knows the order from reading in it
        return NoPositions()
    if config.positions == "sinusoidal":
        return SinusoidalPositions(config)
    if config.positions == "learned":
        return LearnedPositions(config)
    return NoPositions()


def build_relative_positions(config: ModelConfig) -> RelativePositions:
    """Makes what self-attention knows of distances."""
    kinds = {"rotary": RotaryPositions, "alibi": AlibiPositions}
    return kinds.get(config.positions, RelativePositions)()
