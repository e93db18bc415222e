"""
The contract of every encoder, as tests that the test file of an encoder inherits:

    class TestStarTransformer(EncoderContract):
        stem = "StarTransformer"
"""

import contextlib
import copy
import itertools
from functools import partial
from typing import Any, ClassVar, Literal

import pytest
import torch
from common import (
    EVERY_MODEL,
    HEADS,
    TINY,
    Batch,
    assert_close,
    assert_equals_reference,
    assert_gradients_close,
    difference,
    examples,
    gradients,
    labels_of,
    linear_layers,
    masks,
    named_outputs,
    padded,
    random_batch,
    tiny_bert,
    tiny_model,
    trained_by,
    weighted_sum,
)
from hypothesis import given
from hypothesis import strategies as st
from loss_contract import SEQUENCE, SPAN, TOKEN, LossContract
from reference import sinusoid
from samples import CHARACTERS, SPELLED, tier, word_tokenizer
from torch import Tensor, nn
from torch.nn.utils import prune
from torch_modes import GpuAutocast, compiled
from transformers import PreTrainedModel

from modeling_star.models import ops
from modeling_star.models.token_layout import fixed_shapes


RECORD = {"output_hidden_states": True, "output_attentions": True}
BERT_INSIDE = {"backbone_config": tiny_bert, "position_embedding_type": "none"}
# About ten times what rounding costs at the start of a training.
HALF_TOLERANCES = {torch.bfloat16: 0.1, torch.float16: 0.02}


def width_of_vectors(model: Any) -> int | None:
    """The width of `inputs_embeds`; `None` for a model that reads the spelling of ids."""
    return None if model.config.char_features else model.config.embedding_size


def leaves_of(model: Any, batch: Any) -> dict[str, Tensor]:
    """Parameters, and vectors where they are given in place of ids."""
    vectors = {} if batch.inputs_embeds is None else {"inputs_embeds": batch.inputs_embeds}
    return {**dict(model.named_parameters()), **vectors}


class EncoderContract(LossContract):
    """
    Tests of one encoder and its heads.

    Attributes:
        stem: start of its class names.
        config_options: strategy for the options that it is compared with the reference over.
        position_types: what `position_embedding_type` may be.
        has_attention: whether there are attention weights to drop and to record.
        attentions_have_gradients: whether the output is made from the recorded attention weights.
        second_derivatives: "all"; "recorded", where attentions are; or "none", as torch's own attention has on a CPU.
        shared_variants, own_variants: options that every encoder has, and those of this one, by a name in words.
        tested_variants: the names of those that are tried; by default all.
        main_variants: those with code of their own in the layers: precision, pruning and records are tried on them.
    """

    stem: ClassVar[str]
    config_options: ClassVar[st.SearchStrategy[dict[str, Any]]]
    position_types: ClassVar[tuple[str, ...]] = ("learned", "sinusoidal", "none")
    has_attention: ClassVar[bool] = True
    attentions_have_gradients: ClassVar[bool] = False
    second_derivatives: ClassVar[Literal["all", "recorded", "none"]] = "all"
    shared_variants: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},
        "sinusoidal": {"position_embedding_type": "sinusoidal"},
        "token types, n-grams": {
            **{"type_vocab_size": 2, "position_embedding_type": "none"},
            **{"ngram_buckets": 32, "max_ngram_length": 3, "ngram_dropout": 0.0},
        },
        "projected": {"embedding_size": 5},
        "siamese": {"pair_mode": "siamese", "type_vocab_size": 2},
        "BERT inside": BERT_INSIDE,
        "characters and CRF": {**CHARACTERS, "use_crf": True, "tokenizer": lambda: word_tokenizer(SPELLED)},
    }
    own_variants: ClassVar[dict[str, dict[str, Any]]] = {}
    tested_variants: ClassVar[tuple[str, ...]] = ()
    main_variants: ClassVar[tuple[str, ...]] = ("default",)

    def attention_shape(self, config: Any, b: int, n: int) -> tuple[int, ...]:
        """Shape of the `attentions` of each layer, given by the tests of each encoder."""
        raise TypeError(f"{type(self).__name__} defines no attention_shape(config, b, n).")

    def has_gradient(self, config: Any, name: str) -> bool:
        """Whether a parameter changes anything; BERT's key biases and the bias of span scores cancel in a softmax."""
        return not ("backbone" in name and name.endswith("key.bias")) and name != "qa_outputs.bias"

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Every combination of the values that a test takes."""
        variants = self.tested_variants or {**self.shared_variants, **self.own_variants}
        cases: dict[str, tuple[Any, ...]] = {
            "variant": tuple(variants),
            "main": self.main_variants,
            "embeddings": ("default", "projected", "BERT inside"),
            "padding": ("right", "left", "holes"),
            "recorded": (False, True),
            "mode": ("training", "inference", "without sparse rows", "fixed shapes"),
            "ending": EVERY_MODEL,
            "head": HEADS,
            "dropout": ("embedding_dropout_prob", "hidden_dropout_prob", "classifier_dropout"),
        }
        if self.has_attention:
            cases["dropout"] += ("attention_probs_dropout_prob",)
        axes = {name: values for name, values in cases.items() if name in metafunc.fixturenames}
        if axes:
            first = [values[0] for values in axes.values()]
            combinations = itertools.product(*axes.values())
            metafunc.parametrize(list(axes), [pytest.param(*each, marks=tier(each, first)) for each in combinations])

    def model(self, ending: str = "Model", variant: str = "default", **options: Any) -> PreTrainedModel:
        given = {**{**self.shared_variants, **self.own_variants}[variant], **options}
        # Models write into a configuration, so that one inside another is made anew.
        given = {name: value() if callable(value) else value for name, value in given.items()}
        return tiny_model(self.stem, ending, **given)

    def prepare(self, data: st.DataObject, model: PreTrainedModel, batch: Batch) -> None:
        """Add the inputs that only this encoder takes to a model and a batch that are compared with the reference."""

    def sums_of_attention(self, config: Any, mask: Tensor, sums: Tensor) -> Tensor:
        """The sum that the weights of each token must have, `[b, n]`; `sums` are the actual ones."""
        return mask.float()

    # ------ equality with tests/reference.py, in values and in gradients

    def compare(self, data: st.DataObject, ending: str, dtype: torch.dtype, tolerance: float) -> None:
        options, mask, seed = data.draw(self.config_options), data.draw(masks()), data.draw(st.integers(0, 1000))
        as_vectors, recorded = data.draw(st.booleans()), data.draw(st.booleans())
        options = {**options, "layer_norm_eps": data.draw(st.sampled_from([1e-5, 0.1]))}
        if dtype is torch.float32:
            # Across fewer numbers a LayerNorm may find hardly any variance and make much of a rounding.
            options = {**options, "hidden_size": 24}
        model = tiny_model(self.stem, ending, seed=seed, dtype=dtype, **options)
        batch = random_batch(mask, seed, model.config.embedding_size if as_vectors else None, dtype)
        self.prepare(data, model, batch)
        assert_equals_reference(model, batch, tolerance, recorded, seed)

    @given(data=st.data())
    @examples(60)
    def test_the_encoder_equals_the_reference_to_1e10_in_float64(self, data: st.DataObject) -> None:
        self.compare(data, "Model", torch.float64, 1e-10)

    @given(data=st.data())
    @examples(30)
    def test_the_encoder_equals_the_reference_to_1e5_in_float32(self, data: st.DataObject) -> None:
        self.compare(data, "Model", torch.float32, 1e-5)

    @given(data=st.data())
    @examples(10)
    def test_each_head_equals_the_reference_to_1e10_in_float64(self, head: str, data: st.DataObject) -> None:
        self.compare(data, head, torch.float64, 1e-10)

    @pytest.mark.parametrize("n", [1, 2, 3])
    def test_the_shortest_sequences_equal_the_reference(self, n: int) -> None:
        model = self.model(dtype=torch.float64)
        batch = random_batch(torch.ones(1, n), width=TINY["hidden_size"], dtype=torch.float64)
        assert_equals_reference(model, batch, 1e-10, recorded=True)

    # ------ padding and the rest of the batch

    def test_keeping_padding_changes_neither_values_nor_gradients(self, variant: str) -> None:
        model = self.model(variant=variant, dtype=torch.float64)
        batch = random_batch(padded([0, 1, 2, 3, 6], 7, "holes"), 0, width_of_vectors(model), torch.float64)
        leaves = leaves_of(model, batch)
        packed = named_outputs(model(**batch.inputs()))
        kept = named_outputs(model(**batch.inputs(), **RECORD))
        kept = {name: kept[name] for name in packed}
        assert_close(kept, packed, 1e-10)
        assert_gradients_close(gradients(kept, leaves), gradients(packed, leaves), 1e-10)

    def test_a_sentence_is_the_same_alone_and_in_a_batch(self, variant: str, padding: str) -> None:
        model = self.model(variant=variant, hidden_size=24, dtype=torch.float64)
        leaves = dict(model.named_parameters())
        batch = random_batch(padded([3, 1, 7, 0, 2], 9, padding))

        def sentence(output: Any, row: int, columns: Any) -> dict[str, Tensor]:
            named = {"tokens": output.last_hidden_state[row, columns], "pooled": output.pooler_output[row]}
            return named if output.relay_state is None else {**named, "relay": output.relay_state[row]}

        together = model(**batch.inputs())
        in_batch: dict[str, Tensor] = {}
        alone: dict[str, Tensor] = {}
        for row, real in enumerate(batch.attention_mask):
            if real.any():
                output = model(**{name: x[row, real][None] for name, x in batch.inputs().items()})
                alone |= {f"{name} {row}": x for name, x in sentence(output, 0, slice(None)).items()}
                in_batch |= {f"{name} {row}": x for name, x in sentence(together, row, real).items()}
        assert_close(in_batch, alone, 1e-10)
        assert_gradients_close(gradients(in_batch, leaves), gradients(alone, leaves), 1e-10)

    def test_tokens_at_padding_change_nothing(self, main: str, recorded: bool) -> None:
        model = self.model(variant=main)
        batch = random_batch(padded([4, 0, 1, 6], 6, "holes"))
        others = random_batch(batch.attention_mask, seed=1)
        inputs, record = batch.inputs(), RECORD if recorded else {}
        before = named_outputs(model(**inputs, **record))
        for name in ("input_ids", "token_type_ids"):
            inputs[name] = torch.where(batch.attention_mask, inputs[name], others.inputs()[name])
        assert not torch.equal(inputs["input_ids"], batch.input_ids)
        assert_close(named_outputs(model(**inputs, **record)), before, 0.0)

    def test_what_is_no_number_changes_no_bit_of_other_texts_and_shows_in_its_own(
        self, main: str, recorded: bool, mode: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model, nan, inf = self.model(variant=main), TINY["vocab_size"] - 1, TINY["vocab_size"] - 2
        mask = padded([7, 3, 0, 1, 6], 8, "holes")
        inputs = random_batch(mask).inputs()
        ids = inputs["input_ids"] % inf
        ids[0, mask[0].nonzero()[3]], ids[4, mask[4].nonzero()[0]] = nan, inf
        inputs["input_ids"] = ids.masked_fill(~mask, nan)  # at padding too
        if mode == "without sparse rows":
            monkeypatch.setattr(ops, "rows_apply", lambda states: False)

        def outputs() -> dict[str, Tensor]:
            shapes = fixed_shapes({}) if mode == "fixed shapes" else contextlib.nullcontext()
            with torch.set_grad_enabled(mode == "training"), shapes:
                return named_outputs(model(**inputs, **(RECORD if recorded else {})))

        expected = outputs()
        with torch.no_grad():
            model.get_input_embeddings().weight[nan] = torch.nan
            model.get_input_embeddings().weight[inf] = torch.inf
        for name, actual in outputs().items():
            assert torch.equal(actual[1:4], expected[name][1:4]), name
            if name in ("last_hidden_state", "pooler_output"):
                assert not actual[0].isfinite().all(), name
                assert not actual[4].isfinite().all(), name

    @pytest.mark.parametrize("lengths", [[0, 3, 0], [0]], ids=["some", "all"])
    def test_rows_of_padding_give_zeros_and_finite_gradients(self, variant: str, lengths: list[int]) -> None:
        model = self.model(variant=variant)
        batch = random_batch(padded(lengths, 4, "right"), width=width_of_vectors(model))
        leaves = leaves_of(model, batch)
        outputs = named_outputs(model(**batch.inputs()))
        empty = torch.tensor([length == 0 for length in lengths])
        for name, output in outputs.items():
            assert not output[empty].any(), name
            assert output.isfinite().all(), name
        for name, gradient in gradients(outputs, leaves).items():
            assert gradient.isfinite().all(), name
            assert gradient.any() or not name.endswith("embeds") or empty.all(), name

    def test_a_head_learns_nothing_broken_from_a_batch_of_padding(self, head: str) -> None:
        model = self.model(head)
        batch = random_batch(padded([0, 0], 3, "right"))
        labels = labels_of(head, batch)
        # Some head must have something to learn from, or the loss is the mean of nothing.
        labels["labels" if "labels" in labels else "start_positions"][0] = 1
        model(**batch.inputs(), **labels).loss.backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())

    # ------ shapes of the outputs

    def test_recorded_states_have_the_shapes_of_the_padded_batch(self, main: str, padding: str) -> None:
        model = self.model(variant=main)
        mask = padded([4, 0, 1, 6], 6, padding)
        output = model(**random_batch(mask).inputs(), **RECORD)
        (b, n), config = mask.shape, model.config
        assert len(output.hidden_states) == config.num_hidden_layers + 1
        for states in output.hidden_states:
            assert states.shape == (b, n, config.hidden_size)
            assert torch.equal(states.abs().sum(-1) > 0, mask)
        assert torch.equal(output.hidden_states[-1], output.last_hidden_state)
        if not self.has_attention:
            assert output.attentions is None
            return
        assert len(output.attentions) == config.num_hidden_layers
        for weights in output.attentions:
            assert weights.shape == self.attention_shape(config, b, n)
            # Zeros at padding, and each real token shares out a whole.
            for sums in weights.sum(-1).unbind(1):
                torch.testing.assert_close(sums, self.sums_of_attention(config, mask, sums))

    def test_recorded_states_have_gradients(self, main: str) -> None:
        model, mask = self.model(variant=main), padded([4, 0, 1, 6], 6, "holes")
        batch = random_batch(mask)
        output = model(**batch.inputs(), **RECORD)
        config = model.config
        weights = output.attentions if self.attentions_have_gradients and config.candidate_roles else ()
        if getattr(config, "global_node", None) == "first":
            weights = ()  # those of the first token are set to 0 afterwards
        for recorded in (*output.hidden_states, *weights):
            recorded.retain_grad()
        weighted_sum({"tokens": output.last_hidden_state, "pooled": output.pooler_output}).backward()
        for states in output.hidden_states:
            assert torch.equal(states.grad.abs().sum(-1) > 0, mask)
        for recorded in weights:
            assert recorded.grad.abs().sum() > 0
            assert not recorded.grad.transpose(1, 2)[~mask].any()

    def test_a_head_returns_the_records_of_its_encoder(self, head: str) -> None:
        model, batch = self.model(head), random_batch(padded([4, 2], 4, "left"))
        output, inner = model(**batch.inputs(), **RECORD), model.model(**batch.inputs(), **RECORD)
        for name in ("hidden_states", *(("attentions",) if self.has_attention else ())):
            assert len(output[name]) == len(inner[name])
            assert all(map(torch.equal, output[name], inner[name])), name

    def test_recording_can_be_requested_in_the_configuration(self, ending: str) -> None:
        model, batch = self.model(ending, output_hidden_states=True), random_batch(padded([4, 2], 4, "left"))
        assert len(model(**batch.inputs()).hidden_states) == model.config.num_hidden_layers + 1
        assert model(**batch.inputs(), output_hidden_states=False).get("hidden_states") is None
        if self.has_attention:
            model = self.model(ending, output_attentions=True)
            assert len(model(**batch.inputs()).attentions) == model.config.num_hidden_layers
            assert model(**batch.inputs(), output_attentions=False).get("attentions") is None

    def test_a_tuple_holds_the_same_outputs_in_the_same_order(self, ending: str) -> None:
        model, batch = self.model(ending), random_batch(padded([4, 2], 4, "left"))
        labels = {} if ending == "Model" else labels_of(ending, batch)
        given = {**batch.inputs(), **labels, **RECORD}
        plain, named = model(**given, return_dict=False), model(**given)
        assert isinstance(plain, tuple)
        assert len(plain) == len(named)
        for actual, expected in zip(plain, named.to_tuple(), strict=True):
            torch.testing.assert_close(actual, expected, rtol=0, atol=0)

    # ------ positions

    def test_learned_positions_end_where_the_table_ends(self, recorded: bool) -> None:
        model = self.model(position_embedding_type="learned", max_position_embeddings=4)
        record = RECORD if recorded else {}
        # Only real tokens count.
        model(**random_batch(padded([4], 6, "left")).inputs(), **record)
        with pytest.raises(ValueError, match="max_position_embeddings"):
            model(**random_batch(padded([5, 1], 6, "left")).inputs(), **record)

    def test_a_text_longer_than_the_encoder_inside_takes_is_refused(self, recorded: bool) -> None:
        model = self.model(variant="BERT inside")
        longest = model.config.backbone_config.max_position_embeddings
        record = RECORD if recorded else {}
        model(**random_batch(padded([longest], longest + 2, "left")).inputs(), **record)
        with pytest.raises(ValueError, match=f"{longest + 1} tokens"):
            model(**random_batch(padded([longest + 1], longest + 2, "left")).inputs(), **record)

    def test_sinusoidal_positions_are_those_of_the_formula_at_any_length(self) -> None:
        model = self.model(position_embedding_type="sinusoidal", sinusoidal_base=100.0, dtype=torch.float64)
        n, d = 600, TINY["hidden_size"]
        added = model(inputs_embeds=torch.zeros(1, n, d).double(), output_hidden_states=True).hidden_states[0][0]
        for position in (0, 1, 7, n - 1):
            assert difference(added[position], sinusoid(position, d, 100.0, added)) <= 1e-10

    def test_positions_may_be_given(self, ending: str) -> None:
        model = self.model(ending, position_embedding_type="learned")
        mask = padded([4], 6, "left")
        inputs = random_batch(mask).inputs()
        own = torch.zeros_like(inputs["input_ids"]).masked_scatter(mask, torch.arange(4))
        expected = named_outputs(model(**inputs))
        assert_close(named_outputs(model(**inputs, position_ids=own)), expected, 0.0)
        others = named_outputs(model(**inputs, position_ids=own + 1))
        assert min((others[name] - x).abs().max() for name, x in expected.items()) > 1e-4

    # ------ training

    @pytest.mark.parametrize("layers", [1, 2])
    def test_every_parameter_of_a_head_gets_a_gradient(self, head: str, variant: str, layers: int) -> None:
        model = self.model(head, variant, num_hidden_layers=layers)
        batch = random_batch(padded([5, 6], 7, "holes"))
        model(**batch.inputs(), **labels_of(head, batch)).loss.backward()
        idle = [
            name
            for name, p in model.named_parameters()
            if p.grad is None or (self.has_gradient(model.config, name) and not p.grad.any())
        ]
        assert not idle

    def test_frozen_embeddings_get_no_gradient_and_all_else_does(self, head: str, embeddings: str) -> None:
        model = self.model(head, embeddings, freeze_embeddings=True)
        batch = random_batch(padded([5, 6], 7, "holes"))
        model.train()
        model(**batch.inputs(), **labels_of(head, batch)).loss.backward()
        frozen = {name for name, p in model.named_parameters() if p.grad is None}
        assert frozen == {n for n, _ in model.named_parameters() if "backbone" in n or "word_embeddings" in n}
        assert not any(p.requires_grad for name, p in model.named_parameters() if name in frozen)

    def test_a_frozen_encoder_inside_runs_without_dropout(self) -> None:
        bert = tiny_bert()
        bert.hidden_dropout_prob = 0.5
        for freeze in (False, True):
            model = self.model(variant="BERT inside", backbone_config=copy.deepcopy(bert), freeze_embeddings=freeze)
            model.train()
            inputs = random_batch(padded([5], 5, "right")).inputs()
            assert torch.equal(model(**inputs).pooler_output, model(**inputs).pooler_output) == freeze

    def test_thawed_parameters_inside_are_trained(self) -> None:
        model = self.model(variant="BERT inside", freeze_embeddings=True).train()
        inputs = random_batch(padded([5, 3], 6, "left")).inputs()
        inside = model.embeddings.backbone
        inside.encoder.layer[0].output.dense.weight.requires_grad_(True)  # as an adapter there would
        model(**inputs).last_hidden_state.pow(2).sum().backward()
        assert {name for name, p in inside.named_parameters() if p.grad is not None} == {
            "encoder.layer.0.output.dense.weight"
        }
        assert model.train().embeddings.backbone.training

    def test_reentrant_checkpointing_trains_what_a_frozen_encoder_feeds(self) -> None:
        model = self.model(SEQUENCE, "BERT inside", freeze_embeddings=True)
        batch = random_batch(padded([5, 3], 6, "left"))
        given = {**batch.inputs(), **labels_of(SEQUENCE, batch)}
        expected = trained_by(model, given)
        model.gradient_checkpointing_enable({"use_reentrant": True})
        assert trained_by(model, given) == expected
        model.gradient_checkpointing_disable()
        model.disable_input_require_grads()
        assert trained_by(model, given) == expected
        assert not model.model.embeddings._forward_hooks

    def test_gradients_reach_given_vectors_through_a_frozen_encoder_inside(self) -> None:
        model = self.model(TOKEN, "BERT inside", freeze_embeddings=True)
        vectors = torch.randn(2, 4, model.config.embedding_size, requires_grad=True)
        model(inputs_embeds=vectors).logits.sum().backward()
        assert vectors.grad.abs().sum(-1).min() > 0

    def test_second_derivatives_are_refused_or_right(self) -> None:
        model = self.model(dtype=torch.float64)
        batch = random_batch(padded([5, 3], 6, "right"), 0, model.config.embedding_size, torch.float64)
        inputs = {**batch.inputs(), "inputs_embeds": batch.inputs()["inputs_embeds"].requires_grad_()}
        vectors = inputs["inputs_embeds"]

        def squared_slope(**options: Any) -> Tensor:
            total = model(**inputs, **options).last_hidden_state.pow(3).sum()
            (slope,) = torch.autograd.grad(total, vectors, create_graph=True)
            return slope.pow(2).sum()

        if self.second_derivatives == "recorded":
            with pytest.raises(RuntimeError, match="output_attentions=True"):
                squared_slope()
        elif self.second_derivatives == "none":
            with pytest.raises(RuntimeError, match="is not implemented"):
                torch.autograd.grad(squared_slope(), vectors)
            return
        (curvature,) = torch.autograd.grad(squared_slope(output_attentions=True), vectors)
        if self.second_derivatives == "all":
            (packed,) = torch.autograd.grad(squared_slope(), vectors)
            torch.testing.assert_close(packed, curvature)
        # Along a line, the slope of what was differentiated once.
        step = 1e-6 * torch.randn_like(vectors)
        base = vectors.detach().clone()
        with torch.no_grad():
            vectors.copy_(base + step)
        above = squared_slope(output_attentions=True).detach()
        with torch.no_grad():
            vectors.copy_(base - step)
        below = squared_slope(output_attentions=True).detach()
        torch.testing.assert_close((curvature * step).sum() * 2, above - below, rtol=1e-4, atol=1e-10)

    def test_a_fresh_model_starts_as_configured(self) -> None:
        options = {"hidden_size": 64, "vocab_size": 200, "type_vocab_size": 50, "initializer_range": 0.5}
        model = self.model(SEQUENCE, seed=None, **options)
        for module in model.modules():
            if isinstance(module, nn.Linear):
                bound = (6 / (module.in_features + module.out_features)) ** 0.5
                assert 0.9 * bound < module.weight.abs().max() <= bound
                assert module.bias is None or not module.bias.any()
            elif isinstance(module, nn.Embedding):
                assert 0.4 < module.weight.std() < 0.6
            elif hasattr(module, "weight_ih_l0"):
                for name, parameter in module.named_parameters():
                    bound = (6 / sum(parameter.shape)) ** 0.5
                    if name.startswith("bias"):
                        assert not parameter.any(), name
                    else:
                        assert 0.98 * bound < parameter.abs().max() <= bound, name

    @pytest.mark.parametrize("task", [SEQUENCE, TOKEN, SPAN])
    def test_each_dropout_acts_in_training_alone(self, task: str, dropout: str) -> None:
        # The tokens of one layer read no relay and no pooled vector: their own weights alone can change them.
        layers = 1 if dropout == "attention_probs_dropout_prob" else 2
        model = self.model(task, **{"classifier_dropout": 0.0, "num_hidden_layers": layers, dropout: 0.5})
        inputs = random_batch(padded([6, 5], 6, "right")).inputs()
        torch.manual_seed(0)
        assert not torch.equal(model(**inputs)[0], model(**inputs)[0])
        model.eval()
        assert torch.equal(model(**inputs)[0], model(**inputs)[0])

    def test_heads_drop_as_much_as_the_layers_by_default(self) -> None:
        def dropped(task: str, **options: float) -> list[float]:
            model = self.model(task, **options)
            modules = dict(model.named_modules())
            return [x.p for name, x in modules.items() if isinstance(x, nn.Dropout) and not name.startswith("model.")]

        for task in (SEQUENCE, TOKEN, SPAN):
            assert dropped(task, hidden_dropout_prob=0.5) == [0.5]
            for value in (0.25, 0.0):
                assert dropped(task, hidden_dropout_prob=0.5, classifier_dropout=value) == [value]

    def test_the_hidden_layer_of_a_classifier_is_as_wide_as_configured(self) -> None:
        for value, expected in ({}, TINY["hidden_size"]), ({"classifier_hidden_size": 5}, 5):
            assert self.model(SEQUENCE, **value).classifier.dense.out_features == expected

    @pytest.mark.parametrize("reentrant", [False, True], ids=["not reentrant", "reentrant"])
    def test_gradient_checkpointing_computes_layers_twice_and_gradients_equal(
        self, main: str, reentrant: bool
    ) -> None:
        model = self.model(variant=main)
        leaves = dict(model.named_parameters())
        inputs = random_batch(padded([3, 0, 5], 6, "holes")).inputs()
        calls: list[nn.Module] = []
        for module in model.layers[0].modules():
            # Before, not after: recomputing ends where the last tensor that the gradients need is there.
            module.register_forward_pre_hook(lambda module, _: calls.append(module))
        expected = gradients(named_outputs(model(**inputs)), leaves)  # hooks call what else is read, in another order
        calls.clear()
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        outputs = named_outputs(model(**inputs))
        once = len(calls)
        # Reentrant checkpointing works with backward() only.
        weighted_sum(outputs).backward()
        assert len(calls) > once
        assert_gradients_close({name: leaf.grad for name, leaf in leaves.items()}, expected, 1e-5)

    @pytest.mark.parametrize("dtype", HALF_TOLERANCES, ids=str)
    def test_autocast_stays_close_to_float32(self, head: str, main: str, dtype: torch.dtype) -> None:
        # At the width of 8 that the other tests have, one LayerNorm can make much of a rounding.
        model = self.model(head, main, seed=None, hidden_size=32)
        batch = random_batch(padded([3, 0, 5], 6, "holes"))
        given = {**batch.inputs(), **labels_of(head, batch)}
        expected = model(**given)
        with torch.autocast("cpu", dtype=dtype):
            output = model(**given)
        output.loss.backward()
        assert_close(named_outputs(output), named_outputs(expected), HALF_TOLERANCES[dtype])
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)

    def test_autocast_as_on_a_gpu_stays_close_to_float32(self, head: str, main: str) -> None:
        model = self.model(head, main, seed=None, hidden_size=32).train()
        batch = random_batch(padded([3, 0, 5], 6, "holes"))
        given = {**batch.inputs(), **labels_of(head, batch)}
        expected = model.eval()(**given)
        with torch.autocast("cpu", dtype=torch.bfloat16), GpuAutocast():
            output = model(**given)
        output.loss.backward()
        assert_close(named_outputs(output), named_outputs(expected), HALF_TOLERANCES[torch.bfloat16])

    @pytest.mark.parametrize("dtype", HALF_TOLERANCES, ids=str)
    def test_a_model_in_half_precision_stays_close_to_float32(
        self, main: str, recorded: bool, dtype: torch.dtype
    ) -> None:
        model = self.model(variant=main, seed=None, hidden_size=32)
        inputs = random_batch(padded([3, 0, 5], 6, "holes")).inputs()
        record = RECORD if recorded else {}
        expected = named_outputs(model(**inputs, **record))
        outputs = named_outputs(model.to(dtype)(**inputs, **record))
        assert {x.dtype for x in outputs.values()} == {dtype}
        assert_close(outputs, expected, HALF_TOLERANCES[dtype])

    # ------ layers with more than a weight

    def test_pruned_weights_are_those_that_count(self, main: str, recorded: bool) -> None:
        pruned, loaded = (self.model(SEQUENCE, main, seed=seed) for seed in (1, 2))
        record = RECORD if recorded else {}
        for model, prune_one in ((pruned, partial(prune.l1_unstructured, amount=0.5)), (loaded, prune.identity)):
            for layer in linear_layers(model):
                prune_one(layer, "weight")
        loaded.load_state_dict(pruned.state_dict())
        batch = random_batch(padded([3, 0, 5], 6, "holes"))
        given = {**batch.inputs(), **labels_of(SEQUENCE, batch), **record}
        for layer in linear_layers(pruned):
            prune.remove(layer, "weight")  # an ordinary layer again, with zeros in its weight
        with torch.no_grad():
            expected = named_outputs(pruned(**given))
            assert_close(named_outputs(loaded(**given)), expected, 1e-6)
        for _ in range(2):  # a graph of its own each time
            output = loaded(**given)
            assert_close(named_outputs(output), expected, 1e-6)
            output.loss.backward()
        pruned(**given).loss.backward()
        learning = {name for name, parameter in pruned.named_parameters() if parameter.grad is not None}
        found = {name for name, parameter in loaded.named_parameters() if parameter.grad is not None}
        assert {name.removesuffix("_orig") for name in found} == learning

    def test_hooks_that_watch_change_nothing(self, main: str) -> None:
        model, inputs = self.model(variant=main), random_batch(padded([3, 0, 5], 6, "holes")).inputs()
        seen: set[nn.Module] = set()
        with torch.no_grad():
            expected = named_outputs(model(**inputs))
            for layer in linear_layers(model):
                layer.register_forward_hook(lambda module, args, output: seen.add(module))
            assert_close(named_outputs(model(**inputs)), expected, 1e-5)
        assert seen or not linear_layers(model)

    def test_embeddings_and_each_layer_stay_on_one_device(self, ending: str) -> None:
        model = self.model(ending)
        whole = (model.base_model.embeddings, *model.base_model.layers)
        assert {type(module).__name__ for module in whole} <= set(model._no_split_modules)

    # ------ tracing

    @pytest.mark.slow
    def test_a_compiled_model_equals_the_eager_one(self, ending: str) -> None:
        model = self.model(ending)
        leaves = dict(model.named_parameters())
        inputs = random_batch(padded([3, 0, 5], 6, "holes")).inputs()
        calls = (model, compiled(model))
        expected, actual = (named_outputs(call(**inputs)) for call in calls)
        assert_close(actual, expected, 1e-5)
        assert_gradients_close(gradients(actual, leaves), gradients(expected, leaves), 1e-5)

    def test_one_compiled_graph_serves_every_shape(self) -> None:
        model = self.model()
        graph = compiled(model, dynamic=True)
        with torch._dynamo.config.patch(error_on_recompile=True):
            for lengths, columns in (([3, 2], 6), ([4, 0, 5], 7), ([9, 8, 7, 3], 11)):
                inputs = random_batch(padded(lengths, columns, "holes")).inputs()
                assert_close(named_outputs(graph(**inputs)), named_outputs(model(**inputs)), 1e-5)

    @pytest.mark.parametrize(
        "size", [*(pytest.param(size, marks=pytest.mark.slow) for size in ("dynamic", "automatic")), "bounded"]
    )
    def test_an_exported_model_serves_every_shape(self, size: str) -> None:
        if size == "bounded" and torch.__version__ < (2, 13):
            pytest.skip("torch 2.12 cannot prove that the vanilla Transformer takes every bounded length")
        dims = torch.export.Dim
        axes = {
            "dynamic": (dims.DYNAMIC, dims.DYNAMIC),
            "automatic": (dims.AUTO, dims.AUTO),
            "bounded": (dims("b", min=1, max=64), dims("n", min=1, max=512)),
        }
        model = self.model().eval()
        inputs = random_batch(padded([3, 5], 6, "holes")).inputs()
        shapes = {name: dict(enumerate(axes[size])) for name in inputs}
        exported = torch.export.export(model, (), inputs, dynamic_shapes=shapes, strict=False).module()
        for lengths, columns in (([4, 0, 8], 9), ([5], 12), ([1], 1)):
            inputs = random_batch(padded(lengths, columns, "left")).inputs()
            assert_close(named_outputs(exported(**inputs)), named_outputs(model(**inputs)), 1e-5)

    # ------ the vocabulary grows


class PeerContract(EncoderContract):
    """The contract of an encoder to compare with: of its default, which is traced in the slow tier."""

    tested_variants = ("default", "siamese", "characters and CRF")

    @pytest.mark.slow
    def test_one_compiled_graph_serves_every_shape(self) -> None:
        super().test_one_compiled_graph_serves_every_shape()

    @pytest.mark.slow
    @pytest.mark.parametrize("size", ["dynamic", "automatic", "bounded"])
    def test_an_exported_model_serves_every_shape(self, size: str) -> None:
        super().test_an_exported_model_serves_every_shape(size)


class TwoDirectionContract(PeerContract):
    """The contract of an encoder whose states concatenate those of two directions."""

    def test_each_half_of_a_state_sees_one_side_of_its_token(self) -> None:
        model = self.model(num_hidden_layers=1)
        batch = random_batch(padded([6], 8, "holes"), width=TINY["hidden_size"])
        columns = batch.attention_mask[0].nonzero().flatten()
        for place, state in enumerate(model(**batch.inputs()).last_hidden_state[0, columns]):
            for half, expected in zip(state.chunk(2), (columns[: place + 1], columns[place:]), strict=True):
                seen = gradients({"half": half}, {"e": batch.inputs_embeds})["e"][0].abs().sum(-1)
                assert torch.equal(seen.nonzero().flatten(), expected)
