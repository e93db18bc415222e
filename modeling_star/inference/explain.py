"""
Explanations of one prediction as an HTML page: attributions of tokens, and the weights of the attentions.

Axes: m interpolated inputs  b batch  n tokens  w width of the embeddings  h heads  r candidate roles
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from ..data.entities import EntityGroups
from ..errors import UserError
from .prediction import Predictor


COMPLETENESS = 1e-2
"""How far the sum of attributions may be from the difference that they explain."""
_MOST_POINTS = 2048
_TOKENS_AT_ONCE = 4096


@dataclass(frozen=True)
class Attribution:
    """
    What each token adds to one logit, in place of an unknown word, n-grams in place of none: `values`, 0 at special
    tokens but for n-grams, which add up to `difference`, that of the logit, but for rounding. `part`: of a model that
    votes with TF-IDF, "encoder" or "TF-IDF", whose logit and probability these are.
    """

    label: str
    score: float
    values: list[float]
    difference: float
    part: str = ""

    @property
    def title(self) -> str:
        """The label, and whose it is."""
        return f"{self.label}, {self.part}" if self.part else self.label


@dataclass(frozen=True)
class Explanation:
    """
    A text, its n tokens with their `spans` of characters, empty for special tokens, and what was found of them:
    `attributions` of the best class (for each model that votes) or of each entity; for each layer the mean over heads
    of the weights of the `roles`, `[n, r]`, and of the relay's weights of tokens, `[n]`.
    """

    text: str
    tokens: list[str]
    spans: list[tuple[int, int]]
    attributions: list[Attribution]
    roles: tuple[str, ...]
    weights: list[np.ndarray]
    relay: list[np.ndarray]

    @property
    def words(self) -> list[tuple[int, int, float]]:
        """The words that BiG found: first token, length, and the mean weight that its tokens give it in all layers."""
        found = []
        for column, role in enumerate(self.roles):
            index, _, length = role.partition(" of ")
            if index == "1" and length.isdigit() and int(length) > 1:
                diagonal = np.mean(
                    [
                        [layer[k : len(layer) - int(length) + 1 + k, column + k] for k in range(int(length))]
                        for layer in self.weights
                    ],
                    axis=(0, 1),
                )
                found += [(int(start), int(length), float(diagonal[start])) for start in np.flatnonzero(diagonal)]
        return found


def check_task(predictor: Predictor) -> None:
    """Raise a UserError where the model is no classifier of single texts, and no tagger."""
    task = predictor.saved.task
    if task not in ("text-classification", "token-classification") or predictor.pairs:
        what = "pairs of texts" if predictor.pairs else task
        raise UserError(
            f"{predictor.saved.name} is for {what}; classifiers of single texts and taggers are explained."
        )


def explain(predictor: Predictor, text: str) -> Explanation:
    """Predict a text and explain the best class, or each entity; a UserError where the attributions do not add up."""
    check_task(predictor)
    if predictor.saved.onnx is not None:
        raise UserError(f"{predictor.saved.name} has no gradients to explain: name the folder that was exported.")
    task, model = predictor.saved.task, predictor.pytorch_model
    [(_, predictions)] = predictor.predict([text])
    encoding = predictor.tokenizer(
        text, truncation=True, return_offsets_mapping=True, return_special_tokens_mask=True, return_tensors="pt"
    )
    spans = [(int(start), int(end)) for start, end in encoding.pop("offset_mapping")[0]]
    special = encoding.pop("special_tokens_mask")[0].bool()
    inputs = {name: x.to(model.device) for name, x in encoding.items()}
    targets = _class_target if task == "text-classification" else _entity_targets
    attributions = []
    with encoder_alone(model) as votes:
        has_encoder = not votes or bool(model.classifier.vote.share < 1)
        for label, score, target in targets(model, inputs, spans, predictions) if has_encoder else ():
            if votes:
                score = _probability(model, model(**inputs, return_dict=True).logits, target)
            values, difference = integrated_gradients(model, inputs, special, predictor.tokenizer.unk_token_id, target)
            of_ngrams = _ngram_shares(model, inputs["input_ids"], target)
            values = [value + share for value, share in zip(values, of_ngrams, strict=True)]
            difference += sum(of_ngrams)
            attributions.append(Attribution(label, score, values, difference, "encoder" if votes else ""))
        for label, _, target in targets(model, inputs, spans, predictions) if votes else ():
            attributions.append(_of_tfidf(model, inputs["input_ids"], label, target))
    names = predictor.tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
    tokens = [text[start:end] or name for (start, end), name in zip(spans, names, strict=True)]
    attentions = _attentions(model, inputs) if has_encoder else ((), [], [])
    return Explanation(text, tokens, spans, attributions, *attentions)


def _class_target(model: PreTrainedModel, inputs: dict[str, Tensor], spans: Any, predictions: list[Any]) -> list[Any]:
    if "label" not in predictions[0]:
        return [("value", predictions[0]["value"], lambda output: output.logits[:, 0])]
    best = predictions[0]
    index = model.config.label2id[best["label"]]
    return [(best["label"], best["score"], lambda output: output.logits[:, index])]


@torch.no_grad()
def _entity_targets(
    model: PreTrainedModel, inputs: dict[str, Tensor], spans: list[tuple[int, int]], predictions: list[Any]
) -> list[Any]:
    """For each entity the mean logit of its tokens' labels: of the path, or else the best ones of its type."""
    output = model(**inputs, return_dict=True)
    paths = getattr(output, "paths", None)
    path = (output.logits.argmax(-1) if paths is None else paths)[0]
    kinds = [kind for _, kind in EntityGroups(list(model.config.id2label.values())).tags]
    targets = []
    for entity in predictions:
        inside = [k for k, (start, end) in enumerate(spans) if start < entity["end"] and end > entity["start"]]
        of_kind = torch.tensor([n for n, kind in enumerate(kinds) if kind == entity["label"]], device=path.device)
        best = of_kind[output.logits[0, inside][:, of_kind].argmax(-1)]
        own = torch.where(torch.isin(path[inside], of_kind), path[inside], best)

        def target(output: Any, columns: list[int] = inside, labels: Tensor = own) -> Tensor:
            return output.logits[:, columns, labels].mean(-1)

        targets.append((f"{entity['text']}: {entity['label']}", entity["score"], target))
    return targets


@contextmanager
def encoder_alone(model: PreTrainedModel) -> Iterator[bool]:
    """The logits of a classifier's encoder, by its temperature, in place of its vote with TF-IDF; whether it votes."""
    vote = getattr(getattr(model, "classifier", None), "vote", None)
    hook = (
        None
        if vote is None
        else vote.register_forward_hook(lambda module, given, output: given[0] / module.temperature)
    )
    try:
        yield hook is not None
    finally:
        if hook is not None:
            hook.remove()


def _probability(model: PreTrainedModel, logits: Tensor, target: Callable[[Any], Tensor]) -> float:
    """That of the target class, from the logits `[1, k]` of one model."""
    several = model.config.problem_type == "multi_label_classification"
    probabilities = logits.float().sigmoid() if several else logits.float().softmax(-1)
    return target(SequenceClassifierOutput(logits=probabilities)).item()


@torch.no_grad()
def _of_tfidf(model: PreTrainedModel, input_ids: Tensor, label: str, target: Callable[[Any], Tensor]) -> Attribution:
    """What the terms of a text `[1, n]` add to the target of the linear model, exactly."""
    vote = model.classifier.vote
    values = target(SequenceClassifierOutput(logits=vote.shares(input_ids)[0])).tolist()
    logits = vote.logits(input_ids, None)
    difference = target(SequenceClassifierOutput(logits=logits - vote.bias)).item()
    return Attribution(label, _probability(model, logits, target), values, difference, "TF-IDF")


@torch.no_grad()
def _ngram_shares(model: PreTrainedModel, input_ids: Tensor, target: Callable[[Any], Tensor]) -> list[float]:
    """What the n-grams of a classifier, which are read from the ids, add to the target at each of n tokens."""
    ngrams = getattr(getattr(model, "classifier", None), "ngrams", None)
    if ngrams is None:
        return [0.0] * input_ids.shape[1]
    return target(SequenceClassifierOutput(logits=ngrams.shares(input_ids)[0])).tolist()


@torch.enable_grad()
def integrated_gradients(
    model: PreTrainedModel,
    inputs: dict[str, Tensor],
    special: Tensor,
    baseline_id: int | None,
    target: Callable[[Any], Tensor],
) -> tuple[list[float], float]:
    """
    Integrated gradients (Sundararajan et al. 2017, https://arxiv.org/abs/1703.01365) over the embeddings of tokens,
    the features of their characters and the vectors of words. Returns the attributions `[n]` of the inputs `[1, n]`,
    and the difference of the target between the text and a baseline; a UserError where they do not add up to it.

    The baseline has `baseline_id` (`None`: zeros), and zeros for the features and vectors, in place of each token that
    is not `special` `[n]`. `target` makes of an output for m rows `[m]`.
    """
    table, n = model.get_input_embeddings(), len(special)
    embeddings = getattr(model.base_model, "embeddings", None)
    joined = [getattr(embeddings, name, None) for name in ("characters", "word_vectors")]
    parts = [table, *(part for part in joined if part is not None)]

    def run(shares: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """The target at shares of the way from baseline to text; of each part what is interpolated, and the way."""
        points: list[Tensor] = []
        ways: list[Tensor] = []

        def interpolate(part: Any, _: Any, output: Tensor) -> Tensor:
            whole = output.detach().reshape(len(shares), n, -1)
            is_zero = part is not table or baseline_id is None
            start = torch.zeros_like(whole) if is_zero else table.weight[baseline_id].detach()
            way = (whole - start).masked_fill(special[:, None].to(whole.device), 0)
            points.append((whole + (shares.to(whole) - 1)[:, None, None] * way).requires_grad_())
            ways.append(way[:1])
            return points[-1].reshape(output.shape)

        hooks = [part.register_forward_hook(interpolate) for part in parts]
        try:
            values = target(model(**{name: x.expand(len(shares), -1) for name, x in inputs.items()}, return_dict=True))
        finally:
            for hook in hooks:
                hook.remove()
        return values, points, ways

    low, high = run(torch.tensor([0.0, 1.0]))[0].tolist()
    points = 32
    while True:
        nodes, shares = (torch.from_numpy(x) for x in np.polynomial.legendre.leggauss(points))
        total = torch.zeros(n, dtype=torch.float64)
        for some, weights in zip(*(x.split(max(_TOKENS_AT_ONCE // n, 1)) for x in (nodes, shares)), strict=True):
            values, embedded, ways = run((some + 1) / 2)
            for slopes, way in zip(torch.autograd.grad(values.sum(), embedded), ways, strict=True):
                total += ((slopes * way).sum(-1).cpu().double() * weights[:, None] / 2).sum(0)
        error = abs(float(total.sum()) - (high - low))
        if error <= COMPLETENESS:
            return total.tolist(), high - low
        if points == _MOST_POINTS:
            raise UserError(f"The attributions add up to {float(total.sum()):.3f}, not to {high - low:.3f}.")
        points *= 4 if points * 4 <= _MOST_POINTS else 2


@torch.no_grad()
def _attentions(
    model: PreTrainedModel, inputs: dict[str, Tensor]
) -> tuple[tuple[str, ...], list[np.ndarray], list[np.ndarray]]:
    """The roles, and the weights of each layer, `[n, r]` and `[n]`."""
    roles = tuple(getattr(model.config, "candidate_roles", ()))
    if not roles:
        return (), [], []
    output = model.base_model(**inputs, output_attentions=True, return_dict=True)
    n = inputs["input_ids"].shape[1]
    ring = [weights[0].mean(0).cpu().numpy() for weights in output.attentions or ()]
    relay = [weights[0].mean(0)[-n:].cpu().numpy() for weights in output.relay_attentions or ()]
    return roles, ring, relay


# ------ the page


def as_html(explanation: Explanation, title: str) -> str:
    """One page without any other file."""
    parts = [f"<h1>{escape(title)}</h1><p>{escape(explanation.text)}</p>"]
    for each in explanation.attributions:
        how, other = "Integrated gradients", "unknown words"
        if each.part == "TF-IDF":
            how, other = "Weights of words and runs of words", "no known term"
        parts.append(
            f"<h2>{escape(each.title)} <small>{each.score:.3f}</small></h2><p class=tokens>"
            f"{_coloured(explanation, each.values)}</p><p class=note>{how}: <b class=for>for</b> and "
            f"<b class=against>against</b>. The logit is {each.difference:+.3f} from that of a text of {other}; "
            f"the values add up to {sum(each.values):+.3f}.</p>"
        )
    if any(each.part == "encoder" for each in explanation.attributions):
        parts.append("<p class=note>The prediction is the mean of these models' probabilities, weighted.</p>")
    if not explanation.attributions:
        parts.append("<p>No entity is predicted.</p>")
    for number, weights in enumerate(explanation.relay, start=1):
        above = (len(weights) * weights - 1).clip(min=0)
        parts.append(
            f"<h2>What the relay of layer {number} reads</h2><p class=tokens>{_coloured(explanation, above)}</p>"
        )
    if explanation.relay:
        parts.append("<p class=note>Coloured where the weight is above that of a mean over all tokens.</p>")
    if explanation.words:
        parts.append("<h2>Words, by the weight that their tokens give them</h2>")
        words = ("".join(explanation.tokens[start : start + length]) for start, length, _ in explanation.words)
        weighted = zip(words, explanation.words, strict=True)
        cells = "".join(f"<tr><th>{escape(word)}{_cells(np.array([one[2]]))}</tr>" for word, one in weighted)
        parts.append(f"<table>{cells}</table><p class=note>Percent of a token's attention, mean of layers.</p>")
    for number, weights in enumerate(explanation.weights, start=1):
        used = [(role, column) for column, role in enumerate(explanation.roles) if weights[:, column].any()]
        rows = "".join(f"<tr><th>{escape(role)}{_cells(weights[:, column])}</tr>" for role, column in used)
        head = "".join(f"<th>{escape(token)}" for token in explanation.tokens)
        parts.append(
            f"<h2>Candidates of each token in layer {number}</h2><div class=wide><table><tr><th>{head}</tr>{rows}"
            "</table></div><p class=note>Percent of a token's attention, mean of the heads.</p>"
        )
    return (
        f"<!DOCTYPE html><meta charset=utf-8><title>{escape(title)}</title><style>{_STYLE}</style>{''.join(parts)}\n"
    )


_STYLE = (
    "body{font:16px/1.6 sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222}h1{font-size:1.3em}"
    "h2{font-size:1.05em;margin:1.6em 0 .3em}small,.note{color:#666;font-size:.85em}.tokens{font-size:1.15em}"
    ".for{color:#2a6fbb}.against{color:#d9782d}.wide{overflow-x:auto}"
    "table{border-collapse:collapse;font-size:.8em}td,th{padding:.15em .5em;text-align:center;font-weight:normal}"
)


def _shade(value: float, largest: float) -> str:
    colour = "42,111,187" if value >= 0 else "217,120,45"
    return f"background:rgba({colour},{min(abs(value) / (largest or 1), 1) * 0.75:.2f})"


def _coloured(explanation: Explanation, values: Sequence[float] | np.ndarray) -> str:
    """The text, each token coloured by its value; special tokens in grey."""
    largest, end, parts = max(float(np.abs(values).max()), 0.5), 0, []
    for token, (start, stop), value in zip(explanation.tokens, explanation.spans, values, strict=True):
        gap = explanation.text[end:start] if stop > start else " "
        if not end and stop > start:  # after [CLS]
            gap = " "
        style, end = _shade(float(value), largest), max(end, stop)
        kind = "" if stop > start else ";color:#777"
        parts.append(f'{escape(gap)}<span style="{style}{kind}" title="{value:+.4f}">{escape(token)}</span>')
    return "".join(parts)


def _cells(values: np.ndarray) -> str:
    return "".join(f'<td style="{_shade(float(value), 1)}">{100 * value:.0f}' for value in values)
