"""The BiLSTM against its reference, and what every encoder promises."""

from pathlib import Path

import pytest
import torch
from common import (
    TINY,
    assert_close,
    assert_gradients_close,
    gradients,
    named_outputs,
    padded,
    random_batch,
    tiny_model,
)
from encoder_contract import TwoDirectionContract
from hypothesis import strategies as st
from samples import assert_identical
from torch_modes import compiled


class TestBiLstm(TwoDirectionContract):
    """Its promises."""

    stem = "BiLstm"
    has_attention = False
    own_variants = {"mean": {"pooling": "mean"}, "one direction": {"bidirectional": False}}
    config_options = st.fixed_dictionaries(
        {
            "hidden_size": st.sampled_from([6, 12]),
            "num_hidden_layers": st.integers(1, 3),
            "embedding_size": st.sampled_from([None, 3]),
            "type_vocab_size": st.sampled_from([0, 2]),
            "position_embedding_type": st.sampled_from(["learned", "sinusoidal", "none"]),
            "pair_mode": st.sampled_from(["cross", "siamese"]),
            "hidden_act": st.sampled_from(["relu", "gelu", "silu"]),
            "pooling": st.sampled_from(["max", "mean"]),
            "bidirectional": st.booleans(),
        }
    )

    # torch.compile leaves the LSTMs out of its graphs, and torch.export knows them for one length.
    test_one_compiled_graph_serves_every_shape = None
    test_an_exported_model_serves_every_shape = None

    @pytest.mark.slow
    def test_a_compiled_model_equals_the_eager_one(self, ending: str) -> None:
        model = self.model(ending)
        leaves = dict(model.named_parameters())
        inputs = random_batch(padded([3, 0, 5], 6, "holes")).inputs()
        expected, actual = (named_outputs(call(**inputs)) for call in (model, compiled(model, fullgraph=False)))
        assert_close(actual, expected, 1e-5)
        assert_gradients_close(gradients(actual, leaves), gradients(expected, leaves), 1e-5)


@pytest.mark.parametrize("bidirectional", [True, False])
def test_it_is_the_lstm_of_torch(bidirectional: bool) -> None:
    model = tiny_model("BiLstm", num_hidden_layers=3, bidirectional=bidirectional)
    d = TINY["hidden_size"]
    width = d // 2 if bidirectional else d
    whole = torch.nn.LSTM(d, width, num_layers=3, batch_first=True, bidirectional=bidirectional)
    weights = {
        name.replace("_l0", f"_l{step}"): x
        for step, layer in enumerate(model.layers)
        for name, x in layer.lstm.state_dict().items()
    }
    whole.load_state_dict(weights)
    batch = random_batch(padded([5, 5], 5, "right"), width=d)
    torch.testing.assert_close(model(**batch.inputs()).last_hidden_state, whole(batch.inputs_embeds)[0])


def test_states_of_the_last_layer_are_not_dropped() -> None:
    inputs = random_batch(padded([6, 6], 6, "right")).inputs()
    for layers in (1, 2):
        model = tiny_model("BiLstm", num_hidden_layers=layers, hidden_dropout_prob=0.5)
        first, second = (model(**inputs).last_hidden_state for _ in range(2))
        assert first.all()
        assert torch.equal(first, second) == (layers == 1)


def test_weights_that_share_a_block_of_memory_as_on_a_gpu_are_saved(tmp_path: Path) -> None:
    model = tiny_model("BiLstm", "ForTokenClassification")
    for layer in model.model.layers:
        weights = list(layer.lstm.parameters())
        block = torch.cat([weight.detach().flatten() for weight in weights])
        for weight, part in zip(weights, block.split([weight.numel() for weight in weights]), strict=True):
            weight.data = part.view_as(weight)
    model.save_pretrained(tmp_path)
    loaded, info = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    assert_identical(loaded.state_dict(), model.state_dict())


@pytest.mark.parametrize("bidirectional", [True, False])
def test_packed_rows_for_cudnn_give_the_same_states(bidirectional: bool) -> None:
    lstm = tiny_model("BiLstm", bidirectional=bidirectional).layers[0].lstm
    rows, lengths = torch.randn(3, 5, TINY["hidden_size"]), torch.tensor([2, 5, 3])
    states, packed = lstm(rows, lengths), lstm._packed(rows, lengths)
    for row, length in enumerate(lengths):
        torch.testing.assert_close(packed[row, :length], states[row, :length])
