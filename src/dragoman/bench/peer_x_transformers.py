"""x-transformers: its encoder and decoder, post-norm as the paper has it."""

from __future__ import annotations

from torch import Tensor, nn

from dragoman.bench.plain import PlainTraining, fastest
from dragoman.bench.setting import Setting
from dragoman.config import PAD, Config

_POSITIONS = 1024


class _Logits(nn.Module):
    """Both halves with one embedding, as `PlainTraining` calls them."""

    def __init__(self, config: Config) -> None:
        from x_transformers import Decoder, Encoder, TransformerWrapper

        super().__init__()
        model = config.model
        shared = {
            "dim": model.d_model,
            "heads": model.num_heads,
            "attn_dim_head": model.d_k,
            "ff_mult": model.d_ff // model.d_model,
            "pre_norm": False,
            "attn_sublayer_dropout": model.dropout,
            "ff_sublayer_dropout": model.dropout,
            "attn_flash": True,
        }
        common = {
            "num_tokens": model.target_vocab_size,
            "max_seq_len": _POSITIONS,
            "emb_dropout": model.embedding_dropout,
            "scaled_sinu_pos_emb": True,
        }
        self.encoder = TransformerWrapper(
            **common,
            return_only_embed=True,
            attn_layers=Encoder(depth=model.num_encoder_layers, **shared),
        )
        self.decoder = TransformerWrapper(
            **common,
            tie_embedding=True,
            token_emb=self.encoder.token_emb,
            attn_layers=Decoder(depth=model.num_decoder_layers, cross_attend=True, **shared),
        )

    def forward(self, source: Tensor, target_input: Tensor) -> Tensor:
        """Returns logits, (batch, target, vocab)."""
        mask = source != PAD
        memory = self.encoder(source, mask=mask, return_embeddings=True)
        logits: Tensor = self.decoder(target_input, context=memory, context_mask=mask)
        return logits


class Training(PlainTraining):
    """A plain loop around it, with the faster of its two kinds of attention."""

    def __init__(self, setting: Setting, precision: str = "float32") -> None:
        super().__init__(setting, _Logits, precision)
        self.facts["attention"] = fastest(("plain", "flash"), self._choose_attention, self)

    def _choose_attention(self, kind: str) -> None:
        from x_transformers.attend import Attend

        for module in self.model.modules():
            if isinstance(module, Attend):
                module.flash = kind == "flash"
