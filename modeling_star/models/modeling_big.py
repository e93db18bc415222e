"""
BiG-Transformer (Shu et al., IJCNN 2020, https://openreview.net/forum?id=xulJokm5GeE) as transformers models.

Axes: b batch  n columns  N flat tokens  d width  h heads  c width of a head  r candidate roles  L longest word
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils import logging

from .attention import (
    Attend,
    BandCandidates,
    CandidateAttention,
    Candidates,
    Mix,
    UpdateLayerNorm,
    relay_attention,
)
from .configuration_big import BigTransformerConfig
from .heads import ForMaskedLM, ForQuestionAnswering, ForSequenceClassification, ForTokenClassification
from .modeling_encoder import EncoderModel, EncoderPreTrainedModel, Recorder
from .ops import Operations, choose, uses_blocks
from .token_layout import Memo, TokenLayout, cached_unless_traced, has_shifted, is_fixed, is_traced, windows
from .window_attention import WindowMask, dense_window, window_attention, window_mask
from .word_matcher import WordMatcher


logger = logging.get_logger(__name__)


def word_candidates(words: Tensor, include_self: bool, mean_dtype: torch.dtype | None = None) -> BandCandidates:
    """
    The words that contain a token: by length, then by the token's index in a word of that length. `words` `[N, L]`,
    bool, says at (i, l - 1) whether a word of l tokens starts at token i, and ends in its sequence; column 0 is
    ignored. `mean_dtype`: a word is the mean of its tokens, in this precision, in place of their sum.
    """
    longest = words.shape[1]
    spans, columns, memo = _word_roles(longest, include_self, words.device, mean_dtype)
    # Words end in their sequence, so that none comes from another.
    exists = windows(words, 1 - longest, 0).index_select(1, columns)
    if include_self:
        exists = nn.functional.pad(exists, (1, 0), value=True)
    return BandCandidates(exists, spans, longest - 1, of_spans=memo)


def adjacent_candidates(layout: TokenLayout) -> BandCandidates:
    """The tokens before, at and after each, every one a candidate of its own; the ends have no other side."""
    left, right = has_shifted(layout, -1), has_shifted(layout, 1)
    exists = torch.stack([left, torch.ones_like(left), right], dim=-1)
    return BandCandidates(exists, None, reach=1)


def window_candidates(layout: TokenLayout, radius: int, without_first: bool) -> BandCandidates:
    """
    The tokens from `radius` before to `radius` after each, every one a candidate of its own, within the sequence;
    `without_first`: but its first, which is the global node.
    """
    offset = torch.arange(-radius, radius + 1, device=layout.position.device)
    position = layout.position[:, None] + offset
    exists = (position >= int(without_first)) & (position < layout.lengths[layout.sequence_index][:, None])
    return BandCandidates(exists, None, radius)


def concatenated(first: BandCandidates, other: BandCandidates) -> BandCandidates:
    """The candidates of both, those of `other` last."""
    reach, dtype = (
        max(first.reach, other.reach),
        torch.promote_types(first.all_spans().dtype, other.all_spans().dtype),
    )
    spans = [
        nn.functional.pad(band.all_spans().to(dtype), (0, 0, reach - band.reach, reach - band.reach))
        for band in (first, other)
    ]
    return BandCandidates(torch.cat([first.exists, other.exists], dim=1), torch.cat(spans, dim=1), reach)


@cached_unless_traced
def _word_roles(
    longest: int, include_self: bool, device: torch.device, mean_dtype: torch.dtype | None
) -> tuple[Tensor, Tensor, Memo]:
    """
    The `spans` `[w, r]` of words; for roles of two tokens or more the columns among the L x L words that start L - 1
    to 0 tokens before a token, by length; and what is derived from the spans.
    """
    # Row by row, a lower triangle holds the indices below each length.
    length, index = torch.tril_indices(longest, longest, device=device)
    offset = torch.arange(1 - longest, longest, device=device)[:, None]
    spans = (offset >= -index) & (offset <= length - index)
    if mean_dtype is not None:
        spans = spans.to(mean_dtype) / spans.sum(0)
    columns = (longest - 1 - index) * longest + length
    return spans if include_self else spans[:, 1:], columns[1:], {}


class WordAttention(CandidateAttention):
    """
    MultiHeadAtt of a token over the words that contain it and the global node (Eqs 4 to 7). A first token that is the
    global node attends to all tokens of its sequence, with the same weights.
    """

    def __init__(self, config: BigTransformerConfig):
        heads = config.num_attention_heads
        super().__init__(config.hidden_size, heads, config.hidden_size // heads, config.attention_probs_dropout_prob)
        # W_s of the layer below: the matrix that makes the node this layer reads.
        self.global_node: nn.Linear | None = None
        self.node_is_first = config.global_node == "first"
        if config.global_connection and not self.node_is_first:
            self.global_node = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.always_attends = config.global_connection or config.include_self or config.local_connection != "lexicon"

    def nodes(self, tokens: Tensor, layout: TokenLayout) -> Tensor | None:
        """The global node of each sequence, from all tokens (`[N, d]` to `[b, d]`); `None` without it."""
        if self.node_is_first:
            return layout.first(tokens)
        return None if self.global_node is None else self.global_node(layout.mean(tokens))

    def forward(self, candidates: Candidates, operation: Attend | None = None) -> tuple[Tensor, Tensor | None]:
        """As `CandidateAttention.forward`; zeros where a token has nothing to attend to."""
        update, weights = super().forward(candidates, operation)
        if not self.always_attends:
            # The bias of W_O is not the sum of anything.
            update = update.masked_fill(~candidates.band.exists.any(-1, keepdim=True), 0)
        return update, weights

    def over_window(self, tokens: Tensor, layout: TokenLayout, window: WindowMask | Tensor) -> Tensor:
        """The update of all tokens `[N, d]` from those that `window` shows them; that of first tokens too."""
        projections = self.projections
        query, key, value = (
            layout.to_rows(projections.split(project(tokens))).transpose(1, 2)
            for project in (projections.query, projections.key, projections.value)
        )
        dropout_p = self.dropout_p if self.training else 0.0
        context = window_attention(query, key, value, window, dropout_p=dropout_p, scale=projections.scale)
        return projections.project_output(layout.from_rows(context.transpose(1, 2)))

    def over_sequence(
        self, first: Tensor, tokens: Tensor, layout: TokenLayout, mix: Mix
    ) -> tuple[Tensor, Tensor | None]:
        """The update of first tokens `[b, d]` from all tokens `[N, d]` of their sequences; weights `[b, h, m]`."""
        dropout_p = self.dropout_p if self.training else 0.0
        context, weights = relay_attention(self.projections, first, tokens, layout, dropout_p, False, mix)
        return self.projections.output(context), weights


class BigTransformerLayer(GradientCheckpointingLayer):
    """One step l of Algorithm 1 in the block of the standard Transformer, post-norm."""

    def __init__(self, config: BigTransformerConfig):
        super().__init__()
        self.num_heads = config.num_attention_heads
        # Without any candidate there is no attention, and nothing to train in it.
        self.attention = WordAttention(config) if config.candidate_roles else None
        self.attention_norm = UpdateLayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.intermediate = nn.Linear(config.hidden_size, config.intermediate_size)
        self.activation = ACT2FN[config.hidden_act]
        self.output = nn.Linear(config.intermediate_size, config.hidden_size)
        self.output_norm = UpdateLayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self,
        tokens: Tensor,
        band: BandCandidates | None,
        layout: TokenLayout,
        ops: Operations,
        first_only: bool = False,
        window: WindowMask | Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """
        H^l `[N, d]`, or of first tokens `[b, d]` with `first_only`; the attention weights `[b, h, n, r]`, `None` where
        none are recorded; and those of first tokens that are global nodes `[b, h, m]`. `window` says what each token
        sees, where these are not candidates.
        """
        attention = self.attention
        if window is not None and not first_only:
            return self._update(tokens, attention.over_window(tokens, layout, window), ops), None, None
        nodes = None if attention is None else attention.nodes(tokens, layout)
        first: Tensor | None = None
        first_weights: Tensor | None = None
        if attention is not None and attention.node_is_first:
            first, first_weights = attention.over_sequence(nodes, tokens, layout, ops.mix)
        if first_only:
            return self._update(nodes, first, ops), None, None
        if attention is None:
            no_weights = tokens.new_zeros(layout.lengths.shape[0], self.num_heads, layout.mask.shape[1], 0)
            return self._update(tokens, None, ops), no_weights, None
        key_value_weight = attention.projections.key_value_weight()
        candidates = Candidates(tokens, layout, key_value_weight, node=nodes, band=band)
        update, weights = attention(candidates, ops.attend)
        if first is not None:
            update = layout.replace_first(update, first)
            if weights is not None:
                weights = weights.masked_fill(layout.unpack(layout.position == 0)[:, None, :, None], 0)
        return self._update(tokens, update, ops), weights, first_weights

    def _update(self, state: Tensor, update: Tensor | None, ops: Operations) -> Tensor:
        """States `[..., d]` after what the attention adds to them, if anything, and the feed-forward layer."""
        added = (state, None) if update is None else (self.dropout(update), state)
        state = self.attention_norm(*added, kernel=ops.update_norm)
        update = self.output(self.activation(self.intermediate(state)))
        return self.output_norm(self.dropout(update), state, kernel=ops.update_norm)


class BigTransformerPreTrainedModel(EncoderPreTrainedModel):
    """Base class of the BiG-Transformer's models."""

    config_class = BigTransformerConfig
    # Heads without a pooled vector have no last global node; ablations read no words.
    _keys_to_ignore_on_load_unexpected = [r"(^|\.)global_pooling\.", r"(^|\.)matcher\."]
    _no_split_modules = ["TokenEmbeddings", "BigTransformerLayer"]

    @classmethod
    def from_encoder(
        cls,
        name_or_path: str | Path | PreTrainedModel,
        layers: Sequence[int] | None = None,
        radius: int = 128,
        lexicon: Any | None = None,
        *,
        max_positions: int | None = None,
        positions: Literal["repeated", "interpolated"] = "repeated",
        revision: str = "main",
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        **fields: Any,
    ) -> "BigTransformerPreTrainedModel":
        """
        A model with the weights of a BERT, RoBERTa, XLM-R, CamemBERT, DistilBERT or ELECTRA, whose tokens attend to
        `radius` neighbours on either side, to the words that contain them, and to the first token ([CLS]), which
        attends to all tokens: the time grows with the length, not with its square.

        With all layers and no lexicon, the states of texts of at most `radius` + 1 tokens are those of the encoder.
        A class with the checkpoint's head (`architectures`) keeps it with its labels; otherwise the head begins anew,
        which a warning says. The vector of a text is the last state of the first token. Positions are the encoder's:
        longer texts are an error without `max_positions`.

        Args:
            name_or_path: the encoder, as a Hub name, a folder, or a loaded model, which stays as it is.
            layers: indices of its layers that are taken; all where `None`.
            radius: neighbours on either side.
            lexicon: words of the encoder's tokenizer; `None` for none. A word is the mean of its tokens.
            max_positions: the longest text; the encoder's where `None`.
            positions: what further positions are: its table again and again ("repeated"), or stretched to them
                ("interpolated").
            revision, token, cache_dir: as in `AutoModel.from_pretrained`.
            fields: of the configuration, such as `num_labels=9`, `pooling="mean"`; they override those of the encoder.

        Raises:
            ValueError: the model is none of these encoders, lacks one of the layers, or `fields` change a shape.

        Example:

        ```python
        model = BigTransformerForSequenceClassification.from_encoder("roberta-base", max_positions=8192)
        ```
        """
        from .convert import big_transformer

        hub = {"revision": revision, "token": token, "cache_dir": cache_dir}
        model = big_transformer(cls, name_or_path, layers, radius, hub, fields, max_positions, positions)
        if lexicon is not None:
            model.set_lexicon(lexicon)
        return model

    def set_lexicon(self, lexicon: Any | None) -> None:
        """
        Replace the words that the model finds in its input; they are saved with it.

        No weight depends on them: a trained model takes another lexicon as it is. The configuration is changed too:
        models that are built from one need copies, copy.deepcopy(config).

        Args:
            lexicon: a `Lexicon` of the tokenizer that makes the input; `None` removes the words.

        Raises:
            TypeError: it is no `Lexicon`.
            ValueError: the model reads no words, or embeds fewer tokens than those of the lexicon.
        """
        config, encoder = self.config, self._encoder
        # Attributes, not its class, which is not among the code of a saved model.
        needed = ("kind", "max_word_length", "words", "continues", "alone")
        if lexicon is not None and not all(hasattr(lexicon, name) for name in needed):
            raise TypeError(
                f"lexicon={str(lexicon)[:40]!r} is a {type(lexicon).__name__}: write "
                "model.set_lexicon(Lexicon.from_words(words, tokenizer))."
            )
        largest = -1 if lexicon is None or lexicon.words is None else int(lexicon.words.max())
        if largest >= config.vocab_size:
            raise ValueError(
                f"The lexicon has token ids up to {largest}, and the model embeds {config.vocab_size} tokens: make it "
                "with the model's tokenizer."
            )
        if encoder.matcher is None:
            raise ValueError(
                f"local_connection={config.local_connection!r} reads no words: build the model with "
                'local_connection="lexicon" or "window".'
            )
        encoder.matcher.load(lexicon, self.device)
        config.lexicon_kind, config.lexicon_size = encoder.matcher.kind, WordMatcher.table_size(lexicon)
        config.max_word_length = encoder.matcher.max_word_length


class BigTransformerModel(BigTransformerPreTrainedModel, EncoderModel):
    """
    The bare BiG-Transformer (Algorithm 1): each token attends to the words that contain it and to one global node.

    The words in the input come from `input_ids` and the model's lexicon (`set_lexicon`), or from `word_mask`. A word's
    vector is the sum of its tokens' (Eq 3), so that the model has no parameter for words. The ablations that read no
    words ignore both.

    Returns an `EncoderOutput` with `last_hidden_state [b, n, d]` (zeros at padding) and `pooler_output [b, d]`, as
    `config.pooling` says. `attentions` are `[b, h, n, r]` in the order of `config.candidate_roles`: by length, then
    by the token's index in the word, the global node last; L (L + 1) / 2 + 1 in all, fewer in an ablation. A window
    without a lexicon has words where a `word_mask` is given: `config.roles(with_words=True)`. Weights are 0 for words
    that do not occur. Where the first token is the global node, its row is 0, and its weights over all
    tokens are `relay_attentions`, `[b, h, n]` for each layer.

    Example:

    ```python
    >>> import torch
    >>> from modeling_star import BigTransformerConfig, BigTransformerModel

    >>> model = BigTransformerModel(BigTransformerConfig(vocab_size=100))
    >>> words = torch.zeros(1, 3, 4)
    >>> words[0, 1, 2 - 1] = 1  # a word of two tokens starts in column 1
    >>> model(torch.tensor([[5, 6, 7]]), word_mask=words).last_hidden_state.shape
    torch.Size([1, 3, 300])
    ```
    """

    def build_encoder(self, config: BigTransformerConfig) -> None:
        self.matcher: WordMatcher | None = None
        if config.local_connection in ("lexicon", "window"):
            self.matcher = WordMatcher(config.lexicon_kind, config.lexicon_size, config.max_word_length)
        self.layers = nn.ModuleList(BigTransformerLayer(config) for _ in range(config.num_hidden_layers))
        self.global_pooling: nn.Linear | None = None
        if config.pooling == "global" and config.global_node == "mean" and self.add_pooling_layer:
            self.global_pooling = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def encode(
        self, embedded: Tensor, layout: TokenLayout, record: Recorder, inputs: dict[str, Tensor | None]
    ) -> tuple[Tensor | None, dict[str, Any]]:
        tokens = record.hidden_state(embedded)
        pools_first = self.config.pooling == "global" and self.config.global_node == "first"
        first_only = pools_first and not record.wants_token_states
        window = self._window(layout, inputs, embedded.dtype, record.wants_attentions)
        band = self._candidates(layout, inputs, embedded.dtype, record.wants_attentions) if window is None else None
        ops = choose(embedded, layout, None if band is None else band.reach, False, record.wants_attentions)
        for number, layer in enumerate(self.layers, start=1):
            if first_only and number == len(self.layers):
                # Nothing reads the other tokens: half the time of a model of two layers.
                tokens, *_ = layer(tokens, band, layout, ops, True, window)
                return tokens, {"pooler_output": layout.zero_empty(tokens)}
            tokens, weights, first_weights = layer(tokens, band, layout, ops, False, window)
            tokens = record.hidden_state(tokens)
            record.attention(weights)
            record.relay_attention(first_weights)
        return tokens, {"pooler_output": self._pool(tokens, layout)} if self.add_pooling_layer else {}

    def _window(
        self, layout: TokenLayout, inputs: dict[str, Tensor | None], dtype: torch.dtype, records: bool
    ) -> WindowMask | Tensor | None:
        """What each token sees, the same in every layer, where it is a wide window and the first token alone."""
        config = self.config
        radius = config.window_radius if is_traced() else min(config.window_radius, layout.max_length - 1)
        has_words = config.lexicon_kind is not None or inputs["word_mask"] is not None
        other_node = config.global_connection and config.global_node != "first"
        if config.local_connection != "window" or has_words or other_node or not uses_blocks(radius, layout, records):
            return None
        seen = torch.where(layout.lengths > 0, 0, -1)[:, None] if config.global_node == "first" else None
        if is_traced():
            return dense_window(layout.max_length, radius, radius, layout.row_mask, seen, layout.mask.device)
        real = None if layout.is_full else layout.row_mask
        options: dict[str, Any] = {"batch": len(layout.lengths), "dtype": dtype, "device": layout.mask.device}
        return window_mask(layout.max_length, radius, radius, real, seen, **options)

    def _candidates(
        self, layout: TokenLayout, inputs: dict[str, Tensor | None], dtype: torch.dtype, records: bool
    ) -> BandCandidates | None:
        """The candidates around each token, the same in every layer."""
        config = self.config
        if config.local_connection == "none":
            return None
        if config.local_connection == "adjacent":
            return adjacent_candidates(layout)
        mean_dtype = dtype if config.word_vector == "mean" else None
        if config.local_connection == "lexicon":
            return word_candidates(self._words(layout, inputs), config.include_self, mean_dtype)
        # No offset that no text of the batch has; recorded weights and traced graphs have all.
        radius = config.window_radius if records or is_traced() else min(config.window_radius, layout.max_length - 1)
        window = window_candidates(layout, radius, without_first=config.global_node == "first")
        if config.lexicon_kind is None and inputs["word_mask"] is None:
            return window
        words = word_candidates(self._words(layout, inputs), False, mean_dtype)
        return concatenated(window, words)

    def _words(self, layout: TokenLayout, inputs: dict[str, Tensor | None]) -> Tensor:
        """Which words start at each token, `[N, L]`, bool."""
        ids, word_mask = inputs["input_ids"], inputs["word_mask"]
        if word_mask is not None:
            return self._given_words(layout, word_mask)
        if ids is not None and self.matcher is not None and self.matcher.filled:
            return self.matcher(layout.pack(ids), layout)
        if not is_traced():
            logger.warning_once(
                f"{type(self).__name__} takes each token for a word and finds no others: it needs input_ids and a "
                "lexicon, model.set_lexicon(Lexicon.from_file(path, tokenizer)), or word_mask."
            )
        return torch.zeros_like(layout.position).bool()[:, None].expand(-1, self.config.max_word_length)

    def _given_words(self, layout: TokenLayout, word_mask: Tensor) -> Tensor:
        """The words of `word_mask` (`[b, n, L]`) as `[N, L]`, bool; a ValueError where one leaves its text."""
        words = layout.pack(word_mask) != 0
        fits = torch.stack([has_shifted(layout, length) for length in range(words.shape[1])], dim=-1)
        if not is_fixed():
            # Not at padding, which may hold anything, nor for words of one token.
            cut_off = layout.unpack(words & ~fits)[..., 1:].nonzero()
            if len(cut_off):
                row, column, length = cut_off[0].tolist()
                row //= 2 if self.config.pair_mode == "siamese" else 1
                raise ValueError(
                    f"word_mask has a word of {length + 2} tokens in row {row}, column {column}, which reaches past "
                    "the end of its text: omit such words."
                )
        return words & fits

    def _pool(self, tokens: Tensor, layout: TokenLayout) -> Tensor:
        """One vector a sequence, `[b, d]`; zeros for an empty one."""
        if self.config.pooling == "max":
            return layout.max(tokens)
        if self.config.pooling == "global" and self.config.global_node == "first":
            return layout.zero_empty(layout.first(tokens))
        pooled = layout.mean(tokens)
        return pooled if self.global_pooling is None else self.global_pooling(pooled)


class BigTransformerForSequenceClassification(BigTransformerPreTrainedModel, ForSequenceClassification):
    """BiG-Transformer with an MLP on the pooled vector: texts, text pairs, regression."""

    encoder_class = BigTransformerModel


class BigTransformerForTokenClassification(BigTransformerPreTrainedModel, ForTokenClassification):
    """BiG-Transformer with a label for every token: entities, parts of speech."""

    encoder_class = BigTransformerModel


class BigTransformerForQuestionAnswering(BigTransformerPreTrainedModel, ForQuestionAnswering):
    """BiG-Transformer with the start and end of an answer span."""

    encoder_class = BigTransformerModel


class BigTransformerForMaskedLM(BigTransformerPreTrainedModel, ForMaskedLM):
    """BiG-Transformer with a masked-language-model output tied to the embeddings."""

    encoder_class = BigTransformerModel


__all__ = [
    "BigTransformerForMaskedLM",
    "BigTransformerForQuestionAnswering",
    "BigTransformerForSequenceClassification",
    "BigTransformerForTokenClassification",
    "BigTransformerModel",
    "BigTransformerPreTrainedModel",
]
