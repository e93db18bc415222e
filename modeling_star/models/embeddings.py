"""
The embeddings that every encoder starts from: a table or an encoder inside, characters, words, positions, types.

Axes: b batch  n columns  N flat tokens  w width of the table  d width
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from .configuration_encoder import EncoderConfig
from .token_layout import TokenLayout, cached_unless_traced, is_fixed, is_traced


# Sinusoids of so many first positions are kept.
SHARED_POSITIONS = 4096


def sinusoidal_positions(position: Tensor, width: int, base: float, dtype: torch.dtype) -> Tensor:
    """
    Sinusoids `[N, d]` of positions `[N]` (section 3.5 of https://arxiv.org/abs/1706.03762; BiG-Transformer Eqs 8 and
    9), sine in the even columns and cosine in the odd ones; `base` is the ratio of the longest to the shortest
    wavelength. They are held in no buffer, so that no length is too long and nothing needs saving.
    """
    # In float32 the angle of a position above 100,000 is off by a hundredth; Apple's devices have no float64.
    precise = torch.float32 if position.device.type == "mps" else torch.float64
    index = torch.arange(0, width, 2, device=position.device, dtype=precise)
    angles = position[:, None].to(precise) * torch.exp(index * (-math.log(base) / width))
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width].to(dtype)


@cached_unless_traced
def _first_sinusoids(count: int, device: torch.device, width: int, base: float, dtype: torch.dtype) -> Tensor:
    """`sinusoidal_positions` of the first `count` positions."""
    return sinusoidal_positions(torch.arange(count, device=device), width, base, dtype)


class TokenEmbeddings(nn.Module):
    """
    E of section 3.2: token embedding (a table, or the last hidden state of an encoder inside), joined by character
    features and vectors of words where there are any, projected to d where the width differs, plus position and token
    type embeddings, normalised where the configuration says so.
    """

    # Earlier versions saved them; the encoder takes the pattern from here.
    _keys_to_ignore_on_load_unexpected = [r"\.matcher\.multipliers$"]

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.config = config
        self.backbone: PreTrainedModel | None = None
        width, joined_width = config.hidden_size, config.embedding_size
        # What only some models have is imported where one has it: of the others nobody has to read it.
        if config.backbone_config is None:
            self.word_embeddings = nn.Embedding(config.vocab_size, config.embedding_size)
        else:
            from .backbone import build_backbone

            self.backbone = build_backbone(config.backbone_config)
        self.characters: Any = None
        if config.char_features:
            from .char_cnn import CharCNN

            self.characters = CharCNN(config)
            joined_width += self.characters.width
        self.word_vectors: Any = None
        if config.word_vector_size:
            from .word_vectors import WordVectors

            self.word_vectors = WordVectors(config)
            joined_width += self.word_vectors.width
        self.projection = nn.Linear(joined_width, width) if joined_width != width else None
        if config.embedding_projection == "last":
            width = joined_width
        self.position_embeddings = (
            nn.Embedding(config.max_position_embeddings, width)
            if config.position_embedding_type == "learned"
            else None
        )
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, width) if config.type_vocab_size else None
        self.norm = nn.LayerNorm(width, eps=config.layer_norm_eps) if config.embedding_norm else None
        self.dropout = nn.Dropout(config.embedding_dropout_prob)

    @property
    def table(self) -> nn.Embedding:
        """The embedding table: ours, or that of the encoder inside."""
        return self.word_embeddings if self.backbone is None else self.backbone.get_input_embeddings()

    def set_table(self, table: nn.Embedding) -> None:
        """Replace the embedding table, as resize_token_embeddings does."""
        if self.backbone is None:
            self.word_embeddings = table
        else:
            self.backbone.set_input_embeddings(table)

    def freeze(self) -> None:
        """Stop training the table or the encoder inside; projection, positions and types stay trainable."""
        (self.word_embeddings if self.backbone is None else self.backbone).requires_grad_(False)
        self.train(self.training)

    def train(self, mode: bool = True) -> "TokenEmbeddings":
        """As in nn.Module, but a frozen encoder inside stays in eval mode."""
        super().train(mode)
        if self._has_frozen_backbone():
            self.backbone.eval()
        return self

    def _has_frozen_backbone(self) -> bool:
        """Whether nothing inside is trained: adapters are, and parameters that a user has unfrozen."""
        if self.backbone is None or not self.config.freeze_embeddings:
            return False
        return not any(parameter.requires_grad for parameter in self.backbone.parameters())

    def forward(
        self,
        layout: TokenLayout,
        input_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> Tensor:
        """
        Flat token states `[N, d]` of ids and types `[b, n]`, or of `inputs_embeds` `[b, n, w]` instead of rows of the
        table. Positions default to the index among the real tokens.
        """
        tokens = layout.pack(input_ids if input_ids is not None else inputs_embeds)
        types = None if token_type_ids is None else layout.pack(token_type_ids)
        given_position = None if position_ids is None else layout.pack(position_ids)
        if not is_fixed():
            # The look-up in a table on a CPU checks ids itself.
            looks_up = self.backbone is None and type(self.table) is nn.Embedding and tokens.device.type == "cpu"
            ids = None if input_ids is None or looks_up else tokens
            given = {"input_ids": ids, "token_type_ids": types, "position_ids": given_position}
            for name, x in given.items():
                if x is not None:
                    check_range(name, x, self.input_sizes()[name])
        if self.backbone is not None:
            from .backbone import run_backbone

            is_frozen = self._has_frozen_backbone()
            embedded = run_backbone(self.backbone, layout, tokens, types, given_position, is_frozen)
        else:
            embedded = self._looked_up(tokens, layout) if input_ids is not None else tokens
        if self.config.scale_embedding:
            embedded = embedded * math.sqrt(embedded.shape[-1])
        if input_ids is None and (self.characters is not None or self.word_vectors is not None):
            name = "word_vector_size" if self.characters is None else "char_features"
            raise ValueError(f"inputs_embeds are given, and {name} is set, which needs input_ids: give these.")
        if self.characters is not None:
            # Ids at padding must not even decide in which order numbers are summed.
            ids = tokens.masked_fill(~layout.pack(layout.mask), 0)
            embedded = torch.cat([embedded, self.characters(ids, layout)], dim=-1)
        if self.word_vectors is not None:
            embedded = torch.cat([embedded, self.word_vectors(tokens, layout)], dim=-1)
        projects_last = self.config.embedding_projection == "last"
        if self.projection is not None and not projects_last:
            embedded = self.projection(embedded)
        if self.position_embeddings is not None:
            position = self._positions(layout) if given_position is None else given_position
            embedded = embedded + self.position_embeddings(position)
        elif self.config.position_embedding_type == "sinusoidal":
            embedded = embedded + self._sinusoids(layout, given_position, embedded)
        if self.token_type_embeddings is not None:
            types = torch.zeros_like(layout.position) if types is None else types
            embedded = embedded + self.token_type_embeddings(types)
        if self.norm is not None:
            embedded = self.norm(embedded)
        embedded = self.dropout(embedded)
        return self.projection(embedded) if self.projection is not None and projects_last else embedded

    def given_width(self) -> int:
        """Numbers of a given embedding; the table of an ELECTRA or ALBERT inside is narrower than its output."""
        return getattr(self.table, "embedding_dim", self.config.embedding_size)

    def input_sizes(self) -> dict[str, int | None]:
        """How many numbers from 0 on each input of ids may hold; `None` where any is allowed."""
        config, inside = self.config, getattr(self.config.backbone_config, "type_vocab_size", 0)
        # An encoder inside that has one type is given none.
        types = (config.type_vocab_size, 2 if config.pair_mode == "siamese" else 0, inside if inside > 1 else 0)
        return {
            "input_ids": config.vocab_size,
            "token_type_ids": min((count for count in types if count), default=None),
            "position_ids": longest_input(config),
        }

    def _positions(self, layout: TokenLayout) -> Tensor:
        """The position of each token `[N]`, in training from a random row of the table on where that is configured."""
        if not (self.training and self.config.random_position_offset):
            return layout.position
        room = (self.position_embeddings.num_embeddings - layout.lengths + 1).clamp(min=1)
        offset = (torch.rand(room.shape, device=room.device) * room).long().clamp(max=room - 1)
        return layout.position + offset[layout.sequence_index]

    def _sinusoids(self, layout: TokenLayout, position: Tensor | None, like: Tensor) -> Tensor:
        """Sinusoidal positions `[N, d]`: those given, or from a table of those that texts share."""
        options = (like.shape[-1], self.config.sinusoidal_base, like.dtype)
        if position is not None or is_traced() or layout.max_length > SHARED_POSITIONS:
            return sinusoidal_positions(layout.position if position is None else position, *options)
        return _first_sinusoids(SHARED_POSITIONS, like.device, *options)[layout.position]

    def _looked_up(self, ids: Tensor, layout: TokenLayout) -> Tensor:
        """Rows of the table, `[N]` to `[N, w]`; looked up as `[b, m]` where Trainer's NEFTune needs the length."""
        if getattr(self.word_embeddings, "neftune_noise_alpha", None) is None:
            try:
                return self.word_embeddings(ids)
            except IndexError:
                check_range("input_ids", ids, self.config.vocab_size)
                raise
        return layout.from_rows(self.word_embeddings(layout.to_rows(ids)))


def extremes(given: Tensor) -> tuple[float, float]:
    """The smallest and the largest number."""
    low, high = torch.stack(tuple(torch.aminmax(given))).tolist()  # a GPU is waited for once
    return low, high


def check_range(name: str, given: Tensor, size: int | None) -> None:
    """Raise IndexError where real tokens have numbers that are not from 0 to `size` - 1; `None`: any is allowed."""
    if size is None or not given.numel():
        return
    low, high = extremes(given)
    if low < 0 or high >= size:
        hint = "; for added tokens, model.resize_token_embeddings(len(tokenizer))" if name == "input_ids" else ""
        raise IndexError(f"{name} hold {low if low < 0 else high}; 0 to {size - 1} are allowed{hint}.")


def longest_input(config: PreTrainedConfig) -> int | None:
    """The most tokens that any encoder of transformers takes; `None` where it has no limit."""
    backbone = getattr(config, "backbone_config", None)
    inside = None if backbone is None else longest_input(backbone)
    # BERT calls learned positions "absolute"; most encoders have no such field.
    if getattr(config, "position_embedding_type", "learned") not in ("learned", "absolute"):
        return inside
    positions = getattr(config, "max_position_embeddings", None)
    if positions is not None:  # XLNet's -1 is no limit
        from .backbone import first_position

        positions = positions - first_position(config) if positions > 0 else None
    return min((limit for limit in (positions, inside) if limit is not None), default=None)
