"""The Star-Transformer against Algorithm 1, its receptive field, and the contract of every encoder."""

from typing import Any

import pytest
import torch
from common import (
    HEADS,
    assert_close,
    assert_same_without_rows,
    difference,
    gradients,
    padded,
    random_batch,
    tiny_model,
)
from encoder_contract import RECORD, EncoderContract
from hypothesis import strategies as st
from torch import Tensor

from modeling_star import StarTransformerConfig


class TestStarTransformer(EncoderContract):
    """The contract, over the variants of design and paper."""

    stem = "StarTransformer"
    attentions_have_gradients = True
    second_derivatives = "recorded"
    position_types = ("learned", "sinusoidal", "none", "ring")
    own_variants = {
        "ring positions": {"position_embedding_type": "ring"},
        "without ring": {"use_ring": False},
        "two neighbours on either side": {"ring_radius": 2, "position_embedding_type": "ring"},
        "without radial": {"use_radial": False},
        "without either": {"use_ring": False, "use_radial": False},
        "residual": {"residual": True},
        "norm at the relay's start": {"relay_start_norm": True},
        "mean": {"pooling": "mean"},
        "other head width": {"num_attention_heads": 3, "head_dim": 5},
    }
    main_variants = ("default", "without radial")
    config_options = st.fixed_dictionaries(
        {
            "hidden_size": st.sampled_from([4, 8]),
            "num_attention_heads": st.integers(1, 3),
            "head_dim": st.integers(1, 4),
            "num_hidden_layers": st.integers(1, 3),
            "embedding_size": st.sampled_from([None, 3]),
            "type_vocab_size": st.sampled_from([0, 2]),
            "position_embedding_type": st.sampled_from(["learned", "sinusoidal", "none", "ring"]),
            "use_ring": st.booleans(),
            "ring_radius": st.integers(1, 3),
            "use_radial": st.booleans(),
            "relay_start_norm": st.booleans(),
            "residual": st.booleans(),
            "pooling": st.sampled_from(["max", "mean"]),
            "pair_mode": st.sampled_from(["cross", "siamese"]),
            "hidden_act": st.sampled_from(["relu", "gelu", "silu"]),
        }
    )

    def attention_shape(self, config: Any, b: int, n: int) -> tuple[int, ...]:
        neighbours = 2 * config.ring_radius if config.use_ring else 0
        return (b, config.num_attention_heads, n, neighbours + 2 + config.use_radial)

    def has_gradient(self, config: Any, name: str) -> bool:
        # C_1 = [h; e] and h = e: the same twice, between which there is nothing to choose.
        nothing_to_choose = (
            not config.use_ring and not config.use_radial and (config.num_hidden_layers == 1 or "layers.0" in name)
        )
        if nothing_to_choose and ("projections.query" in name or "projections.key" in name):
            return False
        return super().has_gradient(config, name)


# ------ rows


VARIANTS_BY_ROW: tuple[dict[str, Any], ...] = (
    {},
    {"residual": True},
    {"use_ring": False},
    {"ring_radius": 3, "position_embedding_type": "ring"},
    {"use_radial": False},
)


@pytest.mark.parametrize("options", VARIANTS_BY_ROW, ids=str)
def test_candidates_by_row_have_the_values_and_gradients_of_gathered_ones(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_same_without_rows(tiny_model("StarTransformer", **options).double(), monkeypatch)


# ------ recorded attentions of the relay


@pytest.mark.parametrize("padding", ["right", "left", "holes"])
def test_relay_attentions_start_with_the_relay_and_skip_padding(padding: str) -> None:
    model = tiny_model("StarTransformer")
    mask = padded([4, 0, 1, 6], 6, padding)
    output = model(**random_batch(mask).inputs(), **RECORD)
    assert len(output.relay_attentions) == model.config.num_hidden_layers
    for weights in output.relay_attentions:
        assert weights.shape == (4, model.config.num_attention_heads, 7)
        real = mask.any(1)
        torch.testing.assert_close(weights.sum(-1), real[:, None].expand(4, 2).float())
        attended = torch.cat([real[:, None], mask], dim=1)
        assert torch.equal(weights > 0, attended[:, None].expand_as(weights))


@pytest.mark.parametrize("name", ["key", "value"])
def test_a_hook_that_changes_what_is_read_without_a_call_is_refused(name: str) -> None:
    model, inputs = tiny_model("StarTransformer", "Model"), random_batch(padded([3, 5], 6, "holes")).inputs()
    layer = next(module for path, module in model.named_modules() if path.endswith(f"projections.{name}"))
    layer.register_forward_hook(lambda module, args, output: 2 * output)
    with pytest.raises(TypeError, match=rf"projections\.{name}"):
        model(**inputs)


def test_without_radial_connections_there_is_no_relay() -> None:
    model = tiny_model("StarTransformer", use_radial=False)
    output = model(**random_batch(padded([4], 4, "right")).inputs(), **RECORD)
    assert output.relay_state is None
    assert output.relay_attentions is None
    assert torch.equal(output.pooler_output, output.last_hidden_state.amax(1))


def test_padding_takes_no_part_in_the_computation() -> None:
    model = tiny_model("StarTransformer")
    counts: list[int] = []
    for layer in model.layers:
        layer.ring_attention.register_forward_hook(lambda _, inputs, __: counts.append(len(inputs[0].tokens)))
    mask = padded([3, 0, 7], 12, "holes")
    model(**random_batch(mask).inputs())
    assert counts == [10, 10]


# ------ pairs


def test_the_two_texts_of_a_siamese_pair_are_read_as_if_alone() -> None:
    model = tiny_model("StarTransformer", pair_mode="siamese", type_vocab_size=2)
    ids = torch.tensor([[3, 4, 5, 6, 7, 0]])
    types = torch.tensor([[0, 0, 1, 1, 1, 0]])
    mask = torch.tensor([[1, 1, 1, 1, 1, 0]])
    pair = model(ids, mask, types)
    for text, columns in enumerate([slice(0, 2), slice(2, 5)]):
        alone = model(ids[:, columns], token_type_ids=types[:, columns])
        assert difference(pair.last_hidden_state[:, columns], alone.last_hidden_state) <= 1e-6
        for name in ("pooler_output", "relay_state"):
            assert difference(pair[name][:, text], alone[name][:, text]) <= 1e-6


# ------ symmetries


def turned(positions: str, order: Tensor, **options: Any) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Outputs for seven tokens and for the same tokens in another order, tokens and relay apart."""
    model = tiny_model("StarTransformer", position_embedding_type=positions, dtype=torch.float64, **options)
    ids = torch.tensor([[1, 5, 2, 7, 3, 4, 9]])
    straight, other = model(ids), model(ids[:, order])
    sequence = {"relay": straight.relay_state, "pooled": straight.pooler_output}
    sequence_other = {"relay": other.relay_state, "pooled": other.pooler_output}
    return (
        {"tokens": straight.last_hidden_state[:, order], **sequence},
        {"tokens": other.last_hidden_state, **sequence_other},
    )


@pytest.mark.parametrize("positions", ["none", "ring"])
def test_rotating_a_sequence_rotates_its_satellites_and_leaves_its_relay(positions: str) -> None:
    straight, other = turned(positions, torch.arange(7).roll(3), num_hidden_layers=3)
    assert_close(other, straight, 1e-10)


@pytest.mark.parametrize("positions", ["none", "ring"])
def test_without_ring_and_positions_a_sequence_is_a_set(positions: str) -> None:
    order = torch.tensor([3, 0, 6, 2, 5, 1, 4])
    straight, other = turned(positions, order, use_ring=False)
    assert_close(other, straight, 1e-10)
    straight, other = turned(positions, order)
    assert difference(other["tokens"], straight["tokens"]) > 1e-3


# ------ receptive field


def seen(n: int, **options: Any) -> tuple[Tensor, Tensor | None]:
    """Which embeddings reach which satellites `[n, n]` and the relay `[n]`, by gradient, in a row with padding."""
    # ReLU lets no gradient through where it is 0; GELU does.
    model = tiny_model("StarTransformer", hidden_act="gelu", dtype=torch.float64, **options)
    batch = random_batch(padded([n], n + 2, "holes"), width=8, dtype=torch.float64)
    output = model(**batch.inputs())
    real = batch.attention_mask[0]

    def reach(state: Tensor) -> Tensor:
        return gradients({"state": state}, {"e": batch.inputs_embeds})["e"][0, real].abs().sum(-1) > 0

    satellites = torch.stack([reach(state) for state in output.last_hidden_state[0, real]])
    return satellites, None if output.relay_state is None else reach(output.relay_state)


@pytest.mark.parametrize(("layers", "radius"), [(1, 1), (2, 1), (3, 1), (1, 3), (2, 2)])
@pytest.mark.parametrize("residual", [False, True])
def test_without_radial_connections_a_satellite_sees_as_far_as_the_radius_a_layer(
    layers: int, radius: int, residual: bool
) -> None:
    n = 9
    satellites, _ = seen(n, use_radial=False, num_hidden_layers=layers, ring_radius=radius, residual=residual)
    apart = (torch.arange(n)[:, None] - torch.arange(n)).abs()
    assert torch.equal(satellites, torch.minimum(apart, n - apart) <= layers * radius)


def test_roles_are_named_from_left_to_right() -> None:
    assert StarTransformerConfig().candidate_roles == ("left", "self", "right", "embedding", "relay")
    assert StarTransformerConfig(ring_radius=2, use_radial=False).candidate_roles == (
        *("left_2", "left", "self", "right", "right_2"),
        "embedding",
    )
    assert StarTransformerConfig(ring_radius=2, use_ring=False).candidate_roles == ("self", "embedding", "relay")


# ------ weights


def test_token_heads_have_no_last_relay_update() -> None:
    names = dict(tiny_model("StarTransformer", HEADS[1]).named_parameters())
    assert any(name.startswith("model.layers.0.relay_attention") for name in names)
    assert not any(name.startswith(("model.layers.1.relay_attention", "model.layers.1.relay_norm")) for name in names)
