"""
A bidirectional LSTM (Hochreiter and Schmidhuber 1997, https://doi.org/10.1162/neco.1997.9.8.1735) as transformers
models: torch.nn's layers between this package's embeddings and heads.

Axes: b batch  n columns  N flat tokens  m longest sequence  d width
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer

from .configuration_bilstm import BiLstmConfig
from .heads import ForMaskedLM, ForQuestionAnswering, ForSequenceClassification, ForTokenClassification
from .modeling_encoder import EncoderModel, EncoderPreTrainedModel, Recorder
from .token_layout import TokenLayout


class RightPaddedLSTM(nn.Module):
    """
    torch's LSTM of one layer, w wide in each direction, over right-padded rows `[b, m, d]` whose padding the direction
    from the right does not read. It is no `nn.LSTM`, whose weights transformers initialises otherwise. torch.compile
    leaves it out of its graphs.
    """

    def __init__(self, width: int, hidden_size: int, bidirectional: bool):
        super().__init__()
        self.bidirectional = bidirectional
        for name, parameter in nn.LSTM(width, hidden_size, bidirectional=bidirectional).named_parameters():
            self.register_parameter(name, parameter)

    @torch.compiler.disable
    def forward(self, rows: Tensor, lengths: Tensor) -> Tensor:
        """The states `[b, m, w]`, or `[b, m, 2w]` of two directions; anything finite at padding."""
        # cuDNN takes packed rows, none of them empty, in both directions at once. On a CPU gradients of packed rows
        # cost the square of their length: 17 times those of padded ones at 512 tokens.
        if rows.is_cuda:
            return self._packed(rows, lengths)
        if rows.device.type != "cpu":
            return self._directions(rows, lengths)
        with torch.autocast("cpu", enabled=False):  # few CPUs have an LSTM of 16 bits
            wide = rows if rows.dtype == torch.float64 else rows.float()
            return self._directions(wide, lengths).to(rows.dtype)

    def _packed(self, rows: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(rows, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
        weights: list[Tensor] = list(self.parameters())
        both = self.bidirectional
        start = rows.new_zeros(1 + both, rows.shape[0], weights[1].shape[1])
        states, _, _ = torch.lstm(
            packed.data, packed.batch_sizes, (start, start), weights, True, 1, 0.0, self.training, both
        )
        packed = packed._replace(data=states)
        return pad_packed_sequence(packed, batch_first=True, total_length=rows.shape[1])[0]

    def _directions(self, rows: Tensor, lengths: Tensor) -> Tensor:
        states = self._one_direction(rows, "")
        if not self.bidirectional:
            return states
        # The other direction starts at each row's last token, not at its padding.
        backwards = self._one_direction(reversed_rows(rows, lengths), "_reverse")
        return torch.cat([states, reversed_rows(backwards, lengths)], dim=-1)

    def _one_direction(self, rows: Tensor, direction: str) -> Tensor:
        """The states `[b, m, w]` of the rows read from left to right, with the weights of a direction."""
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        weights = [getattr(self, name + direction).to(rows.dtype) for name in names]
        start = rows.new_zeros(1, rows.shape[0], weights[1].shape[1])
        states, _, _ = torch.lstm(
            rows, (start, start), weights, True, 1, 0.0, self.training, bidirectional=False, batch_first=True
        )
        return states


def reversed_rows(rows: Tensor, lengths: Tensor) -> Tensor:
    """Rows `[b, m, d]` with their tokens, `lengths [b]` of each, in reverse order; padding is not moved."""
    column = torch.arange(rows.shape[1], device=rows.device)
    index = torch.where(column < lengths[:, None], lengths[:, None] - 1 - column, column)
    return rows.gather(1, index[..., None].expand(-1, -1, rows.shape[-1]))


class BiLstmLayer(GradientCheckpointingLayer):
    """One layer: an LSTM in each direction, or one from left to right."""

    def __init__(self, config: BiLstmConfig, dropout_p: float):
        super().__init__()
        d = config.hidden_size
        width, both = (d // 2, True) if config.bidirectional else (d, False)
        self.lstm = RightPaddedLSTM(d, width, both)
        self.dropout = nn.Dropout(dropout_p)

    def forward(self, rows: Tensor, lengths: Tensor) -> Tensor:
        """
        Right-padded rows `[b, m, d]` of `lengths [b]` tokens to new states `[b, m, d]`; anything finite at padding.
        """
        return self.dropout(self.lstm(rows, lengths))


class BiLstmPreTrainedModel(EncoderPreTrainedModel):
    """Base class of the BiLSTM's models."""

    config_class = BiLstmConfig
    _no_split_modules = ["TokenEmbeddings", "BiLstmLayer"]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """As in every encoder: Xavier for the LSTM's matrices, the four gates as one, biases of 0."""
        super()._init_weights(module)
        if isinstance(module, RightPaddedLSTM):
            for name, parameter in module.named_parameters():
                if name.startswith("weight"):
                    init.xavier_uniform_(parameter)
                else:
                    init.zeros_(parameter)


class BiLstmModel(BiLstmPreTrainedModel, EncoderModel):
    """
    The bare BiLSTM.

    Returns an `EncoderOutput` with `last_hidden_state [b, n, d]` (zeros at padding), the forward direction in its
    first half, and `pooler_output [b, d]`, their maximum over real tokens, or their mean with `pooling="mean"`. It
    attends to nothing: `attentions` are `None`.

    torch.compile compiles what is around the LSTMs. In ONNX they are that of ONNX; `torch.export` alone makes a graph
    for one length.

    Example:

    ```python
    >>> import torch
    >>> from modeling_star import BiLstmConfig, BiLstmModel

    >>> model = BiLstmModel(BiLstmConfig(vocab_size=100))
    >>> model(torch.tensor([[5, 6, 7]])).last_hidden_state.shape
    torch.Size([1, 3, 300])
    ```
    """

    def build_encoder(self, config: BiLstmConfig) -> None:
        last = config.num_hidden_layers - 1
        self.layers = nn.ModuleList(
            BiLstmLayer(config, config.hidden_dropout_prob if layer < last else 0.0) for layer in range(last + 1)
        )

    def encode(
        self, embedded: Tensor, layout: TokenLayout, record: Recorder, inputs: dict[str, Tensor | None]
    ) -> tuple[Tensor, dict[str, Any]]:
        tokens = record.hidden_state(embedded)
        rows = layout.to_rows(tokens)
        for layer in self.layers:
            rows = layer(rows, layout.lengths)
            tokens = record.hidden_state(layout.from_rows(rows))
            if record.wants_hidden_states:
                rows = layout.to_rows(tokens)
        if not self.add_pooling_layer:
            return tokens, {}
        return tokens, {"pooler_output": (layout.mean if self.config.pooling == "mean" else layout.max)(tokens)}


class BiLstmForSequenceClassification(BiLstmPreTrainedModel, ForSequenceClassification):
    """BiLSTM with an MLP on the pooled vector: texts, text pairs, regression."""

    encoder_class = BiLstmModel


class BiLstmForTokenClassification(BiLstmPreTrainedModel, ForTokenClassification):
    """BiLSTM with a label for every token: entities, parts of speech."""

    encoder_class = BiLstmModel


class BiLstmForQuestionAnswering(BiLstmPreTrainedModel, ForQuestionAnswering):
    """BiLSTM with the start and end of an answer span."""

    encoder_class = BiLstmModel


class BiLstmForMaskedLM(BiLstmPreTrainedModel, ForMaskedLM):
    """BiLSTM with a masked-language-model output tied to the embeddings."""

    encoder_class = BiLstmModel


__all__ = [
    "BiLstmForMaskedLM",
    "BiLstmForQuestionAnswering",
    "BiLstmForSequenceClassification",
    "BiLstmForTokenClassification",
    "BiLstmModel",
    "BiLstmPreTrainedModel",
]
