"""What the tests of every encoder share: tiny models, batches with any padding, and the reference run on both."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import reference
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import BertConfig, PreTrainedModel

import modeling_star
from modeling_star.models import ops
from modeling_star.models.attention import AttentionProjections
from modeling_star.models.heads import NO_SPAN


HEADS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMaskedLM")
EVERY_MODEL = ("Model", *HEADS)

# No dropout, so that a forward pass is a function of its inputs in training mode too.
TINY = {
    "vocab_size": 13,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 16,
    "embedding_dropout_prob": 0.0,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "num_labels": 3,
}


def examples(count: int) -> Callable[[Any], Any]:
    """Run a hypothesis test on `count` examples, the same ones every time, however slow the machine."""
    return settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        # The tests of EncoderContract are inherited: hypothesis sees one test run by several classes.
        suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow],
    )


# ------ models


def tiny_bert() -> BertConfig:
    """A BERT for inside the embeddings, of another width than `TINY`."""
    return BertConfig(
        vocab_size=TINY["vocab_size"],
        hidden_size=12,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )


def tiny_model(
    stem: str, ending: str = "Model", *, seed: int | None = 0, dtype: torch.dtype = torch.float32, **options: Any
) -> PreTrainedModel:
    """
    `modeling_star.<stem><ending>` of a `TINY` config with `options`, in training mode; every parameter is random, or,
    without a seed, as it is at the start of a training. The option "lexicon" is given to `set_lexicon`, "tokenizer" to
    `set_vocabulary`.
    """
    model_class = getattr(modeling_star, stem + ending)
    lexicon, tokenizer = options.pop("lexicon", None), options.pop("tokenizer", None)
    torch.manual_seed(0)
    model = model_class(model_class.config_class(**{**TINY, **options})).to(dtype)
    if lexicon is not None:
        model.set_lexicon(lexicon)
    if tokenizer is not None:
        model.set_vocabulary(tokenizer)
    if seed is not None:
        randomise(model, seed)
    return model.train()


@torch.no_grad()
def randomise(model: torch.nn.Module, seed: int) -> None:
    """Give every parameter a value of its own: biases of 0 and norms of 1 would hide what is done with them."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        is_norm = "norm" in name.lower() and name.endswith("weight")
        if is_norm:
            noise = 1 + 0.3 * noise
        elif parameter.dim() == 2 and not name.endswith("_embeddings.weight"):
            noise = noise / parameter.shape[1] ** 0.5
        parameter.copy_(noise)


def lexicon_of(words: Iterable[tuple[int, ...]], longest: int = 4) -> modeling_star.Lexicon:
    """A lexicon of words of 2 to `longest` tokens, given as their ids."""
    rows = sorted({(*word, *[-1] * (longest - len(word))) for word in words})
    return modeling_star.Lexicon("words", longest, words=torch.tensor(rows))


def some_words() -> set[tuple[int, ...]]:
    """Words of 2, 3 and 4 ids, so many that a random text of a `TINY` vocabulary holds about one for each token."""
    ids = range(TINY["vocab_size"])
    pairs = {(a, b) for a in ids for b in ids if (3 * a + b) % 3 == 0}
    return (
        pairs
        | {(a, b, c) for a, b in pairs for c in ids if (a + c) % 3 == 0}
        | {(a, b, c, d) for a, b in pairs for c in ids for d in ids if (a + b + c + d) % 11 == 0}
    )


# ------ batches


@dataclass
class Batch:
    """
    Padded inputs with anything at the padding.

    Args:
        attention_mask, input_ids, token_type_ids: `[b, n]`.
        inputs_embeds: `[b, n, w]`, in place of the ids where given.
        word_mask: `[b, n, L]`, given to the model.
        find_words: from the ids of a text to the start and length of its words; what the model's lexicon should find.
    """

    attention_mask: Tensor
    input_ids: Tensor
    token_type_ids: Tensor
    inputs_embeds: Tensor | None = None
    word_mask: Tensor | None = None
    find_words: Callable[[list[int]], set[tuple[int, int]]] | None = None

    @property
    def shape(self) -> torch.Size:
        return self.attention_mask.shape

    def inputs(self) -> dict[str, Tensor]:
        """Keyword arguments of a model."""
        tokens = {"input_ids": self.input_ids} if self.inputs_embeds is None else {"inputs_embeds": self.inputs_embeds}
        words = {} if self.word_mask is None else {"word_mask": self.word_mask}
        return {**tokens, "attention_mask": self.attention_mask.long(), "token_type_ids": self.token_type_ids, **words}

    def words(self, row: int, places: list[int]) -> set[tuple[int, int]]:
        """Start and length of the words in the text of that row whose tokens are in the columns `places`."""
        if self.word_mask is not None:
            lengths = range(2, self.word_mask.shape[2] + 1)
            return {
                (start, length)
                for start, place in enumerate(places)
                for length in lengths
                if self.word_mask[row, place, length - 1]
            }
        if self.find_words is None or self.inputs_embeds is not None:
            return set()
        return self.find_words(self.input_ids[row, places].tolist())


def random_batch(mask: Tensor, seed: int = 0, width: int | None = None, dtype: torch.dtype = torch.float32) -> Batch:
    """Random ids and types for `mask` (`[b, n]`); with `width`, random vectors that take part in autograd."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(TINY["vocab_size"], mask.shape, generator=generator)
    types = torch.randint(2, mask.shape, generator=generator)
    embeds = None
    if width is not None:
        embeds = torch.randn(*mask.shape, width, generator=generator).to(dtype).requires_grad_()
    return Batch(mask.bool(), ids, types, embeds)


def padded(lengths: list[int], columns: int, kind: str) -> Tensor:
    """A mask `[b, columns]` with `lengths` real tokens a row, and padding to the "right", the "left" or in "holes"."""
    mask = torch.zeros(len(lengths), columns, dtype=torch.bool)
    for row, length in enumerate(lengths):
        if kind == "right":
            mask[row, :length] = True
        elif kind == "left":
            mask[row, columns - length :] = True
        else:
            generator = torch.Generator().manual_seed(row)
            mask[row, torch.randperm(columns, generator=generator)[:length]] = True
    return mask


@st.composite
def masks(draw: st.DrawFn, max_rows: int = 3, max_columns: int = 5) -> Tensor:
    """Masks `[b, n]` with right, left or scattered padding; any row may be all padding."""
    b, n = draw(st.integers(1, max_rows)), draw(st.integers(1, max_columns))
    kind = draw(st.sampled_from(["right", "left", "scattered"]))
    if kind == "scattered":
        return torch.tensor(draw(st.lists(st.lists(st.booleans(), min_size=n, max_size=n), min_size=b, max_size=b)))
    return padded(draw(st.lists(st.integers(0, n), min_size=b, max_size=b)), n, kind)


# ------ the reference on a batch


def parameters_of(model: torch.nn.Module) -> dict[str, Tensor]:
    """The model's weights as leaves of their own, in float64, for the reference to differentiate."""
    return {name: p.detach().double().requires_grad_() for name, p in model.named_parameters()}


def reference_outputs(
    model: PreTrainedModel, parameters: dict[str, Tensor], batch: Batch, embeds: Tensor | None, recorded: bool
) -> dict[str, Tensor]:
    """
    What `model` must return for `batch`, computed by tests/reference.py one row and one text of a pair at a time.

    Args:
        model: a bare encoder or a head; only its class and configuration are looked at.
        parameters: as `parameters_of` gives them.
        embeds: `[b, n, w]` in place of the ids.
        recorded: with hidden states and attentions.

    Returns:
        The outputs by the names that `named_outputs` gives them.
    """
    config = model.config
    ending = next(ending for ending in reversed(EVERY_MODEL) if type(model).__name__.endswith(ending))
    inner = parameters if ending == "Model" else reference.under(parameters, "model")
    with_pooler = ending in ("Model", "ForSequenceClassification")
    rows = []
    for row, mask in enumerate(batch.attention_mask):
        types = batch.token_type_ids[row]
        texts = [mask & (types == 0), mask & (types == 1)] if config.pair_mode == "siamese" else [mask]
        encoded = []
        for text in texts:
            places = text.nonzero().flatten().tolist()
            tokens = [int(batch.input_ids[row, i]) if embeds is None else embeds[row, i] for i in places]
            e = reference.embed(reference.under(inner, "embeddings"), config, tokens, types[places].tolist())
            encoder = reference.ENCODERS[config.model_type]
            words = {"words": batch.words(row, places)} if config.model_type == "big_transformer" else {}
            encoded.append((places, encoder(inner, config, e, with_pooler, **words) if places else None))
        rows.append(_row_outputs(parameters, config, ending, encoded, len(mask), recorded))
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def _row_outputs(
    parameters: dict[str, Tensor],
    config: Any,
    ending: str,
    encoded: list[tuple[list[int], reference.Encoded | None]],
    n: int,
    recorded: bool,
) -> dict[str, Tensor]:
    """The outputs of one row of `n` columns from its one or two texts: their places and what was made of them."""
    d, h, steps = config.hidden_size, config.num_attention_heads, config.num_hidden_layers
    radial = getattr(config, "use_radial", False)

    def columns(vectors_of: Callable[[reference.Encoded], list[Tensor]], *shape: int) -> Tensor:
        """The tokens' vectors in their columns, zeros elsewhere: `[n, *shape]`."""
        out = [torch.zeros(shape, dtype=torch.float64) for _ in range(n)]
        for places, text in encoded:
            for place, vector in zip(places, vectors_of(text) if text else [], strict=True):
                out[place] = vector
        return torch.stack(out)

    def per_text(tensor_of: Callable[[reference.Encoded, list[int]], Tensor], *shape: int) -> Tensor:
        """One tensor for a row, two for a pair; zeros for an empty text."""
        zeros = torch.zeros(shape, dtype=torch.float64)
        out = [zeros if text is None else tensor_of(text, places) for places, text in encoded]
        return torch.stack(out) if config.pair_mode == "siamese" else out[0]

    tokens = columns(lambda text: text.tokens, d)
    pooled = None
    if ending in ("Model", "ForSequenceClassification"):
        pooled = per_text(lambda text, _: text.pooled, d)
    outputs = {}
    if ending == "Model":
        outputs |= {"last_hidden_state": tokens, "pooler_output": pooled}
        if radial:
            outputs["relay_state"] = per_text(lambda text, _: text.relay, d)
    elif ending == "ForSequenceClassification":
        features = reference.pair_features(*pooled) if config.pair_mode == "siamese" else pooled
        outputs["logits"] = reference.classify(parameters, config, features)
    elif ending == "ForQuestionAnswering":
        real = {place for places, _ in encoded for place in places}
        nothing = torch.zeros(2, dtype=torch.float64)
        scores = torch.stack(
            [reference.span(parameters, config, x) if i in real else nothing for i, x in enumerate(tokens)]
        )
        outputs |= {"start_logits": scores[:, 0], "end_logits": scores[:, 1]}
    else:
        head = reference.tag if ending == "ForTokenClassification" else reference.masked_lm
        outputs["logits"] = torch.stack([head(parameters, config, token) for token in tokens])
    if not recorded:
        return outputs
    for t in range(steps + 1):
        outputs[f"hidden_states.{t}"] = columns(lambda text, t=t: text.hidden_states[t], d)
    for t in range(0 if config.model_type == "bilstm" else steps):
        if config.model_type in ("vanilla_transformer", "disan"):
            # A token's weights over its text go to that text's columns.
            heads = 2 if config.model_type == "disan" else h
            weights = torch.zeros(heads, n, n, dtype=torch.float64)
            for places, text in encoded:
                for place, of_token in zip(places, text.attentions[t] if text else [], strict=True):
                    weights = weights.index_put(
                        (torch.arange(heads)[:, None], torch.tensor(place), torch.tensor(places)), of_token
                    )
        else:
            roles = len(config.candidate_roles)
            weights = columns(lambda text, t=t: text.attentions[t], h, roles).transpose(0, 1)
        outputs[f"attentions.{t}"] = weights
    if ending == "Model" and (radial or getattr(config, "global_node", None) == "first"):
        before = [0] if radial else []  # a relay attends to itself too
        for t in range(steps):

            def over_columns(text: reference.Encoded, places: list[int], t: int = t) -> Tensor:
                weights = torch.zeros(h, len(before) + n, dtype=torch.float64)
                columns = torch.tensor([*before, *(len(before) + i for i in places)])
                return weights.index_copy(1, columns, text.relay_attentions[t])

            outputs[f"relay_attentions.{t}"] = per_text(over_columns, h, len(before) + n)
    return outputs


# ------ outputs, gradients, differences


class Adapter(nn.Module):
    """What LoRA puts in a layer's place: it tells the layer's weight and bias, and computes something else."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer
        self.scale = nn.Parameter(torch.tensor(3.0))
        self.is_on = True

    @property
    def weight(self) -> Tensor:
        return self.layer.weight

    @property
    def bias(self) -> Tensor:
        return self.layer.bias

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * self.layer(x) if self.is_on else self.layer(x)


class LinearAdapter(nn.Linear):
    """As `Adapter`, itself a linear layer, as some libraries write theirs."""

    def __init__(self, layer: nn.Linear):
        super().__init__(layer.in_features, layer.out_features, layer.bias is not None, dtype=layer.weight.dtype)
        self.scale = nn.Parameter(torch.tensor(3.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * super().forward(x)


def given_projections(leaves: dict[str, Tensor]) -> Any:
    """Projections as relay_attention uses them, the query already projected."""
    h, c, _ = leaves["key"].shape
    given = SimpleNamespace(
        num_heads=h,
        head_dim=c,
        scale=c**-0.5,
        query=lambda relay: leaves["query"].flatten(1),
        split=lambda projected: projected.unflatten(-1, (h, c)),
        plain=lambda name: SimpleNamespace(
            weight=leaves[name].flatten(0, 1), bias=leaves.get(f"{name}_bias", torch.zeros(0)).flatten()
        ),
    )
    given.add_value_bias = partial(AttentionProjections.add_value_bias, given)
    return given


def linear_layers(model: nn.Module) -> list[nn.Linear]:
    return [layer for layer in model.modules() if isinstance(layer, nn.Linear)]


def named_outputs(output: Any) -> dict[str, Tensor]:
    """The tensors of a model's output by name; those in tuples as `hidden_states.0`, `hidden_states.1`, ..."""
    named = {}
    for name, value in output.items():
        named |= {f"{name}.{i}": x for i, x in enumerate(value)} if isinstance(value, tuple) else {name: value}
    return named


def weighted_sum(outputs: dict[str, Tensor], seed: int = 0) -> Tensor:
    """A random weighted sum of all `outputs`, the same weights for the same names and shapes."""
    generator = torch.Generator().manual_seed(seed)
    sums = []
    for name in sorted(outputs):
        weight = torch.randn(outputs[name].shape, generator=generator)
        sums.append((outputs[name] * weight.to(outputs[name].dtype)).sum())
    return torch.stack(sums).sum()


def gradients(outputs: dict[str, Tensor], leaves: dict[str, Tensor], seed: int = 0) -> dict[str, Tensor]:
    """Gradients of `weighted_sum(outputs)`, zeros where a leaf has no part in it."""
    found = torch.autograd.grad(
        weighted_sum(outputs, seed), list(leaves.values()), allow_unused=True, retain_graph=True
    )
    return {
        name: torch.zeros_like(leaf) if gradient is None else gradient
        for (name, leaf), gradient in zip(leaves.items(), found, strict=True)
    }


def trained_by(model: torch.nn.Module, inputs: dict[str, Tensor]) -> set[str]:
    """The parameters that the loss of some inputs gives a gradient other than 0."""
    model.zero_grad()
    model(**inputs).loss.backward()
    return {name for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}


def difference(actual: Tensor, expected: Tensor, scale: float | None = None) -> float:
    """Largest difference, relative to `scale`, or else to the largest expected number; to 1 where that is less."""
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    if not expected.numel():
        return 0.0
    expected = expected.detach().double()
    scale = float(expected.abs().max()) if scale is None else scale
    return float((actual.detach().double() - expected).abs().max()) / max(scale, 1.0)


def assert_same_without_rows(model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Outputs and gradients of a model in float64 are the same by `sparse_attention` and by the reference, which the
    tests after this call use.
    """
    batch = random_batch(padded([5, 0, 1, 9], 9, "holes"), dtype=torch.float64)
    leaves = dict(model.named_parameters())
    outputs = named_outputs(model(**batch.inputs()))
    with torch.no_grad():
        assert_close(named_outputs(model(**batch.inputs())), outputs, 1e-10)
    monkeypatch.setattr(ops, "rows_apply", lambda states: False)
    expected = named_outputs(model(**batch.inputs()))
    assert_close(outputs, expected, 1e-10)
    assert_gradients_close(gradients(outputs, leaves), gradients(expected, leaves), 1e-10)


def assert_close(
    actual: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float, scale: float | None = None
) -> None:
    """The same names, and each tensor within `tolerance`."""
    assert actual.keys() == expected.keys(), set(actual) ^ set(expected)
    differences = {name: difference(actual[name], expected[name], scale) for name in expected}
    # Not `value > tolerance`: a NaN is wrong.
    wrong = {name: value for name, value in differences.items() if not value <= tolerance}
    assert not wrong, wrong


def assert_gradients_close(actual: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    """As `assert_close`, relative to the largest gradient of all: small ones are differences of large ones."""
    assert_close(actual, expected, tolerance, max(float(x.abs().max()) for x in expected.values() if x.numel()))


def assert_equals_reference(
    model: PreTrainedModel, batch: Batch, tolerance: float, recorded: bool = False, seed: int = 0
) -> None:
    """Values, and gradients of every parameter and of the input vectors, are those of tests/reference.py."""
    output = model(**batch.inputs(), output_hidden_states=recorded, output_attentions=recorded)
    outputs = named_outputs(output)
    for name in outputs.keys() & {"start_logits", "end_logits"}:
        # The logits of padding are so large that no difference elsewhere would count beside them.
        padding = ~batch.attention_mask.bool()
        assert (outputs[name][padding] == NO_SPAN).all()
        outputs[name] = outputs[name].masked_fill(padding, 0)
    leaves = dict(model.named_parameters())
    parameters = parameters_of(model)
    embeds = None
    reference_leaves = dict(parameters)
    if batch.inputs_embeds is not None:
        embeds = batch.inputs_embeds.detach().double().requires_grad_()
        leaves["inputs_embeds"], reference_leaves["inputs_embeds"] = batch.inputs_embeds, embeds
    expected = reference_outputs(model, parameters, batch, embeds, recorded)
    assert_close(outputs, expected, tolerance)
    if any(output.requires_grad for output in expected.values()):
        found, wanted = gradients(outputs, leaves, seed), gradients(expected, reference_leaves, seed)
        assert_gradients_close(found, wanted, tolerance)


# ------ labels


def labels_of(ending: str, batch: Batch, num_labels: int = 3) -> dict[str, Tensor]:
    """Labels that a head of that name takes for `batch`; padding carries none."""
    b, n = batch.shape
    generator = torch.Generator().manual_seed(1)
    if ending == "ForSequenceClassification":
        return {"labels": torch.randint(num_labels, (b,), generator=generator)}
    if ending == "ForQuestionAnswering":
        return {name: torch.randint(n, (b,), generator=generator) for name in ("start_positions", "end_positions")}
    count = num_labels if ending == "ForTokenClassification" else TINY["vocab_size"]
    return {"labels": torch.randint(count, (b, n), generator=generator).masked_fill(~batch.attention_mask, -100)}
