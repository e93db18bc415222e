"""The token-classification pipeline with the best path of a CRF and entities of every tagging scheme."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor
from transformers import TokenClassificationPipeline

from ..data.entities import EntityGroups
from ..data.windows import cut_windows, max_length_or_none
from ..errors import UserError


_NEVER_CUT = 10**9  # tokens; the stock pipeline always truncates


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
        return {**scored, **dict.fromkeys(("offset_mapping", "word_ids", "word_to_chars_map")), **model_inputs}

    def postprocess(self, all_outputs: list[dict[str, Any]], *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        if "window" in all_outputs[0]:
            all_outputs = [self._joined(all_outputs)]
        return super().postprocess(all_outputs, *args, **kwargs)

    def _joined(self, outputs: list[dict[str, Any]]) -> dict[str, Any]:
        """The whole text, with the logits of each token from the window in which it counts."""
        text, logits = outputs[0]["text"], outputs[0]["logits"]
        joined = logits.new_zeros(1, text["input_ids"].shape[1], logits.shape[2])
        for output in outputs:
            window, own = output["window"], output["logits"][0]
            if self.tokenizer.padding_side == "left":  # in a batch with longer windows
                own = own[-len(window.tokens) :]
            joined[0, window.tokens[window.read]] = own[window.read]
        return {**text, "logits": joined}

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
