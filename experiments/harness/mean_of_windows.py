"""
A BERT that processes a long text in windows: the usual baseline for long documents.

This file is saved with the model (`trust_remote_code`), so that it imports nothing of the project.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput


class MeanOfWindowsConfig(PreTrainedConfig):
    """The fields of the BERT's configuration, and the ids of the tokens around each window."""

    model_type = "mean-of-windows"

    def __init__(
        self, encoder: dict[str, Any] | None = None, cls_token_id: int = 101, sep_token_id: int = 102, **fields: Any
    ) -> None:
        self.encoder = encoder or {}
        self.cls_token_id, self.sep_token_id = cls_token_id, sep_token_id
        super().__init__(**fields)

    @property
    def window(self) -> int:
        """Tokens of a window, with [CLS] and [SEP]: all that the BERT takes."""
        return int(self.encoder["max_position_embeddings"])


class MeanOfWindowsForSequenceClassification(PreTrainedModel):
    """BERT's classifier on the mean of its pooled vectors over a text's windows; of one window, BERT's classifier."""

    config_class = MeanOfWindowsConfig
    base_model_prefix = "encoder"
    _supports_sdpa = True

    def __init__(self, config: MeanOfWindowsConfig) -> None:
        super().__init__(config)
        fields = {name: value for name, value in config.encoder.items() if name != "dtype"}  # that of the model
        inner = AutoConfig.for_model(fields.pop("model_type", "bert"), **fields)
        inner._attn_implementation = "sdpa"
        self.encoder = AutoModel.from_config(inner)
        self.dropout = nn.Dropout(inner.hidden_dropout_prob)
        self.classifier = nn.Linear(inner.hidden_size, config.num_labels)
        self.post_init()

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None, **_: Any
    ) -> SequenceClassifierOutput:
        """`[b, n]` whole texts between [CLS] and [SEP], padded on the right; labels `[b]`."""
        length_of_window = self.config.window - 2
        lengths = (attention_mask.sum(1) - 2).tolist()
        windows: list[Tensor] = []
        of_text: list[int] = []
        for row, length in enumerate(lengths):
            body = input_ids[row, 1 : length + 1]
            parts = body.split(length_of_window) if length else [body]
            windows += parts
            of_text += [row] * len(parts)
        pooled = input_ids.new_zeros(len(windows), self.encoder.config.hidden_size, dtype=self.dtype)
        full = [number for number, part in enumerate(windows) if len(part) == length_of_window]
        short = [number for number, part in enumerate(windows) if len(part) < length_of_window]
        for numbers in filter(None, (full, short)):  # full ones need no mask, which is faster
            pooled[numbers] = self._pooled([windows[number] for number in numbers]).to(pooled)
        texts = torch.tensor(of_text, device=pooled.device)
        summed = pooled.new_zeros(len(lengths), pooled.shape[1]).index_add(0, texts, pooled)
        mean = summed / texts.bincount(minlength=len(lengths))[:, None]
        logits = self.classifier(self.dropout(mean))
        loss = None if labels is None else nn.functional.cross_entropy(logits.float(), labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)

    def _pooled(self, parts: list[Tensor]) -> Tensor:
        """The pooled vectors `[w, d]` of windows without their [CLS] and [SEP]."""
        ends = [parts[0].new_tensor([number]) for number in (self.config.cls_token_id, self.config.sep_token_id)]
        whole = [torch.cat([ends[0], part, ends[1]]) for part in parts]
        ids = nn.utils.rnn.pad_sequence(whole, batch_first=True)
        lengths = torch.tensor([len(part) for part in whole], device=ids.device)
        mask = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
        pooled: Tensor = self.encoder(ids, attention_mask=None if mask.all() else mask.long()).pooler_output
        return pooled


MeanOfWindowsConfig.register_for_auto_class()
MeanOfWindowsForSequenceClassification.register_for_auto_class("AutoModelForSequenceClassification")
