"""The compiled layers against tests/reference.py and PyTorch, when they are used, and how they are built."""

import functools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from common import (
    assert_close,
    assert_equals_reference,
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
from transformers import PreTrainedModel

from modeling_star.kernels import compiled, cpu


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
def calls(library_of: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The compiled code is on, and this has an entry for each call of it."""
    library_of(cpu.level())
    made: list[Any] = []
    encode = cpu.encode

    def counted(*arguments: Any) -> Any:
        result = encode(*arguments)
        if result is not None:
            made.append(arguments)
        return result

    monkeypatch.setenv(cpu.VARIABLE, "1")
    monkeypatch.setattr(cpu, "encode", counted)
    yield made
    cpu._library.cache_clear()


def model_of(name: str, **options: Any) -> PreTrainedModel:
    stem, fields = MODELS[name]
    return tiny_model(stem, **{**fields, **options}).eval()


@torch.no_grad()
def outputs_of(model: PreTrainedModel, inputs: dict[str, Tensor], setting: str) -> dict[str, Tensor]:
    before = os.environ.get(cpu.VARIABLE)
    os.environ[cpu.VARIABLE] = setting
    try:
        return named_outputs(model(**inputs))
    finally:
        os.environ.pop(cpu.VARIABLE) if before is None else os.environ.update({cpu.VARIABLE: before})


def assert_same(model: PreTrainedModel, inputs: dict[str, Tensor], tolerance: float = 1e-5) -> None:
    """Both ways give the same outputs; numbers in half precision are compared with float32."""
    actual = outputs_of(model, inputs, "1")
    assert_close(actual, outputs_of(model, inputs, "0"), tolerance)


# ------ results


@any_model
@pytest.mark.parametrize("padding", ["right", "left", "holes"])
def test_states_are_those_of_the_reference(name: str, padding: str, calls: list[Any]) -> None:
    model = model_of(name)
    with torch.no_grad():
        assert_equals_reference(model, random_batch(padded([5, 1, 9, 12], 12, padding)), 1e-5)
    assert len(calls) == 1


@any_model
def test_states_are_those_of_pytorch_with_empty_rows(name: str, calls: list[Any]) -> None:
    assert_same(model_of(name), random_batch(padded([0, 3, 0, 7, 0], 7, "holes")).inputs())
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("name", "pooling"),
    [
        *(("Star-plus", "max"), ("Star-plus", "mean"), ("Star without relay", "mean")),
        *(("BiG", "max"), ("BiG", "mean"), ("BiG", "global")),
    ],
)
def test_vectors_of_texts_are_those_of_the_reference_with_states_and_without(
    name: str, pooling: str, calls: list[Any]
) -> None:
    model = model_of(name, pooling=pooling)
    batch = random_batch(padded([0, 3, 0, 7, 16, 0], 16, "holes"))
    with torch.no_grad():
        assert_equals_reference(model, batch, 1e-5)
        expected = named_outputs(model(**batch.inputs()))
        alone = named_outputs(model(**batch.inputs(), output_token_states=False))
    del expected["last_hidden_state"]
    assert_close(alone, expected, 1e-6)
    assert len(calls) == 3


@pytest.mark.parametrize("level", cpu.LEVELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.slow
def test_every_set_of_instructions_computes_the_same(
    level: str, dtype: torch.dtype, library_of: Callable[[str], Any], calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    library = library_of(level)
    monkeypatch.setattr(cpu, "library", lambda: library if cpu.setting() == "1" else None)
    for name in MODELS:
        for lengths in ([1], [3, 40], [200, 0, 1, 33]):
            check_shape(name, lengths, dtype, hidden_size=72, num_attention_heads=4)


def check_shape(
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
    batch = random_batch(padded(lengths, max(*lengths, 1), padding))
    inputs = batch.inputs()
    exact = model_of(name, **options)
    if with_reference:
        with torch.no_grad():
            expected = reference_outputs(exact, parameters_of(exact), batch, None, False)
    else:
        expected = outputs_of(exact, inputs, "0")
    if dtype == torch.float32:
        assert_close(outputs_of(exact, inputs, "1"), expected, 2e-5)
        return
    half = model_of(name, **options).to(dtype)
    if float32_weights:
        exact.layers_on_cpu = "bfloat16"
    own, other = outputs_of(exact if float32_weights else half, inputs, "1"), outputs_of(half, inputs, "0")
    for key, tensor in expected.items():
        if tensor.numel():
            scale = float(tensor.abs().mean())
            error, allowed = (float((x[key].float() - tensor).abs().mean()) for x in (own, other))
            assert error <= 2 * allowed + 0.005 * scale, (key, error, allowed)


@pytest.mark.parametrize("length", [1, 2, 31, 32, 33, 127, 128, 129, 255, 256, 257, 1000, 4096])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_lengths_around_the_sizes_of_blocks(length: int, dtype: torch.dtype, calls: list[Any]) -> None:
    for name in ("Star-plus", "BiG"):
        check_shape(name, [length], dtype)
    assert len(calls) == 2


SHAPE: dict[str, st.SearchStrategy] = {
    "name": st.sampled_from(sorted(MODELS)),
    "lengths": st.lists(st.integers(0, 70), min_size=1, max_size=40).filter(any),
    "dtype": st.sampled_from([torch.float32, torch.bfloat16]),
    "num_attention_heads": st.sampled_from([1, 2, 4, 8]),
    "hidden_size": st.sampled_from([8, 24, 64, 104, 192]),
    "num_hidden_layers": st.integers(1, 3),
    "hidden_act": st.sampled_from(["relu", "gelu"]),
}


@given(shape=st.fixed_dictionaries(SHAPE))
@examples(40)
def some_random_shapes(shape: dict[str, Any]) -> None:
    check_shape(**shape)


def test_random_shapes(calls: list[Any]) -> None:
    some_random_shapes()
    assert calls


@pytest.mark.slow
def test_a_thousand_random_shapes_are_those_of_the_reference(
    library_of: Callable[[str], Any], calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every set of instructions, of 1 to 4,096 tokens, most of them short, on 1, 2 and 8 threads."""
    levels = [name for name, (_, flags) in cpu.LEVELS.items() if flags <= cpu._processor_flags()]
    chosen: list[Any] = []
    monkeypatch.setattr(cpu, "library", lambda: chosen[-1] if cpu.setting() == "1" else None)
    long = st.floats(0, 12).map(lambda exponent: round(2**exponent))
    lengths = st.tuples(long, st.lists(st.integers(0, 40), max_size=6)).flatmap(
        lambda x: st.permutations([x[0], *x[1]])
    )
    more = {
        "lengths": lengths,
        "padding": st.sampled_from(["right", "left", "holes"]),
        "float32_weights": st.booleans(),
    }

    @given(
        shape=st.fixed_dictionaries({**SHAPE, **more}),
        level=st.sampled_from(levels),
        threads=st.sampled_from([1, 2, 8]),
    )
    @examples(1000)
    def check(shape: dict[str, Any], level: str, threads: int) -> None:
        chosen.append(library_of(level))
        torch.set_num_threads(threads)
        check_shape(**shape, with_reference=True)

    before = torch.get_num_threads()
    try:
        check()
    finally:
        torch.set_num_threads(before)
    assert set(chosen) == {library_of(level) for level in levels}
    assert len(calls) > 900  # without code are heads wider than 16 vectors


@any_model
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_threads_and_other_texts_of_a_batch_change_no_bit(name: str, dtype: torch.dtype, calls: list[Any]) -> None:
    model = model_of(name, max_position_embeddings=700).to(dtype)
    mask = padded([650, 3, 129, 0, 40, 7], 650, "right")
    inputs = random_batch(mask).inputs()
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 8):
            torch.set_num_threads(count)
            outputs = outputs_of(model, inputs, "1")
            if count == 1:
                expected = outputs
            for key, tensor in outputs.items():
                assert torch.equal(tensor, expected[key]), (key, count)
    finally:
        torch.set_num_threads(threads)
    for row, length in enumerate(mask.sum(1).tolist()):
        if length and name != "Star-plus-2":  # PyTorch computes the means that its relays start from
            alone = outputs_of(model, {key: x[row : row + 1, :length] for key, x in inputs.items()}, "1")
            states = alone["last_hidden_state"]
            assert torch.equal(states[0], expected["last_hidden_state"][row, :length]), row


def test_groups_of_texts_that_pass_the_layers_one_after_another(calls: list[Any]) -> None:
    inputs = random_batch(padded([700, 900] * 5, 900, "right")).inputs()
    for name in ("Star-plus-2", "BiG", "BiG, first token alone"):
        assert_same(model_of(name, max_position_embeddings=900), inputs, 2e-5)


# ------ when it is used


class Scaled(nn.Linear):
    """A layer that computes something else than its class."""

    def forward(self, states: Tensor) -> Tensor:
        return 2 * super().forward(states)


def scale_a_layer(model: PreTrainedModel) -> None:
    old = model.layers[1].ring_attention.projections.output
    model.layers[1].ring_attention.projections.output = Scaled(old.in_features, old.out_features).eval()


def hook_a_layer(model: PreTrainedModel) -> None:
    model.layers[0].ring_norm.register_forward_hook(lambda _, __, output: 2 * output)


def drop_in_a_layer(model: PreTrainedModel) -> None:
    model.layers[0].dropout.train()


@pytest.mark.parametrize("change", [scale_a_layer, hook_a_layer, drop_in_a_layer])
def test_layers_that_are_not_what_their_class_is_are_called(
    change: Callable[[PreTrainedModel], None], calls: list[Any]
) -> None:
    model = model_of("Star-plus")
    inputs = random_batch(padded([5, 3], 5, "right")).inputs()
    outputs_of(model, inputs, "1")
    assert len(calls) == 1
    change(model)
    assert_same(model, inputs)
    assert len(calls) == 1


@pytest.mark.parametrize("where", ["layer", "every module", "training"])
def test_they_stop_for_a_hook_or_training_and_come_back(where: str, calls: list[Any]) -> None:
    model = model_of("Star-plus")
    inputs = random_batch(padded([5, 3], 5, "right")).inputs()
    seen: list[nn.Module] = []
    for begun in (False, True):  # as a hook is there from the start, or later
        if begun:
            outputs_of(model, inputs, "1")
        used = len(calls)
        if where == "training":
            model.train()
        else:
            register: Any = nn.modules.module.register_module_forward_hook
            register = model.layers[0].register_forward_hook if where == "layer" else register
            handle = register(lambda module, *_: seen.append(module))
        with torch.no_grad():
            model(**inputs)
        assert len(calls) == used
        assert where == "training" or model.layers[0] in seen
        seen.clear()
        model.eval() if where == "training" else handle.remove()
        outputs_of(model, inputs, "1")
        assert len(calls) == used + 1


@pytest.mark.parametrize("case", ["gradients", "training", "float64", "attentions", "states", "autocast", "long", "0"])
def test_it_computes_inference_in_single_or_half_precision_alone(
    case: str, calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of("Star-plus").train(case == "training")
    inputs: dict[str, Any] = random_batch(padded([5, 3], 5, "right")).inputs()
    inputs |= {"output_attentions": case == "attentions", "output_hidden_states": case == "states"}
    if case == "0":
        monkeypatch.setenv(cpu.VARIABLE, "0")
    if case == "long":
        monkeypatch.setattr(compiled, "LONGEST", 4)
    model = model.double() if case == "float64" else model
    with torch.set_grad_enabled(case == "gradients"), torch.autocast("cpu", torch.bfloat16, case == "autocast"):
        model(**inputs)
    assert not calls


@pytest.mark.parametrize("name", ["Star-plus", "BiG"])
def test_compiled_and_exported_models_have_pytorchs_layers(name: str, calls: list[Any]) -> None:
    model, inputs = model_of(name), random_batch(padded([5, 3], 5, "right")).inputs()
    inputs = {key: inputs[key] for key in ("input_ids", "attention_mask")}
    expected = outputs_of(model, inputs, "1")
    assert len(calls) == 1
    assert_close(outputs_of(torch.compile(model, backend="eager", fullgraph=True), inputs, "1"), expected, 1e-5)
    with torch.no_grad():
        exported = torch.export.export(model, (), inputs, strict=False).module()
    assert_close(named_outputs(exported(**inputs)), expected, 1e-5)
    assert len(calls) == 1


@any_model
def test_float32_weights_may_compute_in_bfloat16(name: str, calls: list[Any]) -> None:
    """As a model in bfloat16 does, but for its embeddings, and back."""
    model, inputs = model_of(name), random_batch(padded([5, 1, 12], 12, "right")).inputs()
    exact = outputs_of(model, inputs, "1")
    model.layers_on_cpu = "bfloat16"
    low = outputs_of(model, inputs, "1")
    assert_close(low, exact, 0.1)
    assert all(tensor.dtype == torch.float32 for tensor in low.values())
    assert torch.equal(low["last_hidden_state"], exact["last_hidden_state"]) == (cpu.level() != "amx")
    model.layers_on_cpu = "compiled"
    assert torch.equal(outputs_of(model, inputs, "1")["last_hidden_state"], exact["last_hidden_state"])
    assert len(calls) == 3
    model.layers_on_cpu = "PyTorch"
    assert_close(outputs_of(model, inputs, "1"), exact, 1e-5)
    assert len(calls) == 3


def in_place(weight: nn.Parameter) -> None:
    with torch.no_grad():
        weight[3, 2] += 1


def by_data(weight: nn.Parameter) -> None:
    weight.data *= 2


def row_by_data(weight: nn.Parameter) -> None:
    weight.data[3] *= 2


@pytest.mark.parametrize("change", [in_place, by_data, row_by_data])
@pytest.mark.parametrize("name", ["Star-plus", "BiG"])
def test_changed_weights_are_seen(name: str, change: Callable[[nn.Parameter], None], calls: list[Any]) -> None:
    model = model_of(name, hidden_size=128)
    inputs = random_batch(padded([5, 3], 5, "right")).inputs()
    before = outputs_of(model, inputs, "1")["last_hidden_state"]
    for weight in [p for key, p in model.layers.named_parameters() if p.dim() == 2 and "role_bias" not in key]:
        change(weight)
        assert_same(model, inputs, 3e-5)
    assert not torch.equal(before, outputs_of(model, inputs, "1")["last_hidden_state"])


def test_loaded_and_converted_weights_are_seen(calls: list[Any]) -> None:
    model = model_of("Star-plus")
    inputs = random_batch(padded([5, 3], 5, "right")).inputs()
    assert_same(model, inputs)
    model.load_state_dict(tiny_model("StarTransformer", seed=1, **MODELS["Star-plus"][1]).state_dict())
    assert_same(model, inputs)
    assert outputs_of(model.bfloat16(), inputs, "1")["last_hidden_state"].dtype == torch.bfloat16
    assert_same(model.float(), inputs)
    assert len(calls) == 4


# ------ how it is built

PREDICT = """
import sys, torch, modeling_star
from modeling_star.kernels import cpu
config = modeling_star.StarTransformerConfig(vocab_size=9, hidden_size=8, num_attention_heads=2)
with torch.inference_mode():
    torch.manual_seed(0)
    model = modeling_star.StarTransformerModel(config).eval()
    print(model(torch.tensor([[5, 6, 7]])).last_hidden_state.shape[1], cpu.library() is not None)
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
    for name in ("_library", "_library_for_process"):  # as in a process that has not asked yet
        monkeypatch.setattr(cpu, name, functools.cache(getattr(cpu, name).__wrapped__))
    model, inputs = model_of("Star"), random_batch(padded([3, 1], 3, "right")).inputs()
    assert_close(outputs_of(model, inputs, "auto"), outputs_of(model, inputs, "0"), 0)
    if sys.platform == "linux":
        with pytest.raises(RuntimeError, match=f"export {cpu.VARIABLE}=0"):
            outputs_of(model, inputs, "1")


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
    assert cpu._library_for_process.__wrapped__(level) is None
    deadline = time.monotonic() + 60
    while cpu.find(level) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert path.read_bytes() == whole.read_bytes()
    assert cpu._library_for_process.__wrapped__(level) is not None
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
    ("limit", "allowed"),
    [("all", True), ("avx512_core_amx", True), ("avx512_core_bf16", False), ("avx2", False)],
)
def test_a_limit_of_onednn_excludes_tiles(limit: str, allowed: bool) -> None:
    assert (cpu.level(limit) == "amx") == (allowed and cpu.level() == "amx")
