"""Compiled copies against tests/reference.py and PyTorch, what they refuse, and how their library is built."""

import contextlib
import copy
import functools
import os
import pickle
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from common import (
    assert_close,
    examples,
    named_outputs,
    padded,
    parameters_of,
    random_batch,
    reference_outputs,
    tiny_model,
)
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune
from transformers import PreTrainedModel, Trainer, TrainingArguments

from modeling_star import StarTransformerConfig, StarTransformerModel, compiled, describe
from modeling_star.errors import UserError
from modeling_star.kernels import cpu
from modeling_star.kernels.compiled import is_compiled
from modeling_star.models.attention import UpdateLayerNorm
from modeling_star.models.modeling_star import StarTransformerLayer


WINDOW = {"local_connection": "window", "global_node": "first"}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "Star": ("StarTransformer", {}),
    "Star-plus": ("StarTransformer", {"position_embedding_type": "ring", "residual": True}),
    "Star-plus-2": ("StarTransformer", {"residual": True, "embedding_norm": True, "relay_start_norm": True}),
    "Star, three neighbours": ("StarTransformer", {"ring_radius": 3, "position_embedding_type": "ring"}),
    "Star without ring": ("StarTransformer", {"use_ring": False}),
    "Star without relay": ("StarTransformer", {"use_radial": False}),
    "Star, gelu": ("StarTransformer", {"hidden_act": "gelu"}),
    "Star, other head width": ("StarTransformer", {"num_attention_heads": 3, "head_dim": 5}),
    "BiG": ("BigTransformer", {**WINDOW, "hidden_act": "gelu"}),
    "BiG, wide": ("BigTransformer", {**WINDOW, "hidden_act": "gelu", "window_radius": 40}),
    "BiG, wide, first token alone": ("BigTransformer", {**WINDOW, "pooling": "global", "window_radius": 17}),
    "BiG, first token alone": ("BigTransformer", {**WINDOW, "pooling": "global", "window_radius": 2}),
}
any_model = pytest.mark.parametrize("name", MODELS)


@pytest.fixture(scope="session")
def library_of() -> Callable[[str], Any]:
    """Loads the library of a level; skips where this machine cannot build or run it."""

    def load(level: str) -> Any:
        if not cpu.LEVELS[level][1] <= cpu._processor_flags():
            pytest.skip(f"this processor lacks the instructions of {level}")
        try:
            return cpu._load(level, cpu.build(level))
        except cpu.UnavailableError as error:
            pytest.skip(str(error))

    return load


@pytest.fixture
def fast(library_of: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., PreTrainedModel]:
    """As `compiled`, where that compiles the layers."""
    library_of(cpu.level())
    monkeypatch.setenv(cpu.VARIABLE, "1")

    def make(model: PreTrainedModel, dtype: Any = None) -> PreTrainedModel:
        made = compiled(model, dtype)
        assert is_compiled(made), describe(made)
        return made

    return make


def model_of(name: str, **options: Any) -> PreTrainedModel:
    stem, fields = MODELS[name]
    return tiny_model(stem, **{**fields, **options}).eval()


@torch.no_grad()
def outputs_of(model: PreTrainedModel, inputs: dict[str, Any]) -> dict[str, Tensor]:
    return named_outputs(model(**inputs))


@torch.no_grad()
def reference_of(model: PreTrainedModel, batch: Any) -> dict[str, Tensor]:
    return reference_outputs(model, parameters_of(model), batch, None, False)


def few() -> dict[str, Tensor]:
    return random_batch(padded([5, 3], 5, "right")).inputs()


# ------ results


@any_model
@pytest.mark.parametrize("padding", ["right", "left", "holes"])
def test_states_are_those_of_the_reference(name: str, padding: str, fast: Callable[..., PreTrainedModel]) -> None:
    model, batch = model_of(name), random_batch(padded([5, 1, 9, 12], 12, padding))
    assert_close(outputs_of(fast(model), batch.inputs()), reference_of(model, batch), 1e-5)


@any_model
def test_states_are_those_of_pytorch_with_empty_rows(name: str, fast: Callable[..., PreTrainedModel]) -> None:
    model = model_of(name)
    made = fast(model)
    for lengths in ([0, 3, 0, 7, 0], [0, 0]):
        inputs = random_batch(padded(lengths, 7, "holes")).inputs()
        assert_close(outputs_of(made, inputs), outputs_of(model, inputs), 1e-5)


@pytest.mark.parametrize(
    ("name", "pooling"),
    [
        *(("Star-plus", "max"), ("Star-plus", "mean"), ("Star without relay", "mean")),
        *(("BiG", "max"), ("BiG", "mean"), ("BiG", "global")),
    ],
)
def test_vectors_of_texts_are_those_of_the_reference_with_states_and_without(
    name: str, pooling: str, fast: Callable[..., PreTrainedModel]
) -> None:
    model = model_of(name, pooling=pooling)
    batch = random_batch(padded([0, 3, 0, 7, 16, 0], 16, "holes"))
    made, expected = fast(model), reference_of(model, batch)
    assert_close(outputs_of(made, batch.inputs()), expected, 1e-5)
    del expected["last_hidden_state"]
    assert_close(outputs_of(made, {**batch.inputs(), "output_token_states": False}), expected, 1e-5)


@pytest.mark.parametrize("level", cpu.LEVELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.slow
def test_every_set_of_instructions_computes_the_same(
    level: str,
    dtype: torch.dtype,
    library_of: Callable[[str], Any],
    fast: Callable[..., PreTrainedModel],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = library_of(level)
    monkeypatch.setattr(cpu, "library", lambda: (library, level))
    for name in MODELS:
        for lengths in ([1], [3, 40], [200, 0, 1, 33]):
            check_shape(fast, name, lengths, dtype, hidden_size=72, num_attention_heads=4)


def check_shape(
    compiled: Callable[..., PreTrainedModel],
    name: str,
    lengths: list[int],
    dtype: torch.dtype,
    padding: str = "holes",
    float32_weights: bool = False,
    with_reference: bool = False,
    **options: Any,
) -> None:
    """
    As PyTorch; in bfloat16 no further from float32 than twice PyTorch's own distance.

    Args:
        compiled: makes the copy.
        name: of `MODELS`.
        lengths: of the rows of a batch, which are empty where it is 0.
        dtype: of the layers.
        padding: where it is, see `padded`.
        float32_weights: only the layers compute in bfloat16.
        with_reference: as tests/reference.py in place of PyTorch.
        options: of the model.
    """
    options = {"max_position_embeddings": max(16, *lengths), **options}
    if "head_dim" in MODELS[name][1]:
        del options["num_attention_heads"]
    if MODELS[name][0] == "StarTransformer":
        options.pop("window_radius", None)
    batch = random_batch(padded(lengths, max(*lengths, 1), padding))
    inputs = batch.inputs()
    exact = model_of(name, **options)
    expected = reference_of(exact, batch) if with_reference else outputs_of(exact, inputs)
    if dtype == torch.float32:
        assert_close(outputs_of(compiled(exact), inputs), expected, 2e-5)
        return
    half = model_of(name, **options).to(dtype)
    made = compiled(exact, "bfloat16") if float32_weights else compiled(half)
    own, other = outputs_of(made, inputs), outputs_of(half, inputs)
    for key, tensor in expected.items():
        if tensor.numel():
            scale = float(tensor.abs().mean())
            error, allowed = (float((x[key].float() - tensor).abs().mean()) for x in (own, other))
            assert error <= 2 * allowed + 0.005 * scale, (key, error, allowed)


@pytest.mark.parametrize("length", [1, 2, 31, 32, 33, 127, 128, 129, 255, 256, 257, 1000, 4096])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_lengths_around_the_sizes_of_blocks(
    length: int, dtype: torch.dtype, fast: Callable[..., PreTrainedModel]
) -> None:
    for name in ("Star-plus", "BiG", "BiG, wide"):
        check_shape(fast, name, [length], dtype)


SHAPE: dict[str, st.SearchStrategy] = {
    "name": st.sampled_from(sorted(MODELS)),
    "lengths": st.lists(st.integers(0, 70), min_size=1, max_size=40).filter(any),
    "dtype": st.sampled_from([torch.float32, torch.bfloat16]),
    "num_attention_heads": st.sampled_from([1, 2, 4, 8]),
    "hidden_size": st.sampled_from([8, 24, 64, 104, 192]),
    "num_hidden_layers": st.integers(1, 3),
    "window_radius": st.sampled_from([1, 4, 16, 17, 33, 64, 128, 500]),
    "hidden_act": st.sampled_from(["relu", "gelu"]),
}


def test_random_shapes(fast: Callable[..., PreTrainedModel]) -> None:
    @given(shape=st.fixed_dictionaries(SHAPE))
    @examples(40)
    def check(shape: dict[str, Any]) -> None:
        check_shape(compiled, **shape)  # heads wider than 16 vectors have no code

    check()


@pytest.mark.slow
def test_a_thousand_random_shapes_are_those_of_the_reference(
    library_of: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every set of instructions, of 1 to 4,096 tokens, most of them short, on 1, 2 and 8 threads."""
    levels = [name for name, (_, flags) in cpu.LEVELS.items() if flags <= cpu._processor_flags()]
    chosen: list[Any] = []
    monkeypatch.setattr(cpu, "library", lambda: chosen[-1])
    long = st.floats(0, 12).map(lambda exponent: round(2**exponent))
    lengths = st.tuples(long, st.lists(st.integers(0, 40), max_size=6)).flatmap(
        lambda x: st.permutations([x[0], *x[1]])
    )
    more = {
        "lengths": lengths,
        "padding": st.sampled_from(["right", "left", "holes"]),
        "float32_weights": st.booleans(),
    }
    made: list[bool] = []

    def counted(*arguments: Any) -> PreTrainedModel:
        model = compiled(*arguments)
        made.append(is_compiled(model))
        return model

    @given(
        shape=st.fixed_dictionaries({**SHAPE, **more}),
        level=st.sampled_from(levels),
        threads=st.sampled_from([1, 2, 8]),
    )
    @examples(1000)
    def check(shape: dict[str, Any], level: str, threads: int) -> None:
        chosen.append((library_of(level), level))
        torch.set_num_threads(threads)
        check_shape(counted, **shape, with_reference=True)

    before = torch.get_num_threads()
    try:
        check()
    finally:
        torch.set_num_threads(before)
    assert {level for _, level in chosen} == set(levels)
    assert sum(made) > 900  # without code are heads wider than 16 vectors


@any_model
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_threads_and_other_texts_of_a_batch_change_no_bit(
    name: str, dtype: torch.dtype, fast: Callable[..., PreTrainedModel]
) -> None:
    made = fast(model_of(name, max_position_embeddings=700).to(dtype))
    mask = padded([650, 3, 129, 0, 40, 7], 650, "right")
    inputs = random_batch(mask).inputs()
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 8):
            torch.set_num_threads(count)
            outputs = outputs_of(made, inputs)
            if count == 1:
                expected = outputs
            for key, tensor in outputs.items():
                assert torch.equal(tensor, expected[key]), (key, count)
    finally:
        torch.set_num_threads(threads)
    for row, length in enumerate(mask.sum(1).tolist()):
        if length:
            alone = outputs_of(made, {key: x[row : row + 1, :length] for key, x in inputs.items()})
            states = alone["last_hidden_state"]
            assert torch.equal(states[0], expected["last_hidden_state"][row, :length]), row


def test_groups_of_texts_that_pass_the_layers_one_after_another(fast: Callable[..., PreTrainedModel]) -> None:
    inputs = random_batch(padded([700, 900] * 5, 900, "right")).inputs()
    for name in ("Star-plus-2", "BiG", "BiG, wide", "BiG, first token alone"):
        model = model_of(name, max_position_embeddings=900)
        assert_close(outputs_of(fast(model), inputs), outputs_of(model, inputs), 2e-5)


@any_model
def test_float32_weights_may_compute_in_bfloat16(name: str, fast: Callable[..., PreTrainedModel]) -> None:
    """As a model in bfloat16 does, but for its embeddings."""
    model, inputs = model_of(name), random_batch(padded([5, 1, 12], 12, "right")).inputs()
    exact, made = outputs_of(fast(model), inputs), fast(model, "bfloat16")
    low = outputs_of(made, inputs)
    assert_close(low, exact, 0.1)
    assert all(tensor.dtype == torch.float32 for tensor in low.values())
    assert torch.equal(low["last_hidden_state"], exact["last_hidden_state"]) == (cpu.level() not in cpu.WITH_BFLOAT16)
    assert ("bfloat16 in the layers" in describe(made)) == (cpu.level() in cpu.WITH_BFLOAT16)


# ------ what a copy is

PLAIN = """
import sys, torch
if "without" in sys.argv: sys.modules["modeling_star.kernels"] = None
from modeling_star import BigTransformerConfig, BigTransformerModel, StarTransformerConfig, StarTransformerModel
sizes = {"vocab_size": 9, "hidden_size": 8, "num_attention_heads": 2}
big = BigTransformerConfig(**sizes, local_connection="window", global_node="first")
torch.manual_seed(0)
for model in StarTransformerModel(StarTransformerConfig(**sizes)), BigTransformerModel(big):
    with torch.inference_mode():
        print(model.eval()(torch.tensor([[5, 6, 7]])).pooler_output.tolist())
"""


def test_a_model_that_is_not_compiled_computes_the_same_bits_with_and_without_compiled_code() -> None:
    printed = {
        subprocess.run(
            [sys.executable, "-c", PLAIN, where],
            env={**os.environ, cpu.VARIABLE: setting},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for where, setting in (("with", "auto"), ("without", "0"))
    }
    assert len(printed) == 1


@pytest.mark.parametrize("name", ["Star-plus", "BiG"])
def test_a_copy_does_not_follow_its_model_and_holds_no_layers(name: str, fast: Callable[..., PreTrainedModel]) -> None:
    model, inputs = model_of(name), few()
    expected, bare = outputs_of(made := fast(model), inputs), outputs_of(model, inputs)
    assert_close(outputs_of(model, inputs), bare, 0)
    assert sum(x.numel() for x in made.parameters()) == sum(x.numel() for x in model.embeddings.parameters())
    for parameter in model.parameters():
        parameter.data *= 2
    for each in (made, copy.deepcopy(made), compiled(made)):
        assert_close(outputs_of(each, inputs), expected, 0)


REFUSED: dict[str, Callable[[PreTrainedModel, dict[str, Any]], Any]] = {
    "training mode": lambda model, inputs: model.train(),
    "hidden states": lambda model, inputs: model(**inputs, output_hidden_states=True),
    "attentions": lambda model, inputs: model(**inputs, output_attentions=True),
    "gradients": lambda model, inputs: model(inputs_embeds=torch.zeros(1, 3, 8, requires_grad=True)),
    "words": lambda model, inputs: model(**inputs, word_mask=torch.zeros(2, 5, 4)),
    "save": lambda model, inputs: model.state_dict(),
    "load": lambda model, inputs: model.load_state_dict({}, strict=False),
    "pickle": lambda model, inputs: pickle.dumps(model),
    "traced graph": lambda model, inputs: torch.export.export(model, (inputs["input_ids"],), strict=False),
    "compiled for torch.float32": lambda model, inputs: model.bfloat16()(**inputs),
    "configuration was changed": lambda model, inputs: (
        setattr(model.config, "num_hidden_layers", 1) or model(**inputs)
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_copy_refuses_what_only_the_model_can_do(what: str, fast: Callable[..., PreTrainedModel]) -> None:
    made = fast(model_of("BiG"))
    with pytest.raises(UserError, match=what):
        REFUSED[what](made, few())


def test_autocast_and_a_caught_error_of_training_mode_are_refused_too(fast: Callable[..., PreTrainedModel]) -> None:
    made = fast(model_of("Star-plus"))
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(UserError, match="autocast"):
        made(**few())
    for _ in range(2):
        with pytest.raises(UserError, match="training mode"):
            made.train()
        with pytest.raises(UserError, match="training mode"):
            made(**few())
    made.eval()(**few())


def test_trainers_and_pipelines_take_a_copy(fast: Callable[..., PreTrainedModel], tmp_path: Path) -> None:
    model = tiny_model("StarTransformer", "ForSequenceClassification").train()
    rows = [{**{key: x[0] for key, x in few().items()}, "labels": torch.tensor(1)}] * 4
    arguments = TrainingArguments(str(tmp_path), report_to=[], use_cpu=True, disable_tqdm=True)
    losses = [Trainer(each, arguments, eval_dataset=rows).evaluate()["eval_loss"] for each in (model, fast(model))]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


# ------ what is compiled


class Scaled(nn.Linear):
    """A layer that computes something else than its class."""

    def forward(self, states: Tensor) -> Tensor:
        return 2 * super().forward(states)


class Doubled(nn.Module):
    """A parametrization."""

    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight


def _module(rng: random.Random, model: PreTrainedModel, *kinds: type) -> Any:
    found = [module for module in model.layers.modules() if isinstance(module, kinds or nn.Module)]
    return rng.choice(found)


def _owner(rng: random.Random, model: PreTrainedModel, large: bool = False) -> tuple[Any, str, nn.Parameter]:
    """A module of a layer, and the name of one of its parameters."""
    found = [
        (module, name, parameter)
        for module in model.layers.modules()
        for name, parameter in module.named_parameters(recurse=False)
        if not large or parameter.dim() > 1
    ]
    return rng.choice(found)


def _replace(rng: random.Random, model: PreTrainedModel) -> None:
    """Another class in place of a part."""
    parts = [(parent, name) for parent in model.layers.modules() for name, _ in parent.named_children()]
    parent, name = rng.choice(parts)
    old = getattr(parent, name)
    new: Any = nn.Identity()
    if isinstance(old, nn.Linear):
        kind = rng.choice([Scaled, nn.Linear])
        new = kind(old.in_features, old.out_features, bias=rng.random() < 0.7)
    elif isinstance(old, nn.LayerNorm):
        shape, options = old.normalized_shape, {"eps": rng.choice([1e-12, 1e-5, 0.1])}
        new = rng.choice([nn.LayerNorm(shape, **options), UpdateLayerNorm(shape, **options, bias=rng.random() < 0.5)])
    elif isinstance(old, nn.ReLU) or name == "activation":
        new = rng.choice([nn.ReLU(), nn.Tanh(), nn.GELU()])
    setattr(parent, name, rng.choice([new, new.eval(), None]))


def _set_attribute(rng: random.Random, model: PreTrainedModel) -> None:
    names = ("eps", "scale", "residual", "reach", "num_heads", "head_dim", "padding", "node_is_first", "p")
    found = [(module, name) for module in model.layers.modules() for name in names if hasattr(module, name)]
    module, name = rng.choice(found)
    value = getattr(module, name)
    new = not value if isinstance(value, bool) else type(value)(rng.choice([0.5 * value, value + 1, value]))
    every = rng.random() < 0.4
    for each in model.layers.modules() if every else [module]:
        if type(each) is type(module):
            setattr(each, name, new)


def _set_configuration(rng: random.Random, model: PreTrainedModel) -> None:
    changes = {
        "num_hidden_layers": [1, 2, 3, 5],
        "layer_norm_eps": [1e-3],
        "hidden_act": ["relu", "gelu", "silu"],
        "pooling": ["max", "mean", "global"],
        "window_radius": [1, 20],
        "ring_radius": [2],
        "use_radial": [False, True],
        "num_attention_heads": [1, 4],
        "global_node": ["first", "mean"],
        "residual": [False, True],
        "hidden_size": [16],
    }
    name = rng.choice([name for name in changes if hasattr(model.config, name)])
    vars(model.config)[name] = rng.choice(changes[name])


def _add_hook(rng: random.Random, model: PreTrainedModel) -> None:
    module = _module(rng, model)
    match rng.randrange(4):
        case 0:
            module.register_forward_hook(
                lambda _, __, output: (output[0] * 2, *output[1:]) if type(output) is tuple else output * 2
            )
        case 1:
            module.register_forward_pre_hook(
                lambda _, given: (given[0] * 2, *given[1:]) if isinstance(given[0], Tensor) else None
            )
        case 2:
            module.forward = functools.partial(
                lambda forward, *given, **named: forward(*given, **named), module.forward
            )
        case 3:
            module._update = lambda state, update, norm=None: state


def _parametrize(rng: random.Random, model: PreTrainedModel) -> None:
    linear = _module(rng, model, nn.Linear)
    match rng.randrange(4):
        case 0:
            parametrize.register_parametrization(linear, "weight", Doubled())
        case 1:
            parametrizations.weight_norm(linear)
        case 2:
            prune.random_unstructured(linear, "weight", 0.5)
        case 3:
            nn.utils.weight_norm(linear)


def _reshape(rng: random.Random, model: PreTrainedModel) -> None:
    module, name, parameter = _owner(rng, model)
    other = rng.choice(
        [
            parameter.detach().repeat(2, *[1] * (parameter.dim() - 1)),
            parameter.detach().flatten(),
            parameter.detach().movedim(-1, 0).contiguous().movedim(0, -1),
            parameter.detach()[..., :-1],
            parameter.detach()[:1].expand(parameter.shape),
            parameter.detach().to(rng.choice([torch.float64, torch.bfloat16])),
        ]
    )
    setattr(module, name, nn.Parameter(other, requires_grad=False))


def _change_number(rng: random.Random, model: PreTrainedModel) -> None:
    """In each way that weights are edited."""
    _, _, parameter = _owner(rng, model)
    columns = slice(None) if parameter.dim() == 1 else (slice(None), slice(rng.randrange(parameter.shape[-1]), None))
    match rng.randrange(5):
        case 0:
            parameter.data[columns] *= 3
        case 1:
            parameter.detach().numpy()[columns] = 0.5
        case 2:
            parameter.data = torch.randn_like(parameter)
        case 3:
            parameter.grad = torch.ones_like(parameter)
            torch.optim.SGD([parameter], 0.3).step()
        case 4:
            with torch.inference_mode():
                parameter[columns] = 0.25


def _move_layers(rng: random.Random, model: PreTrainedModel) -> None:
    layers = model.layers
    match rng.randrange(5):
        case 0:
            layers.append(copy.deepcopy(layers[0]))
        case 1:
            del layers[-1]
        case 2:
            layers[0], layers[-1] = layers[-1], layers[0]
        case 3:
            model.layers = nn.ModuleList([layers[0], layers[0], *layers[2:]])
        case 4:
            model.layers = nn.Sequential(*layers)


def _remove(rng: random.Random, model: PreTrainedModel) -> None:
    module, name, _ = _owner(rng, model)
    setattr(module, name, None)


def _add(rng: random.Random, model: PreTrainedModel) -> None:
    match rng.randrange(5):
        case 0:
            linear = _module(rng, model, nn.Linear)
            linear.bias = nn.Parameter(torch.randn(linear.out_features))
        case 1:
            norm = _module(rng, model, nn.LayerNorm)
            norm.bias = norm.weight
        case 2:
            _module(rng, model).register_buffer("extra", torch.ones(1))
        case 3:
            _module(rng, model).extra = nn.Linear(2, 2)
        case 4:
            model.relay_norm = model.global_pooling = nn.Linear(model.config.hidden_size, model.config.hidden_size)


def _train(rng: random.Random, model: PreTrainedModel) -> None:
    _module(rng, model).train()


MUTATIONS = (
    *(_replace, _set_attribute, _set_configuration, _add_hook, _parametrize, _reshape, _change_number, _change_number),
    *(_move_layers, _remove, _add, _train),
)


def test_mutated_modules_are_computed_as_pytorch_does_or_refused(
    fast: Callable[..., PreTrainedModel],
) -> None:
    """`SEED=7 CASES=1000 pytest ... -k mutated` runs others."""
    seed, cases, seen = int(os.environ.get("SEED", "0")), int(os.environ.get("CASES", "60")), {True: 0, False: 0}
    inputs = random_batch(padded([5, 0, 9, 3], 9, "holes")).inputs()
    for case in range(cases):
        rng = random.Random(f"{seed} {case}")
        torch.manual_seed(case)
        made_in_inference = rng.random() < 0.2
        with torch.inference_mode(made_in_inference):
            model = model_of(rng.choice([*MODELS]), num_hidden_layers=rng.choice([2, 3]))
            names = []
            for mutate in rng.choices(MUTATIONS, k=rng.choice([1, 1, 2])):
                names.append(mutate.__name__)
                with contextlib.suppress(RuntimeError, AttributeError, TypeError, IndexError, ValueError, KeyError):
                    mutate(rng, model)  # fails for two parametrizations of one weight, for example
        try:
            torch.manual_seed(1)
            expected = outputs_of(model, inputs)
        except Exception:
            expected = None  # PyTorch cannot compute it
        try:
            made = compiled(model)
            torch.manual_seed(1)
            found = outputs_of(made, inputs)
        except Exception:
            made, found = None, None
        assert (found is None) == (expected is None), (seed, case, names, made and describe(made))
        seen[made is not None and is_compiled(made)] += 1
        for key, tensor in (expected or {}).items():
            assert torch.allclose(found[key], tensor, 1e-4, 1e-4, equal_nan=True), (
                seed,
                case,
                names,
                key,
                describe(made),
            )
    assert all(count > cases / 10 for count in seen.values()), seen


# ------ how it is built

PREDICT = """
import sys, torch, modeling_star
from modeling_star.kernels import cpu
config = modeling_star.StarTransformerConfig(vocab_size=9, hidden_size=8, num_attention_heads=2)
with torch.inference_mode():
    torch.manual_seed(0)
    model = modeling_star.compiled(modeling_star.StarTransformerModel(config))
    print(model(torch.tensor([[5, 6, 7]])).last_hidden_state.shape[1], cpu.level_in_use() is not None)
"""


def predict(**environment: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(
        [sys.executable, "-c", PREDICT], env=environment, capture_output=True, text=True, check=False
    )


def without_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a user of a container whom its system does not know."""

    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", home)


NO_LIBRARY = ("no compiler", "a compiler that fails", "a cache that is a file", "no write access", "no home")


def environment_of(case: str, folder: Path) -> dict[str, str]:
    """The variables of a case of `NO_LIBRARY`."""
    (folder / "file").touch()
    return {
        "no compiler": {"XDG_CACHE_HOME": str(folder), "PATH": str(folder), "CXX": ""},
        "a compiler that fails": {"XDG_CACHE_HOME": str(folder), "CXX": "false"},
        "a cache that is a file": {"XDG_CACHE_HOME": str(folder / "file")},
        "no write access": {"XDG_CACHE_HOME": "/sys"},  # where root has none either
        "no home": {"XDG_CACHE_HOME": ""},
    }[case]


@pytest.mark.parametrize("case", NO_LIBRARY)
def test_where_it_cannot_be_built_pytorch_computes(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment_of(case, tmp_path).items():
        monkeypatch.setenv(name, value)
    if case == "no home":
        without_home(monkeypatch)
    # as in a process that has not asked yet
    monkeypatch.setattr(cpu, "_library", functools.cache(cpu._library.__wrapped__))
    monkeypatch.setenv(cpu.VARIABLE, "auto")
    model, inputs = model_of("Star"), few()
    made = compiled(model)
    assert_close(outputs_of(made, inputs), outputs_of(model, inputs), 0)
    assert "compiled: no, " in describe(made)
    monkeypatch.setenv(cpu.VARIABLE, "1")
    if sys.platform == "linux":
        with pytest.raises(RuntimeError, match=f"export {cpu.VARIABLE}=0"):
            compiled(model)


@pytest.mark.parametrize("case", [*NO_LIBRARY[:-1], "a compiler"])
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only there it is built in the background")
def test_two_new_processes_predict_at_once_with_a_line_on_the_log_at_most(case: str, tmp_path: Path) -> None:
    if case == "a compiler" and shutil.which("c++") is None:
        pytest.skip("there is no C++ compiler")
    variables = {"XDG_CACHE_HOME": str(tmp_path)} if case == "a compiler" else environment_of(case, tmp_path)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", cpu.VARIABLE: "auto", **variables}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    for process in [subprocess.Popen([sys.executable, "-c", PREDICT], env=environment, **pipes) for _ in range(2)]:
        printed, logged = process.communicate()
        assert printed.split()[0] == "3"
        assert len(logged.splitlines()) <= 1, logged
    folder = tmp_path / "modeling_star"
    deadline = time.monotonic() + 120
    while folder.is_dir() and [*folder.glob("*.building")] and time.monotonic() < deadline:
        time.sleep(0.1)
    done = predict(**variables, **{cpu.VARIABLE: "auto"})
    assert done.stdout.split() == ["3", str(case == "a compiler" and cpu.level() != "plain")]
    assert len(done.stderr.splitlines()) <= (case == "a compiler that fails"), done.stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")
def test_two_processes_build_at_once_and_later_ones_find_it(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), cpu.VARIABLE: "1"}
    command = [sys.executable, "-c", PREDICT]
    both = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        assert process.communicate()[0].split() == ["3", "True"]
    [built] = (tmp_path / "modeling_star").iterdir()
    assert built.suffix == ".so"
    if cpu.level() != "plain":
        done = predict(**{"XDG_CACHE_HOME": str(tmp_path), cpu.VARIABLE: "auto", "PATH": "/nowhere"})
        assert done.stdout.split() == ["3", "True"]
        assert not done.stderr


def test_it_is_loaded_without_torch_so_that_no_version_of_it_matters(library_of: Callable[[str], Any]) -> None:
    library_of(cpu.level())
    load = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).modeling_star_lanes(), 'torch' in sys.modules)"
    command = [sys.executable, "-I", "-S", "-c", load, str(cpu.build(cpu.level()))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(library_of(cpu.level()).modeling_star_lanes()), "False"]


@pytest.mark.parametrize("damage", [lambda whole: whole[: len(whole) // 2], lambda whole: b"", lambda whole: b"text"])
@pytest.mark.skipif(sys.platform != "linux", reason="only there it is built in the background")
def test_a_damaged_library_is_not_loaded_but_built_again(
    damage: Callable[[bytes], bytes], library_of: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    level = cpu.level()
    library_of(level)
    if level == "plain":
        pytest.skip("it is not built in the background")
    whole = cpu.build(level)
    compiler = tmp_path / "compiler"  # a copy instead of a build; the command ends with -o FILE
    compiler.write_text(f'#!/bin/sh\nfor target; do :; done\ncp "{whole}" "$target"\n', encoding="utf-8")
    compiler.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", str(compiler))
    path = cpu.build(level)
    assert cpu.find(level) == path
    path.unlink()  # this process has loaded no file of that name
    path.write_bytes(damage(whole.read_bytes()))
    assert isinstance(cpu._library.__wrapped__("auto", "all"), str)
    deadline = time.monotonic() + 60
    while cpu.find(level) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert path.read_bytes() == whole.read_bytes()
    assert cpu._library.__wrapped__("auto", "all")[1] == level
    assert list(path.parent.iterdir()) == [path]
    path.unlink()  # a loaded file that is cut off ends this process when it exits
    path.write_bytes(b"")
    assert cpu.build(level) == path
    assert path.read_bytes() == whole.read_bytes()


def test_a_compiler_that_fails_silently_is_named_with_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(cpu.UnavailableError, match="status 1"):
        cpu.build("plain")


def test_another_value_of_the_variable_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cpu.VARIABLE, "yes")
    with pytest.raises(ValueError, match=cpu.VARIABLE):
        cpu.library()


@pytest.mark.parametrize(
    ("limit", "best"),
    [("all", 0), ("avx512_core_amx", 0), ("avx512_core_bf16", 1), ("avx512_core", 2), ("avx2", 3)],
)
def test_a_limit_of_onednn_excludes_instructions(limit: str, best: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(cpu, "_processor_flags", lambda: frozenset().union(*(has for _, has in cpu.LEVELS.values())))
    assert cpu.level(limit) == list(cpu.LEVELS)[best]


def test_intel_computes_in_bfloat16_with_amx_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    for vendor, flags, level in (
        ("GenuineIntel", cpu.LEVELS["avx512bf16"][1], "avx512"),
        ("AuthenticAMD", cpu.LEVELS["avx512bf16"][1], "avx512bf16"),
        ("GenuineIntel", cpu.LEVELS["amx"][1] | cpu.LEVELS["avx512"][1], "amx"),
    ):
        monkeypatch.setattr(cpu, "_processor_flags", lambda has=flags | {vendor}: has)
        assert cpu.level() == level


@pytest.mark.parametrize("kind", [StarTransformerLayer, nn.Linear])
def test_a_forward_that_replaces_that_of_a_class_is_noticed(
    kind: Any, fast: Callable[..., PreTrainedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    def halved(self: Any, *given: Any, **named: Any) -> Any:
        output = original(self, *given, **named)
        return (output[0] / 2, *output[1:]) if isinstance(output, tuple) else output / 2

    halved.__qualname__ = "forward"  # as at the top of a script
    original = kind.forward
    monkeypatch.setattr(kind, "forward", halved)
    model = StarTransformerModel(StarTransformerConfig(vocab_size=9, hidden_size=8, num_attention_heads=2))
    assert "another forward" in describe(compiled(model))
