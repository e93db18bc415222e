"""The choice of the Triton kernels: automatic on a GPU where they work, forced or disabled by the setting."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from common import assert_close, named_outputs, padded, random_batch, tiny_model
from encoder_contract import RECORD
from kernel_samples import DEVICE, VARIANTS, on_device, setting
from torch_modes import compiled

from modeling_star.kernels import triton_relay_attention as relay_kernels
from modeling_star.kernels import triton_ring_attention as candidate_kernels
from modeling_star.kernels import triton_utils as kernels
from modeling_star.kernels.compiled import describe
from modeling_star.models import ops
from modeling_star.models.token_layout import TokenLayout


KERNEL_FILES = {module.__name__ for module in (candidate_kernels, kernels, relay_kernels)}


def fail(*arguments: Any, **options: Any) -> None:
    raise AssertionError("a kernel was called")


@pytest.fixture
def forbidden_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels of the ring fail."""
    monkeypatch.setattr(candidate_kernels, "candidate_attention", fail)


@pytest.fixture
def forbidden(forbidden_ring: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kernel fails."""
    monkeypatch.setattr(relay_kernels, "relay_mix", fail)


@pytest.fixture
def layout() -> TokenLayout:
    return TokenLayout.from_mask(torch.ones(1, 3).bool(), keep_padding=False)


def gpu(dtype: torch.dtype = torch.float32) -> Any:
    """A stand-in for a tensor on a GPU, with the attributes that the choice depends on."""
    return SimpleNamespace(device=torch.device("cuda", 0), dtype=dtype)


def uses_kernels(tokens: Any, layout: TokenLayout, reach: int = 1, records: bool = False) -> bool:
    return ops.choose(tokens, layout, reach, has_relay=True, records=records).name == "Triton kernels"


@pytest.mark.parametrize("failure", [None, RuntimeError("no compiler")], ids=["works", "fails"])
def test_kernels_are_chosen_on_a_gpu_where_they_work(
    failure: Exception | None, layout: TokenLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ops, "_kernel_failure", lambda device: failure)
    for value in (None, "auto"):
        with setting(value):
            assert uses_kernels(gpu(), layout) == (failure is None)
            assert not uses_kernels(gpu(torch.float64), layout)
            assert not uses_kernels(torch.zeros(3), layout)
            assert not uses_kernels(gpu(), layout, reach=10)
            assert not uses_kernels(gpu(), layout, records=True)
    with setting("0"):
        assert not uses_kernels(gpu(), layout)


def test_what_is_chosen_is_described() -> None:
    model = tiny_model("StarTransformer").to(DEVICE)
    with setting("1"):
        assert f"attention: Triton kernels, as they run on {model.device}" in describe(model)
    with setting("0"):
        assert "attention: sparse rows" in describe(model.cpu())


def test_forced_kernels_that_fail_are_an_error(layout: TokenLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "_kernel_failure", lambda device: RuntimeError("no compiler"))
    with setting("1"), pytest.raises(RuntimeError, match="no compiler"):
        uses_kernels(torch.zeros(3), layout)


def test_a_failure_of_the_smallest_kernel_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device(DEVICE)
    assert kernels.failure_on(device) is None

    def fail(*arguments: Any, **options: Any) -> None:
        raise OSError("no C compiler")

    monkeypatch.setattr(kernels, "launch", fail)
    assert "no C compiler" in str(kernels.failure_on(device))
    monkeypatch.setattr(kernels, "launch", lambda *arguments, **options: arguments[-1].zero_())
    assert kernels.failure_on(device) is not None


def test_an_older_gpu_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert "8.0" in str(kernels.failure_on(torch.device("cuda")))


def test_an_unknown_setting_is_an_error(layout: TokenLayout) -> None:
    with setting("yes"), pytest.raises(ValueError, match="MODELING_STAR_KERNELS=yes"):
        uses_kernels(torch.zeros(3), layout)


def test_without_triton_a_model_runs_and_forced_kernels_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    for name in KERNEL_FILES:
        monkeypatch.delitem(sys.modules, name)
    ops._kernel_failure.cache_clear()
    model, batch = tiny_model("StarTransformer"), random_batch(padded([3, 2], 3, "right"))
    try:
        with setting(None):
            assert model(**batch.inputs()).last_hidden_state.isfinite().all()
        with setting("1"), pytest.raises(RuntimeError, match="triton"):
            model(**batch.inputs())
    finally:
        ops._kernel_failure.cache_clear()


def test_a_cpu_imports_no_kernels_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KERNEL_FILES:
        monkeypatch.delitem(sys.modules, name)
    with setting(None):
        output = tiny_model("StarTransformer")(**random_batch(padded([3, 2], 3, "right")).inputs())
        output.pooler_output.sum().backward()
    assert not KERNEL_FILES & sys.modules.keys()


@pytest.mark.usefixtures("forbidden")
@pytest.mark.parametrize("variant", ["Star", "BiG"])
def test_recording_attentions_uses_no_kernels(variant: str) -> None:
    stem, options = VARIANTS[variant]
    model = tiny_model(stem, **options).to(DEVICE)
    inputs = on_device(random_batch(padded([3, 0, 5], 6, "holes")))
    with setting("0"):
        expected = named_outputs(model(**inputs))
    with setting("1"):
        recorded = named_outputs(model(**inputs, **RECORD))
        with pytest.raises(AssertionError, match="a kernel was called"):
            model(**inputs)
    assert_close({name: recorded[name] for name in expected}, expected, 1e-5)


@pytest.mark.usefixtures("forbidden_ring")
def test_a_ring_wider_than_the_kernels_allow_uses_none() -> None:
    inputs = on_device(random_batch(padded([12, 30], 30, "right")))
    for radius in (ops.LONGEST_KERNEL_REACH, ops.LONGEST_KERNEL_REACH + 1):
        model = tiny_model("StarTransformer", ring_radius=radius, position_embedding_type="none").to(DEVICE)
        with setting("0"):
            expected = named_outputs(model(**inputs))
        with setting("1"):
            if radius == ops.LONGEST_KERNEL_REACH:
                with pytest.raises(AssertionError, match="a kernel was called"):
                    model(**inputs)
            else:
                assert_close(named_outputs(model(**inputs)), expected, 1e-5)


@pytest.mark.usefixtures("forbidden")
def test_compiled_and_exported_models_use_no_kernels() -> None:
    model = tiny_model("StarTransformer").eval().to(DEVICE)
    inputs = on_device(random_batch(padded([3, 0, 5], 6, "holes")))
    with setting("0"):
        expected = named_outputs(model(**inputs))
    with setting("1"):
        exported = torch.export.export(model, (), inputs, strict=False).module()
        for traced in (compiled(model), exported):
            assert_close(named_outputs(traced(**inputs)), expected, 1e-5)
