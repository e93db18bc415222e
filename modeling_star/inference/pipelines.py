"""The token-classification pipeline with the entities of a `Predictor`: best paths of a CRF, every tagging scheme."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import TokenClassificationPipeline
from transformers.pipelines.token_classification import AggregationStrategy

from ..data.in_memory import inputs_of
from ..data.windows import cut_windows, max_length_or_none
from ..errors import UserError
from .decode import EntityDecoder, TaggedText, add_window, best_labels, offsets_in_text
from .torch_runtime import crf_tables


_NEVER_CUT = 10**9  # tokens; the stock pipeline always truncates
_OUTPUTS = ("logits", "paths", "messages")


class BestPathPipeline(TokenClassificationPipeline):
    """
    transformers' pipeline, but taggers with a CRF predict its best path (Viterbi), and `aggregation_strategy` groups
    the entities of any scheme (IOB1, IOB2, IOBES, BILOU, BMES, BMEWO), or the words of a text without blanks (B, M, E,
    S without types), whose group is "word".

    The stock pipeline takes the most probable label of each token, and these labels may not fit together. It knows B-
    and I- alone: it splits entities in BMES into words, and joins neighbouring words of one part of speech. With
    `aggregation_strategy="none"` the result is a label for each token, and its score the probability of this label
    given the text. With any other strategy it is the entities of a `Predictor`: the first token of a word decides, and
    the score is the probability of the span with a CRF, and else the product of its words'. `word` is the entity's
    text.

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
        name = self.model.name_or_path
        inputs_of([sentence], "token-classification", False, name)
        if not self.tokenizer.is_fast:
            raise UserError(f"The tokenizer of {name} is a slow one: omit pipeline_class, for the stock pipeline.")
        limit = max_length_or_none(self.tokenizer.model_max_length)
        stride = preprocess_params.pop("tokenizer_params", {}).get("stride", (limit or 0) // 8)
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
        output = self.model(**{name: model_inputs[name] for name in names}, return_dict=True)
        if output.logits.isnan().any():
            raise UserError(f"The scores of {self.model.name_or_path} are NaN: train it again, or name another model.")
        found = {name: getattr(output, name, None) for name in _OUTPUTS}
        # The stock pipeline counts the windows of a batch by the first value.
        return {**{name: values for name, values in found.items() if values is not None}, **model_inputs}

    def postprocess(
        self,
        all_outputs: list[dict[str, Any]],
        aggregation_strategy: AggregationStrategy = AggregationStrategy.NONE,
        ignore_labels: Sequence[str] | None = None,
    ) -> list[dict[str, Any]]:
        ignored = ["O"] if ignore_labels is None else list(ignore_labels)
        text, outputs = all_outputs[0]["text"], self._joined(all_outputs)
        if aggregation_strategy == AggregationStrategy.NONE:
            return super().postprocess([_for_stock(text, outputs)], aggregation_strategy, ignored)
        content = np.flatnonzero((text["special_tokens_mask"][0] == 0).numpy())
        of_tokens = [text["input_ids"][0].numpy(), _offsets(text), *best_labels(outputs)]
        if self._decoder.scorer is not None:
            of_tokens += [outputs["logits"], outputs["messages"]]
        tagged = TaggedText(text["sentence"], *(values[content] for values in of_tokens))
        (entities,) = self._decoder([tagged], with_outside="O" not in ignored)
        return [
            {"entity_group": entity["label"], "score": entity["score"], "word": entity["text"]}
            | {name: entity[name] for name in ("start", "end")}
            for entity in entities
            if entity["label"] not in ignored
        ]

    @cached_property
    def _decoder(self) -> EntityDecoder:
        return EntityDecoder(list(self.model.config.id2label.values()), self.tokenizer, crf_tables(self.model))

    def _joined(self, all_outputs: list[dict[str, Any]]) -> dict[str, np.ndarray]:
        """What the model says of each token of a text, in the window in which it counts."""
        names = [name for name in _OUTPUTS if name in all_outputs[0]]
        length = all_outputs[0]["text"]["input_ids"].shape[1]
        whole: Sequence[np.ndarray] | None = None
        for output in all_outputs:
            parts = [output[name][0].float().numpy() if name != "paths" else output[name][0].numpy() for name in names]
            count = len(output["window"].tokens)  # without the padding of a batch with longer windows
            is_left = self.tokenizer.padding_side == "left"
            parts = [part[-count:] if is_left else part[:count] for part in parts]
            whole = add_window(whole, output["window"], parts, length)
        return dict(zip(names, whole or (), strict=True))


def _for_stock(text: dict[str, Any], outputs: dict[str, np.ndarray]) -> dict[str, Any]:
    """What the stock pipeline makes of a text, with the best path of a CRF."""
    logits, paths = (outputs.get(name) for name in ("logits", "paths"))
    tensor = torch.from_numpy(logits)[None]
    if paths is not None:
        tensor = logits_along(torch.from_numpy(paths)[None], tensor)
    # A copy: the stock pipeline moves the offsets of words to their text where they are (transformers 5.23).
    no_words = dict.fromkeys(("word_ids", "word_to_chars_map"))
    return {**no_words, **text, "logits": tensor, "offset_mapping": text["offset_mapping"].clone()}


def _offsets(text: dict[str, Any]) -> np.ndarray:
    """The characters of each token in the text, `[n, 2]`; of a list of words in these, joined."""
    (offsets,) = np.array(text["offset_mapping"])
    if text.get("word_to_chars_map") is None:
        return offsets
    words = [word or 0 for word in text["word_ids"]]  # special tokens have none
    return offsets_in_text(offsets, words, [begin for begin, _ in text["word_to_chars_map"]])


def logits_along(paths: Tensor, logits: Tensor) -> Tensor:
    """
    Logits `[b, n, k]` whose largest is at the labels of `paths` (`[b, n]`), with their probability in `logits` or a
    little over 1 / k, whichever is more; the other labels share the rest evenly.
    """
    k = logits.shape[-1]
    labels = paths.clamp(min=0)[..., None]
    probability = logits.float().softmax(-1).gather(-1, labels)
    probability = probability.clamp(min=(1 + 1e-3) / k, max=1 - 1e-7)
    others = ((1 - probability) / max(k - 1, 1)).log().expand(*logits.shape)
    return others.scatter(-1, labels, probability.log())
