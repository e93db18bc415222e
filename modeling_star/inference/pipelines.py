"""The token-classification pipeline with the best path of a CRF and entities of every tagging scheme."""

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor
from transformers import TokenClassificationPipeline

from ..data.entities import EntityGroups
from ..data.in_memory import inputs_of
from ..data.windows import cut_windows, max_length_or_none
from ..errors import UserError
from .span_probabilities import SpanScorer
from .torch_runtime import crf_tables


_NEVER_CUT = 10**9  # tokens; the stock pipeline always truncates


class BestPathPipeline(TokenClassificationPipeline):
    """
    transformers' pipeline, but taggers with a CRF predict its best path (Viterbi), and `aggregation_strategy` groups
    the entities of any scheme (IOB1, IOB2, IOBES, BILOU, BMES, BMEWO), or the words of a text without blanks (B, M, E,
    S without types), whose group is "word".

    The stock pipeline takes the most probable label of each token, and these labels may not fit together. It knows B-
    and I- alone: it splits entities in BMES into words, and joins neighbouring words of one part of speech. The score
    of a token is the probability of its label given the text in both. That of a group is the mean of its words in the
    stock pipeline; here, as in `Predictor`, the probability of the span with a CRF, and else the product of its words.

    A text longer than the tokenizer's limit is read in windows that share an eighth of their tokens, or as many as
    `stride=64` says. A token's label comes from the window with most context around it, as in the evaluation of
    run_ner.py. The stock pipeline reads only the beginning without `stride`, and takes the longest entity with it.

    Example:

    ```python
    pipeline("token-classification", "outputs/quickstart/model", pipeline_class=BestPathPipeline)
    ```
    """

    def preprocess(
        self, sentence: str | list[str], offset_mapping: Any = None, **preprocess_params: Any
    ) -> Iterator[dict[str, Any]]:
        inputs_of([sentence], "token-classification", False, self.model.name_or_path)
        limit = max_length_or_none(self.tokenizer.model_max_length)
        if limit is None or not self.tokenizer.is_fast:
            yield from super().preprocess(sentence, offset_mapping, **preprocess_params)
            return
        stride = preprocess_params.pop("tokenizer_params", {}).get("stride", limit // 8)
        preprocess_params["tokenizer_params"] = {"max_length": _NEVER_CUT}
        (whole,) = super().preprocess(sentence, offset_mapping, **preprocess_params)
        is_content = (whole["special_tokens_mask"][0] == 0).numpy()
        from_end = self.tokenizer.truncation_side == "left"
        windows = cut_windows(is_content, limit, stride, from_end=from_end)
        names = [name for name in self.tokenizer.model_input_names if name in whole]
        for number, window in enumerate(windows, 1):
            inputs = {name: whole[name][:, window.tokens] for name in names}
            text = whole if number == 1 else None
            yield {**inputs, "window": window, "text": text, "is_last": number == len(windows)}

    def _forward(self, model_inputs: dict[str, Any]) -> dict[str, Any]:
        names = [name for name in self.tokenizer.model_input_names if name in model_inputs]
        output = self.model(**{name: model_inputs[name] for name in names})
        paths = getattr(output, "paths", None)
        logits = output[0] if isinstance(output, tuple) else output.logits
        if logits.isnan().any():
            raise UserError(f"The scores of {self.model.name_or_path} are NaN: train it again, or name another model.")
        # The stock pipeline counts the windows of a batch by its first value.
        scored = {"logits": logits if paths is None else logits_along(paths, logits)}
        if self._scorer is not None:
            scored |= {"log_marginals": logits, "messages": output.messages}
        return {**scored, **dict.fromkeys(("offset_mapping", "word_ids", "word_to_chars_map")), **model_inputs}

    def postprocess(self, all_outputs: list[dict[str, Any]], *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        if "window" in all_outputs[0]:
            all_outputs = [self._joined(all_outputs)]
        # A copy: the stock pipeline moves the offsets of words to their text where they are (transformers 5.23).
        copies = [{**output, "offset_mapping": _copied(output["offset_mapping"])} for output in all_outputs]
        entities = super().postprocess(copies, *args, **kwargs)
        if self._scorer is not None and len(all_outputs) == 1:
            self._score_spans([entity for entity in entities if "entity_group" in entity], all_outputs[0])
        return entities

    @cached_property
    def _scorer(self) -> SpanScorer | None:
        """Probabilities of spans by the CRF; `None` without one."""
        tables = crf_tables(self.model)
        return (
            None if tables is None else SpanScorer(EntityGroups(list(self.model.config.id2label.values())), **tables)
        )

    def _score_spans(self, groups: list[dict[str, Any]], output: dict[str, Any]) -> None:
        """Set the scores of the groups of a text to the probabilities of their spans."""
        offsets = _offsets(output)
        if offsets is None or not groups:
            return
        has_tag = self._scorer.chain(output["input_ids"][0].cpu().numpy())
        arrays = {name: output[name][0].float().cpu().numpy() for name in ("logits", "log_marginals", "messages")}
        tokens, labels = offsets[has_tag], arrays["logits"][has_tag].argmax(-1)
        firsts = np.array([np.searchsorted(tokens[:, 0], group["start"]) for group in groups])
        lasts = np.array([np.searchsorted(tokens[:, 0], group["end"]) - 1 for group in groups])
        # A word that the vocabulary calls a continuation has no tag in the chain.
        starts = np.array([group["start"] for group in groups])
        known = np.flatnonzero((firsts <= lasts) & (tokens[firsts.clip(max=len(tokens) - 1), 0] == starts))
        firsts, lasts, texts = firsts[known], lasts[known], np.zeros(len(tokens), dtype=np.int64)
        log_marginals, messages = arrays["log_marginals"][has_tag], arrays["messages"][has_tag]
        scores = self._scorer(log_marginals, messages, texts, firsts, lasts, labels[firsts])
        for index, score in zip(known, scores.tolist(), strict=True):
            groups[index]["score"] = score

    def _joined(self, outputs: list[dict[str, Any]]) -> dict[str, Any]:
        """The whole text, with what the model gave for each token in the window in which it counts."""
        text, joined = outputs[0]["text"], {}
        for name in ("logits", "log_marginals", "messages"):
            if name not in outputs[0]:
                continue
            joined[name] = outputs[0][name].new_zeros(1, text["input_ids"].shape[1], outputs[0][name].shape[2])
            for output in outputs:
                window, own = output["window"], output[name][0]
                if self.tokenizer.padding_side == "left":  # in a batch with longer windows
                    own = own[-len(window.tokens) :]
                joined[name][0, window.tokens[window.read]] = own[window.read]
        return {**text, **joined}

    def group_entities(self, entities: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """
        Group the words or tokens of each entity. Where no label is O, as in parts of speech, every word is a group.

        Args:
            entities: words or tokens in the text's order, with their label as `entity`.
        """
        names = list(self.model.config.id2label.values())
        names += dict.fromkeys(entity["entity"] for entity in entities if entity["entity"] not in names)
        schema = EntityGroups(names)
        labels = [names.index(entity["entity"]) for entity in entities]
        groups: list[list[dict[str, Any]]] = []
        for first, last in schema.bounds(labels):
            groups.append([{**entities[first], "entity": schema.labels[labels[first]]}, *entities[first + 1 : last]])
        products = [math.prod(float(entity["score"]) for entity in group) for group in groups]
        return [
            {**self.group_sub_entities(group), "score": score} for group, score in zip(groups, products, strict=True)
        ]


def _offsets(output: dict[str, Any]) -> np.ndarray | None:
    """The characters of each token in the text, `[n, 2]`; of a list of words in these, joined."""
    if output.get("offset_mapping") is None:
        return None
    (offsets,) = output["offset_mapping"].numpy()
    if output.get("word_to_chars_map") is None:
        return offsets
    words = [0 if word is None else output["word_to_chars_map"][word][0] for word in output["word_ids"]]
    return offsets + np.array(words)[:, None]


def _copied(offsets: Tensor | None) -> Tensor | None:
    return None if offsets is None else offsets.clone()


def logits_along(paths: Tensor, logits: Tensor) -> Tensor:
    """
    Logits `[b, n, k]` whose largest is at the labels of `paths` (`[b, n]`), with their probability in `logits` or a
    little over 1 / k, whichever is more; the other labels share the rest evenly.
    """
    k = logits.shape[-1]
    labels = paths.clamp(min=0)[..., None]
    probability = path_probabilities(labels[..., 0], logits)[..., None]
    others = ((1 - probability) / max(k - 1, 1)).log().expand(*logits.shape)
    return others.scatter(-1, labels, probability.log())


def path_probabilities(labels: Tensor, logits: Tensor) -> Tensor:
    """The probability in logits `[b, n, k]` of each label of `[b, n]`, or a little over 1 / k, whichever is more."""
    probability = logits.float().softmax(-1).gather(-1, labels[..., None])[..., 0]
    return probability.clamp(min=(1 + 1e-3) / logits.shape[-1], max=1 - 1e-7)
