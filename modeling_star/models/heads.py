"""
The four task heads, shared by all encoders: each adds `class XForTask(XPreTrainedModel, ForTask)` with its encoder.

Axes: b batch  n columns  d width  k labels
"""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.modeling_outputs import (
    MaskedLMOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils import can_return_tuple, logging

from .configuration_encoder import PROBLEM_TYPES, EncoderConfig
from .crf import FORBIDDEN, IGNORE_INDEX, CrfTokenClassifierOutput, LinearChainCrf
from .modeling_encoder import EncoderPreTrainedModel
from .tfidf_vote import TfidfTerms, TfidfVote, real_tokens_first
from .token_layout import is_traced
from .utils import eval_mode


logger = logging.get_logger(__name__)

# Logit of a span end at padding: as good as minus infinity, and finite in float16.
NO_SPAN = -1e4


def head_dropout(config: EncoderConfig) -> nn.Dropout:
    """Dropout of the heads: `classifier_dropout`, or else `hidden_dropout_prob`."""
    given = config.classifier_dropout
    return nn.Dropout(config.hidden_dropout_prob if given is None else given)


def in_shape(labels: Tensor, shape: torch.Size | tuple[int, ...]) -> Tensor:
    """
    Labels in `shape`, of which axes of 1 may be missing or added.

    Raises:
        ValueError: they have another shape.
    """
    if not is_traced() and [size for size in labels.shape if size != 1] != [size for size in shape if size != 1]:
        raise ValueError(f"labels or positions have shape {list(labels.shape)}; {list(shape)} is needed.")
    return labels.reshape(shape)


def class_labels(labels: Tensor, shape: torch.Size | tuple[int, ...]) -> Tensor:
    """
    Labels as cross entropy takes them, int64 in `shape`, `[b]` or `[b, n]`.

    Raises:
        ValueError: they have another shape, or are no whole numbers.
    """
    if labels.is_floating_point():
        raise ValueError(f"labels are {labels.dtype}; whole numbers are needed: labels.long().")
    return in_shape(labels, shape).long()


def pair_features(pooled: Tensor) -> Tensor:
    """Features of two separately read texts, `[b, 2, d]` to `[b, 4 d]`: (r1, r2, |r1 - r2|, r1 - r2)."""
    first, second = pooled.unbind(1)
    difference = first - second
    return torch.cat([first, second, difference.abs(), difference], dim=-1)


class NgramLogits(nn.Module):
    """
    A linear classifier over the n-grams of tokens that a text holds, up to `config.max_ngram_length` long.

    Its logits add to those of an encoder (a wide part beside a deep one, https://arxiv.org/abs/1606.07792), which from
    few texts learns less about the sentiment of a pair of words than logistic regression does. N-grams share the rows
    of the weights by their hash (https://arxiv.org/abs/0902.2206).

    Args:
        config: the number of rows, `ngram_buckets`, and of labels.
    """

    # A prime, so that products of two hashes fit into int64; and two numbers below it without pattern.
    PRIME, OF_TOKEN, OF_RUN = 2**31 - 1, 1_640_531_527, 1_013_904_223
    # AdamW moves each weight by about the learning rate: an n-gram has one for a label, a feature hundreds.
    SCALE = 10.0

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.longest = config.max_ngram_length
        self.weight = nn.Parameter(torch.zeros(config.ngram_buckets, config.num_labels))
        self.dropout = nn.Dropout(config.ngram_dropout)

    def reset(self) -> None:
        """Unseen n-grams say nothing."""
        init.zeros_(self.weight)

    def of_each(self, input_ids: Tensor, attention_mask: Tensor | None) -> list[Tensor]:
        """
        What each n-gram adds to the logits.

        Args:
            input_ids: `[b, n]`.
            attention_mask: `[b, n]`; padding may be anywhere.

        Returns:
            For each length l from 1 `[b, n - l + 1, k]`, at the first token of an n-gram among the real tokens of its
            row; zeros after the last one.
        """
        ids, mask = real_tokens_first(input_ids, attention_mask)  # hashes need the 64 bits that these ids have
        scale = self.SCALE * mask.sum(1, keepdim=True).clamp(min=1).to(self.weight.dtype).rsqrt()
        of_token = run = ids * self.OF_TOKEN % self.PRIME
        found = []
        for length in range(1, self.longest + 1):
            if length > 1:
                run = (run[:, :-1] * self.OF_RUN + of_token[:, length - 1 :]) % self.PRIME
            kept = self.dropout(mask[:, length - 1 :] * scale)
            found.append(nn.functional.embedding(run % len(self.weight), self.weight) * kept[..., None])
        return found

    def shares(self, input_ids: Tensor) -> Tensor:
        """What each token of texts `[b, n]` adds to the logits, `[b, n, k]`: even parts of its n-grams."""
        found = self.of_each(input_ids, None)
        shares = torch.zeros_like(found[0])
        for length, logits in enumerate(found, start=1):
            for place in range(length):
                shares[:, place : place + logits.shape[1]] += logits / length
        return shares

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """The logits `[b, k]` of texts `[b, n]`, the sum of `of_each`."""
        return torch.stack([logits.sum(1) for logits in self.of_each(input_ids, attention_mask)]).sum(0)


class SequenceClassifier(nn.Module):
    """
    The MLP classifier of section 3.3: Linear, activation, dropout, Linear; beside it n-grams, where there are any.
    Outside training TF-IDF votes, where it has terms: the two models are trained apart.

    Args:
        config: any encoder's configuration.
        in_features: width of the features, d or 4 d.
    """

    def __init__(self, config: EncoderConfig, in_features: int):
        super().__init__()
        hidden = config.classifier_hidden_size or config.hidden_size
        self.dense = nn.Linear(in_features, hidden)
        self.activation = ACT2FN[config.hidden_act]
        self.dropout = head_dropout(config)
        self.out_proj = nn.Linear(hidden, config.num_labels)
        self.ngrams = NgramLogits(config) if config.ngram_buckets else None
        self.vote = TfidfVote(config) if config.tfidf_terms else None

    def forward(
        self, features: Tensor, input_ids: Tensor | None = None, attention_mask: Tensor | None = None
    ) -> Tensor:
        """
        `[b, in_features]` to logits `[b, k]`.

        Raises:
            ValueError: `input_ids` are missing, and n-grams or terms are read.
        """
        logits = self.out_proj(self.dropout(self.activation(self.dense(features))))
        votes = self.vote is not None and not self.training
        if input_ids is None and (self.ngrams is not None or votes):
            name = "tfidf_terms" if self.ngrams is None else "ngram_buckets"
            raise ValueError(f"inputs_embeds are given, and {name} is set, which needs input_ids: give these.")
        if self.ngrams is not None:
            logits = logits + self.ngrams(input_ids, attention_mask)
        return self.vote(logits, input_ids, attention_mask) if votes else logits


def sequence_loss(
    logits: Tensor, labels: Tensor, problem_type: str, num_items_in_batch: Tensor | int | None
) -> Tensor:
    """
    Cross entropy, squared error or binary cross entropy, averaged over what Trainer counts as items.

    transformers' own regression and multi-label losses ignore `num_items_in_batch`, which multiplies gradients by the
    number of accumulation steps (seen in 5.23).

    Args:
        logits: `[b, k]`.
        labels: `[b]` for one class or one number, `[b, k]` for several; -100 is an unknown class or label, without
            loss.
        problem_type: as in the configuration.
        num_items_in_batch: labels in the whole accumulated batch; `None` averages over this one.

    Raises:
        ValueError: the problem type is unknown, or classes are no whole numbers.
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


class EncoderForTask(EncoderPreTrainedModel):
    """
    An encoder with something on top. A subclass names its encoder in `encoder_class`.
    """

    encoder_class: ClassVar[Callable[..., EncoderPreTrainedModel]]
    uses_pooler: ClassVar[bool] = False
    loss_name: ClassVar[str | None] = None

    def __init__(self, config: EncoderConfig):
        super().__init__(config)
        if self.loss_name is not None:  # transformers derives it from the class name, which a subclass changes
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


class ForSequenceClassification(EncoderForTask):
    """
    Text or text pair classification and regression, from the pooled vector.

    `config.problem_type` is chosen from the labels where it is not set: one label is regression, whole numbers are
    classes, floats are several labels at once.
    """

    uses_pooler = True

    def build_head(self, config: EncoderConfig) -> None:
        self.classifier = SequenceClassifier(config, config.hidden_size * (4 if config.pair_mode == "siamese" else 1))

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """As in every encoder; n-grams start without a preference, a vote without terms."""
        super()._init_weights(module)
        if isinstance(module, NgramLogits | TfidfVote):
            module.reset()

    def set_tfidf(self, terms: TfidfTerms | None) -> None:
        """
        Let TF-IDF with logistic regression vote with the encoder from now on, outside training; `None`: no longer.
        Saved with the model.

        Args:
            terms: fitted on token ids of the model's tokenizer.

        Raises:
            ValueError: they have another number of labels, or the model predicts numbers.
        """
        self.config.tfidf_terms = 0 if terms is None else len(terms.keys)
        self.config.tfidf_max_length = 2 if terms is None else terms.max_length
        self.config.validate_tfidf()
        self.classifier.vote = None if terms is None else TfidfVote.of(terms, self.config).to(self.device, self.dtype)

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
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """
        Args:
            labels: `[b]` classes or numbers, or `[b, k]` for several labels or numbers.

        The other inputs are described in `EncoderModel.forward`. Returns logits `[b, k]`.
        """
        num_items_in_batch = kwargs.pop("num_items_in_batch", None)
        kwargs["output_token_states"] = False
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, word_mask)
        output = self.model(*inputs, **kwargs, return_dict=True)
        pooled = output.pooler_output
        features = pair_features(pooled) if self.config.pair_mode == "siamese" else pooled
        logits = self.classifier(features, input_ids, attention_mask)
        loss = None
        if labels is not None:
            problem_type = self.config.problem_type or self._problem_type(labels)
            loss = sequence_loss(logits, labels, problem_type, num_items_in_batch)
            # Only once there is a loss: it must not follow from labels that were given by mistake.
            if self.config.problem_type is None:
                self.config.problem_type = problem_type
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=output.hidden_states, attentions=output.attentions
        )

    def _problem_type(self, labels: Tensor) -> str:
        if self.num_labels == 1:
            return "regression"
        return "multi_label_classification" if labels.is_floating_point() else "single_label_classification"


class ForTokenClassification(EncoderForTask):
    """
    A label for every token, from the token states and, with `config.use_crf`, the labels around.
    """

    loss_name = "ForTokenClassification"

    def build_head(self, config: EncoderConfig) -> None:
        self.dropout = head_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.crf: LinearChainCrf | None = None
        if config.use_crf:
            labels = [config.id2label[index] for index in range(config.num_labels)]
            self.crf = LinearChainCrf(labels, config.crf_constraints, config.vocab_size)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """As in every encoder; a CRF starts without a preference."""
        super()._init_weights(module)
        if isinstance(module, LinearChainCrf):
            module.reset()

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
    ) -> TokenClassifierOutput:
        """
        Args:
            labels: `[b, n]`, -100 where no label counts.
            tag_mask: `[b, n]`, for a CRF: nonzero at the tokens that its chain runs over, in place of what the
                vocabulary says (`set_vocabulary`).

        The other inputs are described in `EncoderModel.forward`. Returns logits `[b, n, k]`; with a CRF a
        `CrfTokenClassifierOutput`, whose logits carry no gradient where labels are given: the loss does.
        """
        num_items_in_batch = kwargs.pop("num_items_in_batch", None)
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, word_mask)
        output = self.model(*inputs, **kwargs, return_dict=True)
        logits = self.classifier(self.dropout(output.last_hidden_state))
        if labels is not None:
            labels = class_labels(labels, logits.shape[:2])
        recorded = {"hidden_states": output.hidden_states, "attentions": output.attentions}
        if self.crf is not None:
            real = torch.ones_like(logits[..., 0]).bool() if attention_mask is None else attention_mask != 0
            chain = self.crf.chain(real, input_ids, tag_mask)
            if labels is not None and tag_mask is None and not is_traced() and not self.crf.has_vocabulary:
                logger.warning_once(
                    "The CRF does not know which tokens carry a tag, and runs over special tokens and pieces of words "
                    "too, which can hurt quality: call model.set_vocabulary(tokenizer) before training."
                )
            return self._with_crf(logits, labels, real, chain, num_items_in_batch, recorded)
        if tag_mask is not None:
            raise ValueError("tag_mask is given to a tagger without a CRF: omit it, or set use_crf=True.")
        loss = None
        if labels is not None:
            count = items_of(labels, num_items_in_batch)
            loss = self.loss_function(logits, labels, self.config, num_items_in_batch=count)
        return TokenClassifierOutput(loss=loss, logits=logits, **recorded)

    def _with_crf(
        self,
        emissions: Tensor,
        labels: Tensor | None,
        real: Tensor,
        chain: Tensor,
        num_items_in_batch: Tensor | int | None,
        recorded: dict[str, Any],
    ) -> CrfTokenClassifierOutput:
        """The output of a tagger with a CRF, from the emissions `[b, n, k]`."""
        loss, losses, paths = None, None, None
        if labels is not None:
            # A token with a label is tagged, whatever the vocabulary says.
            labelled = real & (labels != IGNORE_INDEX)
            if not is_traced():
                self._check_labels(labels[labelled])
            losses = -self.crf.log_likelihood(emissions, labels, chain | labelled)
            count = labelled.sum() if num_items_in_batch is None else torch.as_tensor(num_items_in_batch)
            loss = losses.sum() / count.to(emissions.device).clamp(min=1)
            self._warn_of_forbidden(labels, chain | labelled)
            self._warn_of_frozen_crf(emissions)
        with torch.set_grad_enabled(torch.is_grad_enabled() and labels is None):
            logits = self.crf.log_marginals(emissions, chain)
        if labels is None or not self.training:
            paths = self.crf.best_paths(emissions, chain).masked_fill(~real, IGNORE_INDEX)
        return CrfTokenClassifierOutput(loss=loss, logits=logits, paths=paths, sequence_losses=losses, **recorded)

    def _check_labels(self, labels: Tensor) -> None:
        """Raise where a known label is none of the model's: to the CRF it would rule out every tag."""
        wrong = labels[(labels < 0) | (labels >= self.config.num_labels)]
        if len(wrong):
            raise IndexError(f"A label is {int(wrong[0])}; 0 to {self.config.num_labels - 1}, or -100, are allowed.")

    def _warn_of_frozen_crf(self, emissions: Tensor) -> None:
        is_frozen = not any(parameter.requires_grad for parameter in self.crf.parameters())
        if self.training and emissions.requires_grad and is_frozen and not is_traced():
            logger.warning_once(
                "The tagger is trained without its CRF, whose parameters are frozen. With adapters: "
                'LoraConfig(..., modules_to_save=["classifier", "crf"]).'
            )

    def _warn_of_forbidden(self, labels: Tensor, chain: Tensor) -> None:
        if self.crf.scheme is not None and not is_traced() and bool(self.crf.breaks_constraints(labels, chain).any()):
            logger.warning_once(
                f"Some labels follow one another as crf_constraints={self.crf.scheme!r} forbids, which costs "
                f"{-FORBIDDEN:.0f} each time: fix the labels, name their scheme, or set crf_constraints=None."
            )

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


def span_loss(logits: Tensor, positions: Tensor, num_items_in_batch: Tensor | int | None) -> Tensor:
    """
    Cross entropy of one end of the answers, over those that lie in the input; 0 where none does.

    transformers' own loss is NaN there, and takes negative columns for column 0 (seen in 5.23).

    Args:
        logits: `[b, n]`.
        positions: `[b]`.
        num_items_in_batch: answers in the whole accumulated batch; `None` averages over this one.
    """
    positions = class_labels(positions.to(logits.device), logits.shape[:1])
    outside = (positions < 0) | (positions >= logits.shape[1])
    positions = positions.masked_fill(outside, IGNORE_INDEX)
    total = nn.functional.cross_entropy(logits.float(), positions, ignore_index=IGNORE_INDEX, reduction="sum")
    return total / items_of(positions, num_items_in_batch).to(logits.device)


class ForQuestionAnswering(EncoderForTask):
    """Start and end of an answer span, from the token states."""

    def build_head(self, config: EncoderConfig) -> None:
        if config.pair_mode == "siamese":
            logger.warning_once('With pair_mode="siamese" no answer depends on its question: use pair_mode="cross".')
        self.dropout = head_dropout(config)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)

    @can_return_tuple
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
            start_positions, end_positions: `[b]`, columns of the answer's first and last token; columns outside the
                input are ignored.

        The other inputs are described in `EncoderModel.forward`. Returns start and end logits, `[b, n]` each.
        """
        num_items_in_batch = kwargs.pop("num_items_in_batch", None)
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, word_mask)
        output = self.model(*inputs, **kwargs, return_dict=True)
        logits = self.qa_outputs(self.dropout(output.last_hidden_state))
        if attention_mask is not None:
            # No answer starts or ends at padding, which would also take part in the loss's softmax.
            logits = logits.masked_fill((attention_mask == 0)[..., None], NO_SPAN)
        start_logits, end_logits = logits.unbind(-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            ends = ((start_logits, start_positions), (end_logits, end_positions))
            loss = sum(span_loss(*end, num_items_in_batch) for end in ends) / len(ends)
        return QuestionAnsweringModelOutput(
            loss=loss,
            start_logits=start_logits,
            end_logits=end_logits,
            hidden_states=output.hidden_states,
            attentions=output.attentions,
        )


class MaskedLMHead(nn.Module):
    """
    Token states to vocabulary logits; the decoder works at embedding width, so that it can be tied to the table.

    Args:
        config: any encoder's configuration.
        width: of the table; that of an encoder inside may be another than `embedding_size`, the width of its states.
    """

    def __init__(self, config: EncoderConfig, width: int):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, width)
        self.activation = ACT2FN[config.hidden_act]
        self.layer_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.decoder = nn.Linear(width, config.vocab_size)

    def forward(self, tokens: Tensor) -> Tensor:
        """`[..., d]` to `[..., vocab_size]`."""
        return self.decoder(self.layer_norm(self.activation(self.dense(tokens))))


class ForMaskedLM(EncoderForTask):
    """The token behind each mask, from the state there; the output is tied to the embedding table."""

    loss_name = "ForMaskedLM"

    def build_head(self, config: EncoderConfig) -> None:
        table = self.get_input_embeddings().weight
        self.lm_head = MaskedLMHead(config, table.shape[1])
        name = next(name for name, parameter in self.named_parameters() if parameter is table)
        self._tied_weights_keys = {"lm_head.decoder.weight": name}

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head.decoder

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        self.lm_head.decoder = new_embeddings

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
        **kwargs: Any,
    ) -> MaskedLMOutput:
        """
        Args:
            labels: `[b, n]` ids of the tokens behind the masks, -100 elsewhere.

        The other inputs are described in `EncoderModel.forward`. Returns logits `[b, n, vocab_size]`.
        """
        num_items_in_batch = kwargs.pop("num_items_in_batch", None)
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, word_mask)
        output = self.model(*inputs, **kwargs, return_dict=True)
        if labels is not None:
            labels = class_labels(labels, output.last_hidden_state.shape[:2])
        logits = self.lm_head(output.last_hidden_state)
        loss = None
        if labels is not None:
            count = items_of(labels, num_items_in_batch)
            loss = self.loss_function(logits, labels, vocab_size=self.config.vocab_size, num_items_in_batch=count)
        return MaskedLMOutput(
            loss=loss, logits=logits, hidden_states=output.hidden_states, attentions=output.attentions
        )


__all__ = ["ForMaskedLM", "ForQuestionAnswering", "ForSequenceClassification", "ForTokenClassification"]
