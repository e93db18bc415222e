"""
The four task heads, shared by all encoders: each adds `class XForTask(XPreTrainedModel, ForTask)` with its encoder.

A CRF and n-grams are files of their own, imported only where the configuration asks for them.

Axes: b batch  n columns  d width  k labels
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN
from transformers.modeling_outputs import (
    MaskedLMOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils import ModelOutput, can_return_tuple, logging

from .configuration_encoder import PROBLEM_TYPES, EncoderConfig
from .modeling_encoder import EncoderOutput, EncoderPreTrainedModel
from .token_layout import is_traced


logger = logging.get_logger(__name__)

# The label of what is unknown, without loss, as in tag_schemes.py, which needs no torch.
IGNORE_INDEX = -100
# Logit of a span end at padding: as good as minus infinity, and finite in float16.
NO_SPAN = -1e4


@dataclass(frozen=True)
class Given:
    """What a head reads with the states: inputs `[b, n]`, labels (a pair of ends for answers), and their number."""

    input_ids: Tensor | None
    attention_mask: Tensor | None
    tag_mask: Tensor | None
    labels: Any
    num_items_in_batch: Tensor | int | None


class EncoderForTask(EncoderPreTrainedModel):
    """
    An encoder with something on top. A subclass names its encoder in `encoder_class`.

    Attributes:
        uses_pooler: the head reads the pooled vector, not the states of the tokens.
        loss_name: by which transformers finds the loss; it would derive it from the class name, which users change.
        output_class: of what `forward` returns.
        skips_encoder: the head needs nothing of it.
    """

    encoder_class: ClassVar[Callable[..., EncoderPreTrainedModel]]
    uses_pooler: ClassVar[bool] = False
    loss_name: ClassVar[str | None] = None
    output_class: type[ModelOutput]
    skips_encoder: bool = False

    def __init__(self, config: EncoderConfig):
        super().__init__(config)
        if self.loss_name is not None:
            self.loss_type = self.loss_name
        self.num_labels = config.num_labels
        self.model = type(self).encoder_class(config, add_pooling_layer=self.uses_pooler)
        self.build_head(config)
        self.post_init()
        if config.freeze_embeddings:
            self.model.embeddings.freeze()

    def build_head(self, config: EncoderConfig) -> None:
        """Create the head's modules."""
        raise TypeError(f"{type(self).__name__} defines no build_head(config).")

    def head_outputs(self, output: EncoderOutput, given: Given) -> dict[str, Any]:
        """
        The head's part of `forward`: loss, logits and what else `output_class` has, by name. It is not called `score`,
        where PEFT looks for the layer of a head.
        """
        raise TypeError(f"{type(self).__name__} defines no head_outputs(output, given).")

    def temperature(self, given: Given) -> float:
        """What logits are divided by; 1 in training and beside a loss, which is that of the logits as learnt."""
        return 1.0 if self.training or given.labels is not None else self.config.calibration_temperature

    def calibrated(self, logits: Tensor, given: Given) -> Tensor:
        """Logits, divided by the temperature."""
        temperature = self.temperature(given)
        return logits if temperature == 1 else logits / temperature

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        word_mask: Tensor | None = None,
        tag_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> ModelOutput:
        """
        Args:
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, word_mask: as in
                `EncoderModel.forward`, which takes the keywords too.
            labels: as the class says; without them there is no loss.
            tag_mask: `[b, n]`, for a tagger with a CRF: nonzero at the tokens that its chain runs over, in place of
                what the vocabulary says (`set_vocabulary`); `inputs_embeds` need it.

        Raises:
            ValueError: labels of another shape, or a `tag_mask` without a CRF.
        """
        if tag_mask is not None and getattr(self, "crf", None) is None:
            raise ValueError("tag_mask is given to a model without a CRF: omit it, or set use_crf=True in a tagger.")
        items = kwargs.pop("num_items_in_batch", None)
        given = Given(input_ids, attention_mask, tag_mask, labels, items)
        if self.uses_pooler:
            kwargs["output_token_states"] = False
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, word_mask)
        output = EncoderOutput() if self.skips_encoder else self.model(*inputs, **kwargs, return_dict=True)
        fields = self.head_outputs(output, given)
        return self.output_class(**fields, hidden_states=output.hidden_states, attentions=output.attentions)


def head_dropout(config: EncoderConfig) -> nn.Dropout:
    """Dropout of the heads: `classifier_dropout`, or else `hidden_dropout_prob`."""
    given = config.classifier_dropout
    return nn.Dropout(config.hidden_dropout_prob if given is None else given)


def in_shape(labels: Tensor, shape: torch.Size | tuple[int, ...]) -> Tensor:
    """Labels in `shape`, of which axes of 1 may be missing or added."""
    if not is_traced() and [size for size in labels.shape if size != 1] != [size for size in shape if size != 1]:
        raise ValueError(f"labels or positions have shape {list(labels.shape)}; {list(shape)} is needed.")
    return labels.reshape(shape)


def class_labels(labels: Tensor, shape: torch.Size | tuple[int, ...]) -> Tensor:
    """Labels as cross entropy takes them: whole numbers, int64 in `shape`, `[b]` or `[b, n]`."""
    if labels.is_floating_point():
        raise ValueError(f"labels are {labels.dtype}; whole numbers are needed: labels.long().")
    return in_shape(labels, shape).long()


def pair_features(pooled: Tensor) -> Tensor:
    """Features of two separately read texts, `[b, 2, d]` to `[b, 4 d]`: (r1, r2, |r1 - r2|, r1 - r2)."""
    first, second = pooled.unbind(1)
    difference = first - second
    return torch.cat([first, second, difference.abs(), difference], dim=-1)


# ------ a label for each text


class SequenceClassifier(nn.Module):
    """
    The MLP classifier of section 3.3: Linear, activation, dropout, Linear; with n-grams, where there are any. Outside
    training TF-IDF votes, where it has terms for these labels: the two models are trained apart.
    """

    def __init__(self, config: EncoderConfig, in_features: int):
        super().__init__()
        hidden = config.classifier_hidden_size or config.hidden_size
        self.dense = nn.Linear(in_features, hidden)
        self.activation = ACT2FN[config.head_act or config.hidden_act]
        self.dropout = head_dropout(config)
        self.out_proj = nn.Linear(hidden, config.num_labels)
        self.ngrams: nn.Module | None = None
        if config.ngram_buckets:
            from .token_runs import NgramLogits

            self.ngrams = NgramLogits(config)
        self.vote: Any = None
        if config.tfidf_labels not in (None, config.num_labels):  # the head is new
            config.tfidf_terms, config.tfidf_labels, config.tfidf_alone = 0, None, False
        if config.tfidf_terms:
            from .token_runs import TfidfVote

            self.vote = TfidfVote(config)

    def forward(
        self, features: Tensor | None, input_ids: Tensor | None = None, attention_mask: Tensor | None = None
    ) -> Tensor:
        """`[b, in_features]` to logits `[b, k]`; n-grams and terms need `input_ids`; without features terms alone."""
        votes = self.vote is not None and not self.training
        if input_ids is None and (self.ngrams is not None or votes):
            name = "tfidf_terms" if self.ngrams is None else "ngram_buckets"
            raise ValueError(f"inputs_embeds are given, and {name} is set, which needs input_ids: give these.")
        if features is None:
            return self.vote.logits(input_ids, attention_mask)
        logits = self.out_proj(self.dropout(self.activation(self.dense(features))))
        if self.ngrams is not None:
            logits = logits + self.ngrams(input_ids, attention_mask)
        return self.vote(logits, input_ids, attention_mask) if votes else logits


def sequence_loss(
    logits: Tensor, labels: Tensor, problem_type: str, num_items_in_batch: Tensor | int | None
) -> Tensor:
    """
    The loss of logits `[b, k]` by the problem type, over the number of items that Trainer counts, or of those here:
    transformers' own regression and multi-label losses ignore `num_items_in_batch` (seen in 5.23).
    """
    labels, logits = labels.to(logits.device), logits.float()
    if problem_type == "single_label_classification":
        labels = class_labels(labels, logits.shape[:1])
        losses = nn.functional.cross_entropy(logits, labels, reduction="none")
        count: Tensor | int = items_of(labels, num_items_in_batch)
    elif problem_type == "regression":
        labels = in_shape(labels, logits.shape).float()
        losses = nn.functional.mse_loss(logits, labels, reduction="none")
        count = losses.numel() if num_items_in_batch is None else items_of(labels, num_items_in_batch)
    elif problem_type == "multi_label_classification":
        labels = in_shape(labels, logits.shape).float()
        losses = nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")
        losses = mask_ignored(losses, labels)
        count = items_of(labels, num_items_in_batch)
    else:
        raise ValueError(f"config.problem_type={problem_type!r} is given; {', '.join(PROBLEM_TYPES)} are allowed.")
    return losses.sum() / (count.to(logits.device) if torch.is_tensor(count) else count)


def mask_ignored(losses: Tensor, labels: Tensor) -> Tensor:
    """The losses `[b, k]` of several labels a text, 0 where one is not known (-100)."""
    return losses.masked_fill(labels == IGNORE_INDEX, 0)


def items_of(labels: Tensor, num_items_in_batch: Tensor | int | None) -> Tensor:
    """Number of labels of a mean: those that Trainer counted, else those here; at least 1, for a loss of 0."""
    count = (labels != IGNORE_INDEX).sum() if num_items_in_batch is None else torch.as_tensor(num_items_in_batch)
    return count.clamp(min=1)


class ForSequenceClassification(EncoderForTask):
    """
    Text or text pair classification and regression, from the pooled vector: logits `[b, k]`.

    Labels are `[b]` classes or numbers, or `[b, k]` for several labels or numbers. `config.problem_type` is chosen
    from them where it is not set: one label is regression, whole numbers are classes, floats are several labels at
    once.
    """

    uses_pooler = True
    output_class = SequenceClassifierOutput

    def build_head(self, config: EncoderConfig) -> None:
        self.classifier = SequenceClassifier(config, config.hidden_size * (4 if config.pair_mode == "siamese" else 1))

    @property
    def skips_encoder(self) -> bool:  # type: ignore[override]
        """Whether TF-IDF classifies alone."""
        return self.config.tfidf_alone and self.classifier.vote is not None and not self.training

    def head_outputs(self, output: EncoderOutput, given: Given) -> dict[str, Any]:
        if self.training and self.classifier.vote is not None and not is_traced():
            logger.warning_once(
                "TF-IDF votes in this model and is not trained with it: afterwards it predicts with the terms of the "
                "earlier training. Call model.set_tfidf(None) before, which removes them."
            )
        pooled = output.pooler_output
        features = pair_features(pooled) if self.config.pair_mode == "siamese" and pooled is not None else pooled
        logits = self.calibrated(self.classifier(features, given.input_ids, given.attention_mask), given)
        loss = None
        if given.labels is not None:
            problem_type = self.config.problem_type or self._problem_type(given.labels)
            loss = sequence_loss(logits, given.labels, problem_type, given.num_items_in_batch)
            # Only once there is a loss: it must not follow from labels that were given by mistake.
            if self.config.problem_type is None:
                self.config.problem_type = problem_type
        return {"loss": loss, "logits": logits}

    def set_tfidf(self, terms: Any | None) -> None:
        """
        Let TF-IDF with logistic regression vote with the encoder from now on, outside training; `None`: no longer.
        Saved with the model.

        Args:
            terms: `TfidfTerms`, fitted on token ids of the model's tokenizer.

        Raises:
            ValueError: they have another number of labels, or the model predicts numbers.
        """
        from .token_runs import TfidfVote

        self.config.tfidf_terms = 0 if terms is None else len(terms.keys)
        self.config.tfidf_max_length = 2 if terms is None else terms.max_length
        self.config.tfidf_sublinear = terms is None or terms.sublinear
        self.config.tfidf_alone = terms is not None and terms.share == 1
        self.config.tfidf_labels = None if terms is None else self.num_labels
        self.config.validate_choices()
        vote = None if terms is None else TfidfVote.from_terms(terms, self.config)
        self.classifier.vote = None if vote is None else vote.to(self.device, self.dtype)

    def _problem_type(self, labels: Tensor) -> str:
        if self.num_labels == 1:
            return "regression"
        return "multi_label_classification" if labels.is_floating_point() else "single_label_classification"


# ------ a label for each token


class ForTokenClassification(EncoderForTask):
    """
    A label for every token, from the token states and, with `config.use_crf`, the labels around: logits `[b, n, k]`.

    Labels are `[b, n]`, -100 where none counts. With a CRF the output is a `CrfTokenClassifierOutput`, whose logits
    carry no gradient where labels are given: the loss does.
    """

    loss_name = "ForTokenClassification"
    output_class = TokenClassifierOutput

    def build_head(self, config: EncoderConfig) -> None:
        self.dropout = head_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.crf: Any = None
        if config.use_crf:
            from .crf import CrfTokenClassifierOutput, LinearChainCrf

            labels = [config.id2label[index] for index in range(config.num_labels)]
            self.crf = LinearChainCrf(labels, config.crf_constraints, config.vocab_size)
            self.output_class = CrfTokenClassifierOutput

    def head_outputs(self, output: EncoderOutput, given: Given) -> dict[str, Any]:
        logits, labels = self.classifier(self.dropout(output.last_hidden_state)), given.labels
        if labels is not None:
            labels = class_labels(labels, logits.shape[:2])
        if self.crf is not None:
            ids, mask, tags = given.input_ids, given.attention_mask, given.tag_mask
            items = given.num_items_in_batch
            return self.crf(logits, labels, mask, ids, tags, items, self.temperature(given))
        loss = None
        if labels is not None:
            count = items_of(labels, given.num_items_in_batch)
            loss = self.loss_function(logits, labels, self.config, num_items_in_batch=count)
        return {"loss": loss, "logits": self.calibrated(logits, given)}

    @torch.no_grad()
    def decode(self, *args: Any, **kwargs: Any) -> Tensor:
        """
        The label of each token, `[b, n]`, -100 at padding: with a CRF those of the best path. Without dropout, also in
        training mode.

        Args:
            args, kwargs: the inputs of `forward`, without labels.
        """
        with eval_mode(self):
            output = self(*args, **{**kwargs, "return_dict": True})
        if self.crf is not None:
            return output.paths
        mask = kwargs.get("attention_mask", args[1] if len(args) > 1 else None)
        best = output.logits.argmax(-1)
        return best if mask is None else best.masked_fill(mask == 0, IGNORE_INDEX)


_lock = threading.Lock()
# Number of contexts that a model is in, and the modes of its modules before the first.
_evaluated: WeakKeyDictionary[nn.Module, tuple[int, dict[nn.Module, bool]]] = WeakKeyDictionary()


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """
    Put a model in evaluation mode for a while. Several threads may do so: the modes of its modules are restored when
    the last one leaves.
    """
    with _lock:
        users, modes = _evaluated.get(model) or (0, {module: module.training for module in model.modules()})
        _evaluated[model] = users + 1, modes
        model.eval()
    try:
        yield
    finally:
        with _lock:
            users, modes = _evaluated.pop(model)
            if users > 1:
                _evaluated[model] = users - 1, modes
            else:
                # Parents first: train() applies to all modules inside.
                for module in model.modules():
                    if module.training != modes.get(module, module.training):
                        module.train(modes[module])


# ------ an answer span


def span_loss(logits: Tensor, positions: Tensor, num_items_in_batch: Tensor | int | None) -> Tensor:
    """
    Cross entropy of one end of the answers, logits `[b, n]` and columns `[b]`, over those that lie in the input.

    transformers' own loss is NaN where none does, and takes negative columns for column 0 (seen in 5.23).
    """
    positions = class_labels(positions.to(logits.device), logits.shape[:1])
    outside = (positions < 0) | (positions >= logits.shape[1])
    positions = positions.masked_fill(outside, IGNORE_INDEX)
    total = nn.functional.cross_entropy(logits.float(), positions, ignore_index=IGNORE_INDEX, reduction="sum")
    return total / items_of(positions, num_items_in_batch).to(logits.device)


class ForQuestionAnswering(EncoderForTask):
    """Start and end of an answer span, from the token states: logits `[b, n]` each."""

    output_class = QuestionAnsweringModelOutput

    def build_head(self, config: EncoderConfig) -> None:
        if config.pair_mode == "siamese":
            logger.warning_once('With pair_mode="siamese" no answer depends on its question: use pair_mode="cross".')
        self.dropout = head_dropout(config)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)

    # Its own inputs: Trainer takes their names from here.
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        word_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> QuestionAnsweringModelOutput:
        """
        Args:
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, word_mask: as in
                `EncoderModel.forward`, which takes the keywords too.
            start_positions, end_positions: `[b]`, columns of the answer's first and last token; columns outside the
                input are ignored.
        """
        ends = None if start_positions is None or end_positions is None else (start_positions, end_positions)
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, ends, word_mask)
        return super().forward(*inputs, **kwargs)

    def head_outputs(self, output: EncoderOutput, given: Given) -> dict[str, Any]:
        logits = self.qa_outputs(self.dropout(output.last_hidden_state))
        if given.attention_mask is not None:
            # No answer starts or ends at padding, which would also take part in the loss's softmax.
            logits = logits.masked_fill((given.attention_mask == 0)[..., None], NO_SPAN)
        ends, loss = logits.unbind(-1), None
        if given.labels is not None:
            pairs = zip(ends, given.labels, strict=True)
            loss = sum(span_loss(*pair, given.num_items_in_batch) for pair in pairs) / len(ends)
        return {"loss": loss, "start_logits": ends[0], "end_logits": ends[1]}


# ------ the token behind each mask


class MaskedLMHead(nn.Module):
    """
    Token states to vocabulary logits. The decoder is as wide as the table, to which it can be tied: that of an encoder
    inside may be another than `embedding_size`, the width of its states.
    """

    def __init__(self, config: EncoderConfig, width: int):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, width)
        self.activation = ACT2FN[config.head_act or config.hidden_act]
        self.layer_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.decoder = nn.Linear(width, config.vocab_size)

    def forward(self, tokens: Tensor) -> Tensor:
        """`[..., d]` to `[..., vocab_size]`."""
        return self.decoder(self.layer_norm(self.activation(self.dense(tokens))))


class ForMaskedLM(EncoderForTask):
    """
    The token behind each mask, from the state there: logits `[b, n, vocab_size]`; the output is tied to the embedding
    table. Labels are `[b, n]`, the ids of the tokens behind the masks, -100 elsewhere.
    """

    loss_name = "ForMaskedLM"
    output_class = MaskedLMOutput

    def build_head(self, config: EncoderConfig) -> None:
        table = self.get_input_embeddings().weight
        self.lm_head = MaskedLMHead(config, table.shape[1])
        name = next(name for name, parameter in self.named_parameters() if parameter is table)
        self._tied_weights_keys = {"lm_head.decoder.weight": name}

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head.decoder

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        self.lm_head.decoder = new_embeddings

    def head_outputs(self, output: EncoderOutput, given: Given) -> dict[str, Any]:
        states, labels = output.last_hidden_state, given.labels
        if labels is not None:
            labels = class_labels(labels, states.shape[:2])
        logits, loss = self.lm_head(states), None
        if labels is not None:
            count = items_of(labels, given.num_items_in_batch)
            loss = self.loss_function(logits, labels, vocab_size=self.config.vocab_size, num_items_in_batch=count)
        return {"loss": loss, "logits": logits}
