"""Every encoder of transformers with sliding windows computes the same with `attn_implementation="star_window"`."""

import importlib
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from common import difference, padded, randomise
from torch import Tensor, nn
from torch_modes import LargestTensor, compiled
from transformers import AttentionMaskInterface, AutoModel, masking_utils

import modeling_star
from modeling_star.models import window_interface
from modeling_star.models.window_attention import WindowMask
from modeling_star.models.window_interface import WINDOW, visible


pytestmark = pytest.mark.usefixtures("registered")

TINY = {
    "vocab_size": 50,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GEMMA = {"num_key_value_heads": 1, "head_dim": 8, "sliding_window": 5}
LAYERS = {"layer_types": ["sliding_attention", "sliding_attention", "full_attention"]}
GPT_OSS = {**GEMMA, "num_key_value_heads": 2, "num_local_experts": 2, "num_experts_per_tok": 1}

# Model -> class of its configuration, the fields that make an encoder with small windows, and how many of its layers
# have one.
ENCODERS: dict[str, tuple[str, dict[str, Any], int]] = {
    "embedding_gemma2": (
        "EmbeddingGemma2TextConfig",
        {**GEMMA, **LAYERS, "global_head_dim": 16, "hidden_size_per_layer_input": 4, "embedding_dim": 8},
        2,
    ),
    "gemma3": ("Gemma3TextConfig", {**GEMMA, **LAYERS, "use_bidirectional_attention": True}, 2),
    "modernbert": ("ModernBertConfig", {"local_attention": 10, "cls_token_id": 1, "sep_token_id": 2}, 2),
    "neomme": ("NeoMMEConfig", {"sliding_window": 5, "head_dim": 16, "num_key_value_heads": 1}, 1),
    "openai_privacy_filter": ("OpenAIPrivacyFilterConfig", GPT_OSS, 3),
    "t5gemma": ("T5GemmaModuleConfig", {**GEMMA, **LAYERS}, 2),
    "t5gemma2": ("T5Gemma2TextConfig", {**GEMMA, **LAYERS}, 2),
    "ultrabert": ("UltrabertConfig", {"sliding_window": 5}, 2),
}

DECODERS: dict[str, tuple[str, dict[str, Any], int]] = {
    "gemma2": ("Gemma2Config", {**GEMMA, **LAYERS}, 2),
    "gemma3": ("Gemma3TextConfig", {**GEMMA, **LAYERS}, 2),
    "gpt_oss": ("GptOssConfig", {**GPT_OSS, **LAYERS}, 2),
    "ministral": ("MinistralConfig", GEMMA, 3),
    "modernbert_decoder": (
        "ModernBertDecoderConfig",
        {"local_attention": 10, "cls_token_id": 1, "sep_token_id": 2},
        2,
    ),
    "qwen2": ("Qwen2Config", {**GEMMA, "use_sliding_window": True, "max_window_layers": 1}, 2),
}


@pytest.fixture(scope="module")
def registered() -> None:
    assert modeling_star.register_window_attention() == WINDOW


def encoder_class(model: str, config: Any) -> type[transformers.PreTrainedModel]:
    if model == "t5gemma":
        return transformers.models.t5gemma.modeling_t5gemma.T5GemmaEncoder
    if model == "t5gemma2":
        return transformers.models.t5gemma2.modeling_t5gemma2.T5Gemma2TextEncoder
    return transformers.MODEL_MAPPING[type(config)]


def pair(model: str, name: str, fields: dict[str, Any]) -> tuple[nn.Module, nn.Module]:
    """A random model, and the same with window attention."""
    made = []
    for implementation in (None, WINDOW):
        config = getattr(transformers, name)(**{**TINY, **fields})
        config.is_encoder_decoder, config.dropout_rate = False, 0.0  # which T5Gemma's parts have from the whole
        options = {} if implementation is None else {"attn_implementation": implementation}
        made.append(encoder_class(model, config)._from_config(config, **options).eval())
    randomise(made[0], seed=1)
    made[1].load_state_dict(made[0].state_dict())
    assert made[1].config._attn_implementation == WINDOW != made[0].config._attn_implementation
    return made[0], made[1]


def trained(model: nn.Module, ids: Tensor, mask: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """States at real tokens, and the gradients of a weighted sum of them."""
    states = model(input_ids=ids, attention_mask=mask.long()).last_hidden_state * mask[..., None]
    (states * torch.randn(states.shape, generator=torch.Generator().manual_seed(0))).sum().backward()
    return states.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def assert_same(model: str, name: str, fields: dict[str, Any], windows: int, padding: str) -> None:
    stock, ours = pair(model, name, fields)
    mask = torch.ones(2, 90).bool() if padding == "none" else padded([90, 31], 90, padding)
    ids = torch.randint(3, 50, mask.shape, generator=torch.Generator().manual_seed(0))
    seen: list[WindowMask] = []
    layers = window_interface.window_attention

    def watched(*args: Any, **options: Any) -> Tensor:
        seen.append(args[3])
        return layers(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window_interface, "window_attention", watched)
        states, gradients = trained(ours, ids, mask)
    assert len(seen) == windows
    expected, wanted = trained(stock, ids, mask)
    assert difference(states, expected) < 1e-5
    assert gradients.keys() == wanted.keys()
    largest = max(float(value.abs().max()) for value in wanted.values())
    # transformers' own "eager" and "sdpa" differ by 2e-5 here.
    assert max(difference(gradients[key], wanted[key], largest) for key in wanted) < 1e-4


@pytest.mark.parametrize("padding", ["none", "right", "left"])
@pytest.mark.parametrize("model", ENCODERS)
def test_an_encoder_computes_what_it_does(model: str, padding: str) -> None:
    assert_same(model, *ENCODERS[model], padding)


@pytest.mark.parametrize("model", DECODERS)
def test_a_decoder_computes_what_it_does(model: str) -> None:
    for padding in ("none", "right"):
        assert_same(model, *DECODERS[model], padding)


# ------ masks


def offsets(function: Any, length: int = 40) -> set[int]:
    """The distances from query to key that a mask function allows, looked at one by one."""
    query, key = torch.arange(length)[:, None], torch.arange(length)[None]
    allowed = function(torch.tensor(0), torch.tensor(0), query, key).expand(length, length)
    return {int(distance) for distance in (key - query)[allowed].unique()}


def model_functions() -> list[Any]:
    made = []
    for model, factory, arguments in (
        ("gemma3", "_bidirectional_window_overlay", [(1,), (4,)]),
        ("t5gemma2", "sliding_window_mask_function", [(5, False), (4, False), (3, True), (1, False)]),
        ("moonshine_streaming", "sliding_window_mask_function", [((4, 2),), ((3, 0),)]),
    ):
        module = importlib.import_module(f"transformers.models.{model}.modeling_{model}")
        made += [getattr(module, factory)(*given) for given in arguments]
    return made


def test_the_reach_of_mask_functions_is_what_they_allow() -> None:
    plain = [
        masking_utils.causal_mask_function,
        masking_utils.bidirectional_mask_function,
        *[masking_utils.sliding_window_overlay(width) for width in (1, 7)],
        *[masking_utils.sliding_window_bidirectional_overlay(width) for width in (0, 6)],
        *model_functions(),
    ]
    joined = [
        join(*parts)
        for join in (masking_utils.and_masks, masking_utils.or_masks)
        for parts in itertools.combinations(plain, 2)
    ]
    nested = masking_utils.or_masks(masking_utils.sliding_window_causal_mask_function(4), plain[-4])
    for function in (*plain, *joined, nested):
        left, right = visible(function)
        assert offsets(function) == set(range(-int(min(left, 39)), int(min(right, 39)) + 1))


def test_masks_that_say_more_than_a_window_are_not_read() -> None:
    window = masking_utils.sliding_window_bidirectional_overlay(3)
    blocks = masking_utils.blockwise_overlay(torch.zeros(1, 9).long())
    for function in (
        lambda batch, head, query, key: key <= query,
        blocks,
        masking_utils.or_masks(window, blocks),
        masking_utils.and_masks(window, masking_utils.and_masks(window, blocks)),
        masking_utils.chunked_overlay(3, torch.zeros(1).long()),
    ):
        assert visible(function) is None


@pytest.mark.parametrize("change", ["packed", "cached", "prefix"])
def test_other_masks_are_those_of_sdpa(change: str) -> None:
    """Several texts in a row, queries after a cache, and keys before the queries, as of PEFT's prefix tuning."""
    window = masking_utils.sliding_window_bidirectional_mask_function(3)
    options: dict[str, Any] = {"batch_size": 1, "q_length": 90, "kv_length": 90, "mask_function": window}
    if change == "packed":
        places = torch.arange(45).repeat(2)[None]
        texts = masking_utils.find_packed_sequence_indices(places)
        options["mask_function"] = masking_utils.packed_sequence_compatibility_function(window, places, texts)
    elif change == "cached":
        options |= {"q_length": 1, "q_offset": 89}
    else:
        options |= {"kv_length": 100}
    made = [AttentionMaskInterface()[name](**options, allow_is_causal_skip=False) for name in (WINDOW, "sdpa")]
    assert torch.equal(*made)


# ------ use


def modernbert(**fields: Any) -> tuple[nn.Module, nn.Module]:
    return pair("modernbert", "ModernBertConfig", {**ENCODERS["modernbert"][1], **fields})


@torch.no_grad()
def test_no_tensor_of_a_windowed_layer_has_n_times_n_numbers() -> None:
    _, model = modernbert(layer_types=["sliding_attention"] * 3)
    largest = []
    for length in (1024, 2048):
        with LargestTensor() as watch:
            model(input_ids=torch.ones(1, length).long())
        largest.append(watch.numbers)
    # transformers makes a mask for global layers too, without padding a view of one number.
    assert largest[1] <= 2 * largest[0] < 1024**2 // 4


@torch.no_grad()
def test_a_saved_model_loads_with_it_by_name(tmp_path: Path) -> None:
    stock, _ = modernbert()
    stock.save_pretrained(tmp_path)
    model = AutoModel.from_pretrained(tmp_path, attn_implementation=WINDOW)
    ids = torch.randint(3, 50, (1, 90))
    torch.testing.assert_close(model(ids).last_hidden_state, stock(ids).last_hidden_state, atol=1e-5, rtol=0)
    model.set_attn_implementation("sdpa")
    assert torch.equal(model(ids).last_hidden_state, stock(ids).last_hidden_state)


@torch.no_grad()
def test_a_compiled_model_computes_the_same() -> None:
    stock, model = modernbert()
    ids = torch.randint(3, 50, (1, 90))
    found = compiled(model)(ids).last_hidden_state
    torch.testing.assert_close(found, stock(ids).last_hidden_state, atol=1e-5, rtol=0)


@torch.no_grad()
def test_a_decoder_generates_the_same() -> None:
    config = {**TINY, **DECODERS["ministral"][1]}
    models = []
    for implementation in ("sdpa", WINDOW):
        torch.manual_seed(0)
        made = transformers.MinistralConfig(**config)
        models.append(transformers.MinistralForCausalLM._from_config(made, attn_implementation=implementation).eval())
    randomise(models[0], seed=1)
    models[1].load_state_dict(models[0].state_dict())
    ids = torch.randint(3, 50, (2, 60), generator=torch.Generator().manual_seed(0))
    made = [model.generate(ids, max_new_tokens=8, do_sample=False) for model in models]
    assert torch.equal(*made)
