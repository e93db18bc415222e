"""The token-classification pipeline with the best path of a CRF and entities of every tagging scheme."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase, TokenClassificationPipeline

from ..errors import UserError
from ..models.crf import entity_tag, typed_labels
from ..models.vocabulary import word_marker
from .sliding_windows import NOT_READ, select_max_context


_NO_LIMIT = 1e6  # `model_max_length` of a tokenizer without a limit is 1e30


def aggregation_for(tokenizer: PreTrainedTokenizerBase) -> Literal["first", "simple"]:
    """
    The `aggregation_strategy` for a tokenizer: "first" where words are cut into tokens, of which training labels the
    first alone; "simple" where each token is a word. Other strategies take everything between blanks for one word
    there: "Oslo." with its full stop, and a whole Chinese sentence.
    """
    return "simple" if word_marker(tokenizer) is None else "first"


def is_plain_iob(labels: Sequence[str]) -> bool:
    """Whether transformers' pipeline groups these labels correctly: O, B-x and I-x."""
    return all(label == "O" or (label[:2] in ("B-", "I-") and entity_tag(label)) for label in labels)


class EntityGroups:
    """
    Groups words with labels into entities. Where no label is O, as in parts of speech, every word is a group.

    Args:
        names: all labels, by their numbers.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.labels = typed_labels(names)
        # A type without a prefix continues over all neighbouring words that have it, as in transformers.
        bare = "I" if "O" in names else "S"
        self.tags = [entity_tag(label) or (bare, label) for label in self.labels]
        self.outside = names.index("O") if "O" in names else None

    def bounds(self, labels: Sequence[int]) -> list[tuple[int, int]]:
        """The first word of each group, those of O included, and the one after its last."""
        firsts: list[int] = []
        open_kind: str | None = None
        for word, label in enumerate(labels):
            prefix, kind = self.tags[label]
            if prefix not in ("I", "E") or kind != open_kind:
                firsts.append(word)
            open_kind = kind if prefix in ("B", "I") else None
        return list(itertools.pairwise([*firsts, len(labels)]))

    def __call__(self, labels: np.ndarray) -> list[tuple[str, int, int]]:
        """Entities of labels `[n]`: their type, their first word and the one after their last."""
        if (labels == self.outside).all():
            return []
        numbers = labels.tolist()
        groups = [(numbers[first], first, last) for first, last in self.bounds(numbers)]
        kept = [group for group in groups if group[0] != self.outside]
        return [(self.labels[label].split("-", 1)[-1], first, last) for label, first, last in kept]


class BestPathPipeline(TokenClassificationPipeline):
    """
    transformers' pipeline, but taggers with a CRF predict its best path (Viterbi), and `aggregation_strategy` groups
    the entities of any scheme (IOB1, IOB2, IOBES, BILOU, BMES, BMEWO), or the words of a text without blanks (B, M, E,
    S without types), whose group is "word".

    The stock pipeline takes the most probable label of each token, and these labels may not fit together; in both, a
    score is the probability of the label given the text. The stock pipeline knows B- and I- alone: it splits entities
    in BMES into words, and joins neighbouring words of one part of speech.

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
        options, limit = preprocess_params.get("tokenizer_params", {}), self.tokenizer.model_max_length
        if "stride" not in options and self.tokenizer.is_fast and limit < _NO_LIMIT:
            options = {**options, "return_overflowing_tokens": True, "padding": True, "stride": limit // 8}
            preprocess_params["tokenizer_params"] = options
        stride = options.get("stride", 0)
        from_end = self.tokenizer.truncation_side == "left"
        first, before = 0, 0  # the number of a window's first token, and the length of the window before
        for window in super().preprocess(sentence, offset_mapping, **preprocess_params):
            length = int((window["special_tokens_mask"] == 0).sum())
            if before:
                first += stride - length if from_end else before - stride
            before = length
            yield {**window, "first_token": first}

    def _forward(self, model_inputs: dict[str, Any]) -> dict[str, Any]:
        names = [name for name in self.tokenizer.model_input_names if name in model_inputs]
        output = self.model(**{name: model_inputs[name] for name in names})
        paths = getattr(output, "paths", None)
        logits = output[0] if isinstance(output, tuple) else output.logits
        if logits.isnan().any():
            raise UserError(f"The scores of {self.model.name_or_path} are NaN: train it again, or name another model.")
        missing = dict.fromkeys(("offset_mapping", "word_ids", "word_to_chars_map"))
        return {**missing, **model_inputs, "logits": logits if paths is None else logits_along(paths, logits)}

    def postprocess(self, all_outputs: list[dict[str, Any]], *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        if len(all_outputs) > 1:
            all_outputs = [_joined(all_outputs)]
        return super().postprocess(all_outputs, *args, **kwargs)

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
        return [self.group_sub_entities(group) for group in groups]


def _joined(windows: list[dict[str, Any]]) -> dict[str, Any]:
    """
    Join the windows of a text: each token from the window that `select_max_context` chooses, and the special tokens at
    the beginning.
    """
    # A tokenizer that truncates on the left gives the last window first.
    sentence, windows = windows[0]["sentence"], sorted(windows, key=lambda window: window["first_token"])
    first = int(windows[0]["first_token"])
    columns = [(window["special_tokens_mask"][0] == 0).nonzero()[:, 0].tolist() for window in windows]
    tokens: list[list[int | None]] = [[None] * window["input_ids"].shape[1] for window in windows]
    for window, content, row in zip(windows, columns, tokens, strict=True):
        for index, column in enumerate(content):
            row[column] = int(window["first_token"]) - first + index
    chosen = {
        token: (number, column)
        for number, row in enumerate(select_max_context(tokens))
        for column, token in enumerate(row)
        if token != NOT_READ
    }
    mask = windows[0].get("attention_mask", torch.ones_like(windows[0]["input_ids"]))[0, : columns[0][0]]
    places = [*((0, column) for column in mask.nonzero()[:, 0].tolist()), *(chosen[token] for token in sorted(chosen))]
    joined = {**windows[0], "sentence": sentence}
    for name in ("logits", "input_ids", "offset_mapping", "special_tokens_mask"):
        if joined[name] is not None:
            joined[name] = torch.stack([windows[number][name][0, column] for number, column in places])[None]
    if joined["word_ids"] is not None:
        joined["word_ids"] = [windows[number]["word_ids"][column] for number, column in places]
    return joined


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
