"""The standard Transformer encoder against its reference, and the contract of every encoder."""

from typing import Any

import pytest
import torch
from common import (
    Adapter,
    LinearAdapter,
    assert_close,
    difference,
    named_outputs,
    padded,
    random_batch,
    tiny_model,
)
from encoder_contract import BERT_INSIDE, RECORD, PeerContract
from hypothesis import strategies as st
from torch import nn
from torch_modes import compiled


class TestVanillaTransformer(PeerContract):
    """Its promises."""

    stem = "VanillaTransformer"
    second_derivatives = "none"
    config_options = st.fixed_dictionaries(
        {
            "hidden_size": st.sampled_from([6, 12]),
            "num_attention_heads": st.integers(1, 3),
            "intermediate_size": st.sampled_from([None, 5]),
            "num_hidden_layers": st.integers(0, 3),
            "embedding_size": st.sampled_from([None, 3]),
            "type_vocab_size": st.sampled_from([0, 2]),
            "position_embedding_type": st.sampled_from(["learned", "sinusoidal", "none"]),
            "pair_mode": st.sampled_from(["cross", "siamese"]),
            "hidden_act": st.sampled_from(["relu", "gelu", "silu"]),
        }
    )

    def attention_shape(self, config: Any, b: int, n: int) -> tuple[int, ...]:
        return (b, config.num_attention_heads, n, n)


@pytest.mark.parametrize("recorded", [False, True], ids=["packed", "padded"])
@pytest.mark.parametrize("hidden_act", ["relu", "gelu"])
def test_the_fused_inference_of_torch_equals_the_training_path(recorded: bool, hidden_act: str) -> None:
    # torch replaces these two activations' layers by one fused call in eval mode without gradients.
    model = tiny_model("VanillaTransformer", hidden_act=hidden_act)
    inputs = random_batch(padded([4, 0, 6, 1], 7, "holes")).inputs()
    record = RECORD if recorded else {}
    expected = named_outputs(model(**inputs, **record))
    with torch.no_grad():
        assert_close(named_outputs(model.eval()(**inputs, **record)), expected, 1e-5)


@pytest.mark.parametrize("name", ["linear1", "linear2", "norm1", "norm2"])
def test_an_adapter_in_a_layer_counts_in_evaluation_as_in_training(name: str) -> None:
    model = tiny_model("VanillaTransformer")
    inputs = random_batch(padded([4, 0, 6, 1], 7, "holes")).inputs()
    plain = named_outputs(model(**inputs))
    for layer in model.layers:
        setattr(layer.layer, name, Adapter(getattr(layer.layer, name)))
    trained = named_outputs(model(**inputs))
    assert difference(trained["last_hidden_state"], plain["last_hidden_state"]) > 1e-2
    with torch.no_grad():
        assert_close(named_outputs(model.eval()(**inputs)), trained, 1e-5)
        for layer in model.layers:
            getattr(layer.layer, name).scale.fill_(1.0)
        # The parts that are called are those of torch's own layer.
        assert_close(named_outputs(model(**inputs)), plain, 1e-5)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", [Adapter, LinearAdapter])
def test_an_adapter_that_torch_would_not_call_is_refused(kind: type[nn.Module], training: bool) -> None:
    model = tiny_model("VanillaTransformer").train(training)
    attention = model.layers[0].layer.self_attn
    attention.out_proj = kind(attention.out_proj)
    with pytest.raises(TypeError, match="out_proj"):
        model(torch.tensor([[5, 6]]))


def test_the_default_feed_forward_layer_is_four_times_as_wide() -> None:
    assert tiny_model("VanillaTransformer").layers[0].layer.linear1.out_features == 32


@pytest.mark.parametrize("options", [{"pair_mode": "siamese"}, BERT_INSIDE], ids=["siamese", "BERT inside"])
def test_a_compiled_pass_imports_what_only_some_models_have(
    options: dict[str, Any],
) -> None:
    made = {name: value() if callable(value) else value for name, value in options.items()}
    model = tiny_model("VanillaTransformer", **made)
    inputs = random_batch(padded([3, 0, 5], 6, "holes")).inputs()
    assert_close(named_outputs(compiled(model)(**inputs)), named_outputs(model(**inputs)), 1e-5)
