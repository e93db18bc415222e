"""The stock pipeline for taggers, with the labels of a CRF's best path and entities of every scheme."""

import copy
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TokenClassificationPipeline

from ..models.crf import entity_tag, typed_labels
from ..models.vocabulary import word_marker
from .sliding_windows import NOT_READ, select_max_context


def aggregation_for(tokenizer: PreTrainedTokenizerBase) -> Literal["first", "simple"]:
    """
    The `aggregation_strategy` for what a tokenizer makes of words: "first" where a word may be several tokens, of
    which the first alone is labelled in training; "simple" where each token is a word. The others take all that stands
    between blanks for one word there: "Oslo." with its full stop, and a whole Chinese sentence.
    """
    return "simple" if word_marker(tokenizer) is None else "first"


def is_plain_iob(labels: Sequence[str]) -> bool:
    """Whether labels are all that transformers' own pipeline puts together rightly: O, B-x and I-x."""
    return all(label == "O" or (label[:2] in ("B-", "I-") and entity_tag(label)) for label in labels)


class _WatchedModel:
    """A model for one call, whose output is kept."""

    def __init__(self, model: PreTrainedModel):
        self.model = model
        self.output: Any = None

    def __call__(self, **inputs: Any) -> Any:
        self.output = self.model(**inputs)
        return self.output

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)


class _Uncopied:
    """What is no list to the pipeline, which would go through all of it for every window."""

    def __init__(self, values: list[Any]):
        self.values = values


class BestPathPipeline(TokenClassificationPipeline):
    """
    As transformers' pipeline, but a tagger with a CRF answers with its best path (Viterbi), and what
    `aggregation_strategy` puts together are the entities of any scheme (IOB1, IOB2, IOBES, BILOU, BMES, BMEWO), or the
    words of a text without blanks (B, M, E, S alone), whose group is "word".

    The stock pipeline takes the likeliest label of each token by itself, which now and then are labels that do not go
    together; a score is the probability of the label, given the text, in both. And it knows B- and I- alone: an entity
    of BMES falls into its words there, and neighbouring words of one part of speech become one.

    With `stride=64` a text that is longer than the model takes is read in windows that share 64 tokens; without it,
    the beginning alone. A token is read in the window that shows most of its surroundings, as run_ner.py scores it:
    the stock pipeline chooses among whole entities, the longest.

    Example:

    ```python
    pipeline("token-classification", "outputs/quickstart/model", pipeline_class=BestPathPipeline)
    ```
    """

    def preprocess(
        self, sentence: str | list[str], offset_mapping: Any = None, **preprocess_params: Any
    ) -> Iterator[dict[str, Any]]:
        stride = preprocess_params.get("tokenizer_params", {}).get("stride", 0)
        from_end = self.tokenizer.truncation_side == "left"
        first, before = 0, 0  # of a window, and tokens of the one before
        whole: _Uncopied | None = None
        for window in super().preprocess(sentence, offset_mapping, **preprocess_params):
            if "word_to_chars_map" in window:
                whole = whole or _Uncopied(window["word_to_chars_map"])
                window["word_to_chars_map"] = whole
            own = int((window["special_tokens_mask"] == 0).sum())
            if before:
                first += stride - own if from_end else before - stride
            before = own
            yield {**window, "first_token": first}

    def postprocess(self, all_outputs: list[dict[str, Any]], *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        for window in all_outputs:
            if window["word_to_chars_map"] is not None:
                window["word_to_chars_map"] = window["word_to_chars_map"].values
        if len(all_outputs) > 1:
            all_outputs = [_joined(all_outputs)]
        return super().postprocess(all_outputs, *args, **kwargs)

    def _forward(self, model_inputs: dict[str, Any]) -> dict[str, Any]:
        first = model_inputs.pop("first_token")
        # The stock method keeps the logits alone. It is run by a twin of this pipeline, whose model keeps more: a hook
        # on the model itself would be called for other threads, too.
        twin, watched = copy.copy(self), _WatchedModel(self.model)
        twin.model = watched
        outputs = super(BestPathPipeline, twin)._forward(model_inputs)
        outputs["first_token"] = first
        paths = getattr(watched.output, "paths", None)
        return outputs if paths is None else {**outputs, "logits": logits_along(paths, outputs["logits"])}

    def group_entities(self, entities: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """
        The words or tokens of each entity as one.

        Args:
            entities: of words or tokens, in the text's order, their label under `entity`.

        Returns:
            As transformers' own. Where no label is O, as in parts of speech, every word is by itself.
        """
        names = list(self.model.config.id2label.values())
        has_outside, typed = "O" in names, dict(zip(names, typed_labels(names), strict=True))
        groups: list[list[dict[str, Any]]] = []
        open_kind: str | None = None
        for entity in entities:
            label = typed.get(entity["entity"], entity["entity"])
            # A type without a prefix goes on as long as it stands there, as in transformers.
            prefix, kind = entity_tag(label) or ("I" if has_outside else "S", label)
            if prefix in ("I", "E") and kind == open_kind:
                groups[-1].append(entity)
            else:
                groups.append([{**entity, "entity": label}])
            open_kind = kind if prefix in ("B", "I") else None
        return [self.group_sub_entities(group) for group in groups]


def _joined(windows: list[dict[str, Any]]) -> dict[str, Any]:
    """
    The windows of a text as one, each token where `select_max_context` has it, without padding and special tokens but
    those at the beginning.
    """
    # From the end of a text come those of tokenizers that truncate on the left.
    sentence, windows = windows[0]["sentence"], sorted(windows, key=lambda window: window["first_token"])
    places = [(window["special_tokens_mask"][0] == 0).nonzero()[:, 0] for window in windows]
    first = int(windows[0]["first_token"])
    tokens: list[list[int | None]] = [[None] * window["input_ids"].shape[1] for window in windows]
    for window, own, shown in zip(windows, places, tokens, strict=True):
        for index, place in enumerate(own.tolist()):
            shown[place] = int(window["first_token"]) - first + index
    where = {
        token: (number, place)
        for number, read_here in enumerate(select_max_context(tokens))
        for place, token in enumerate(read_here)
        if token != NOT_READ
    }
    real = windows[0].get("attention_mask", torch.ones_like(windows[0]["input_ids"]))[0, : int(places[0][0])]
    read = [*((0, place) for place in real.nonzero()[:, 0].tolist()), *(where[token] for token in sorted(where))]
    joined = {**windows[0], "sentence": sentence}
    for name in ("logits", "input_ids", "offset_mapping", "special_tokens_mask"):
        if joined[name] is not None:
            joined[name] = torch.stack([windows[number][name][0, place] for number, place in read])[None]
    if joined["word_ids"] is not None:
        joined["word_ids"] = [windows[number]["word_ids"][place] for number, place in read]
    return joined


def logits_along(paths: Tensor, logits: Tensor) -> Tensor:
    """
    Logits `[b, n, k]` whose largest is at the labels of `paths` (`[b, n]`), as probable as in `logits`, where that is
    more than one in k; what is left is shared evenly by the other labels.
    """
    k = logits.shape[-1]
    place = paths.clamp(min=0)[..., None]
    share = logits.float().softmax(-1).gather(-1, place).clamp(min=(1 + 1e-3) / k, max=1 - 1e-7)
    others = ((1 - share) / max(k - 1, 1)).log().expand(*logits.shape)
    return others.scatter(-1, place, share.log())


__all__ = ["BestPathPipeline", "aggregation_for", "is_plain_iob", "logits_along"]
