"""
An encoder of this package with the decoder of the standard Transformer, for translation and other text to text.

Axes: b batch  n source columns  m target columns  d width of the encoder  w width of the decoder  V vocabulary
"""

import os
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationMixin, MarianForCausalLM, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import Seq2SeqLMOutput
from transformers.utils import can_return_tuple

from modeling_star.models.modeling_big import BigTransformerModel
from modeling_star.models.modeling_bilstm import BiLstmModel
from modeling_star.models.modeling_disan import DisanModel
from modeling_star.models.modeling_encoder import EncoderModel, EncoderOutput
from modeling_star.models.modeling_star import StarTransformerModel
from modeling_star.models.modeling_vanilla import VanillaTransformerModel
from modeling_star.models.saving import code_apart
from modeling_star.models.tag_schemes import IGNORE_INDEX

from .configuration_encoder_decoder import TextEncoderDecoderConfig


# The parameter that is saved where several sides share one table.
TABLE = "decoder.model.decoder.embed_tokens.weight"
ENCODERS: dict[str, type[EncoderModel]] = {
    model.config_class.model_type: model
    for model in (StarTransformerModel, BigTransformerModel, VanillaTransformerModel, DisanModel, BiLstmModel)
}


class TextEncoderDecoderModel(PreTrainedModel, GenerationMixin):
    """
    Any encoder of this package with the decoder of https://arxiv.org/abs/1706.03762 (transformers' Marian: causal
    self-attention, attention to the encoder's states, feed-forward; sinusoidal positions, post-norm).

    Padding changes no output: a source alone and the same in a batch give the same. `generate` works with beams and
    caches as for any model of transformers.

    Example:

    ```python
    >>> import torch
    >>> from translation import TextEncoderDecoderConfig, TextEncoderDecoderModel

    >>> model = TextEncoderDecoderModel(TextEncoderDecoderConfig(vocab_size=100)).eval()
    >>> model(torch.tensor([[5, 6, 7]]), decoder_input_ids=torch.tensor([[2, 8]])).logits.shape
    torch.Size([1, 2, 100])
    ```
    """

    config_class = TextEncoderDecoderConfig
    base_model_prefix = "encoder_decoder"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _no_split_modules = ["TokenEmbeddings", "StarTransformerLayer", "BigTransformerLayer", "MarianDecoderLayer"]
    # Parts of a checkpoint's encoder that only a pooled vector needs.
    _keys_to_ignore_on_load_unexpected = [r"(^|\.)relay_(attention|norm)\."]

    def __init__(self, config: TextEncoderDecoderConfig):
        implementation = config._attn_implementation  # the requested one, which the next line replaces
        super().__init__(config)
        if implementation is not None:
            config.decoder._attn_implementation = implementation
        self.encoder = ENCODERS[config.encoder.model_type](config.encoder, add_pooling_layer=False)
        self.decoder = MarianForCausalLM(config.decoder)
        # Later changes of one side, such as a lexicon, are saved with the whole.
        self.encoder.config, self.decoder.config = config.encoder, config.decoder
        same_width = config.encoder.hidden_size == config.decoder.d_model
        self.projection = None if same_width else nn.Linear(config.encoder.hidden_size, config.decoder.d_model)
        self._tied_weights_keys = {}
        if config.share_embeddings:
            self._tied_weights_keys = {"encoder.embeddings.word_embeddings.weight": TABLE}
        self.post_init()
        self._freeze_what_is_fixed()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Both sides initialise their own; the projection between them starts Xavier-uniform."""
        super()._init_weights(module)
        if isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight)

    def save_pretrained(
        self, save_directory: str | os.PathLike[str], is_main_process: bool = True, *args: Any, **kwargs: Any
    ) -> None:
        """As in PreTrainedModel, with the code of this class in `code/`, also where FSDP or a user subclasses it."""
        with code_apart(self, save_directory, is_main_process):
            super().save_pretrained(save_directory, is_main_process, *args, **kwargs)

    @classmethod
    def from_pretrained(cls, *args: Any, output_loading_info: bool = False, **kwargs: Any) -> Any:
        """As in PreTrainedModel; fixed parameters are fixed again, and a shared table is copied to each side."""
        model, info = super().from_pretrained(*args, output_loading_info=True, **kwargs)
        state, missing = model.state_dict(), set(info["missing_keys"])
        sides = {"encoder.embeddings.word_embeddings.weight", "decoder.lm_head.weight"} & missing & state.keys()
        copied = {side for side in sides if TABLE not in missing and state[side].shape == state[TABLE].shape}
        for side in copied:
            state[side].copy_(state[TABLE])
        info["missing_keys"] = missing - copied
        model._freeze_what_is_fixed()
        return (model, info) if output_loading_info else model

    def _freeze_what_is_fixed(self) -> None:
        """Sinusoids are a parameter in Marian; the encoder's embeddings may be frozen."""
        self.decoder.model.decoder.embed_positions.requires_grad_(False)
        if self.config.encoder.freeze_embeddings:
            self.encoder.embeddings.freeze()

    def get_encoder(self, modality: str | None = None) -> EncoderModel:
        return self.encoder

    def get_decoder(self) -> PreTrainedModel:
        return self.decoder

    def get_input_embeddings(self) -> nn.Embedding:
        return self.encoder.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        """The encoder's table `[V, d]`; all tables where they are shared."""
        self.encoder.set_input_embeddings(value)
        if self.config.share_embeddings:
            self.decoder.set_input_embeddings(value)
            self.tie_weights()

    def get_output_embeddings(self) -> nn.Module:
        return self.decoder.get_output_embeddings()

    def set_output_embeddings(self, value: nn.Module) -> None:
        self.decoder.set_output_embeddings(value)

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """The labels `[b, m]` shifted right by one, after the start token; padding where they are -100."""
        start = labels.new_full((len(labels), 1), self.config.decoder_start_token_id)
        shifted = torch.cat([start, labels[:, :-1]], dim=1)
        return shifted.masked_fill(shifted == IGNORE_INDEX, self.config.pad_token_id)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: Any = None,
        past_key_values: Any = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        token_type_ids: Tensor | None = None,
        word_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """
        Args:
            input_ids, attention_mask, inputs_embeds, token_type_ids, word_mask, position_ids: the source, as
                `EncoderModel.forward` takes it, `[b, n, ...]`.
            decoder_input_ids: `[b, m]`, the target so far; made of `labels` where these are given alone.
            decoder_attention_mask: `[b, m]`; not needed for padding on the right.
            encoder_outputs: the encoder's output, instead of the source.
            past_key_values, use_cache: transformers' caches; from transformers 5.24 on also under the name `cache`.
            labels: `[b, m]`, -100 where there is nothing to predict.
            output_attentions, output_hidden_states: of both sides; default to this configuration's, or else to those
                of each side.
            kwargs: `num_items_in_batch`, the number of labels that the loss is a mean over; other arguments of
                transformers' Marian, such as `logits_to_keep`.

        Returns:
            Logits `[b, m, V]`, and a loss where there are labels.
        """
        num_items_in_batch = kwargs.pop("num_items_in_batch", None)
        if past_key_values is not None:  # transformers 5.24 warns of the name, also without a value
            kwargs["past_key_values"] = past_key_values
        recorded = {"output_attentions": output_attentions, "output_hidden_states": output_hidden_states}
        for name, requested in recorded.items():
            if requested is None and getattr(self.config, name):
                recorded[name] = True
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids,
                attention_mask,
                token_type_ids,
                position_ids=position_ids,
                inputs_embeds=inputs_embeds,
                word_mask=word_mask,
                **recorded,
                return_dict=True,
            )
        elif isinstance(encoder_outputs, tuple):
            encoder_outputs = EncoderOutput(last_hidden_state=encoder_outputs[0])
        states = encoder_outputs.last_hidden_state
        if labels is not None and decoder_input_ids is None and decoder_inputs_embeds is None:
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        output = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_hidden_states=states if self.projection is None else self.projection(states),
            encoder_attention_mask=attention_mask,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache if labels is None else False,
            **{name: requested for name, requested in recorded.items() if requested is not None},
            **kwargs,
            return_dict=True,
        )
        cache = "cache" if hasattr(output, "cache") else "past_key_values"  # its name before transformers 5.24
        return Seq2SeqLMOutput(
            loss=None if labels is None else translation_loss(output.logits, labels, num_items_in_batch),
            logits=output.logits,
            **{cache: getattr(output, cache)},
            decoder_hidden_states=output.hidden_states,
            decoder_attentions=output.attentions,
            cross_attentions=output.cross_attentions,
            encoder_last_hidden_state=states,
            encoder_hidden_states=encoder_outputs.hidden_states,
            encoder_attentions=encoder_outputs.attentions,
        )


def translation_loss(logits: Tensor, labels: Tensor, num_items_in_batch: Tensor | int | None) -> Tensor:
    """Cross entropy of each next token, `[b, m, V]` and `[b, m]`, over `num_items_in_batch` labels or all."""
    labels = labels.to(logits.device).long()
    total = nn.functional.cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORE_INDEX, reduction="sum"
    )
    count = (labels != IGNORE_INDEX).sum() if num_items_in_batch is None else torch.as_tensor(num_items_in_batch)
    return total / count.to(total.device).clamp(min=1)


__all__ = ["ENCODERS", "TextEncoderDecoderModel", "translation_loss"]
