"""The linear-chain CRF against a sum over all paths and against pytorch-crf, and taggers with a CRF."""

import itertools
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torchcrf
from common import (
    TINY,
    assert_close,
    difference,
    examples,
    gradients,
    masks,
    named_outputs,
    padded,
    random_batch,
    tiny_model,
)
from huggingface_hub.errors import StrictDataclassError
from hypothesis import given
from hypothesis import strategies as st
from reference import crf_paths
from samples import STEMS, class_of, named_labels, word_tokenizer
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch_modes import compiled
from transformers import PreTrainedModel, PreTrainedTokenizerFast, pipeline

from modeling_star.inference.pipelines import BestPathPipeline, logits_along
from modeling_star.models.crf import (
    CRF_LR_MULTIPLIER,
    FORBIDDEN,
    LinearChainCrf,
)
from modeling_star.models.tag_schemes import entity_tag, may_follow, tag_scheme


BIO = ("O", "B-x", "I-x", "B-y", "I-y")
SCHEMES = {
    "iob2": BIO,
    "iob1": BIO,
    "iobes": ("O", *(f"{prefix}-{kind}" for kind in "xy" for prefix in "BIES")),
}


def crf_of(k: int = 3, seed: int = 0, dtype: torch.dtype = torch.float64, scheme: str | None = None) -> LinearChainCrf:
    """A CRF with random scores for the first k labels of a scheme, or for k labels without a scheme."""
    labels = SCHEMES[scheme][:k] if scheme else [f"label {i}" for i in range(k)]
    crf = LinearChainCrf(labels, scheme, vocab_size=TINY["vocab_size"]).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in crf.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / CRF_LR_MULTIPLIER)
    return crf


def random_labels(mask: Tensor, k: int, seed: int, unknown: float = 0.3) -> Tensor:
    """Random labels, some of them unknown."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(k, mask.shape, generator=generator)
    return labels.masked_fill(torch.rand(mask.shape, generator=generator) < unknown, -100)


def scores_of(crf: LinearChainCrf) -> dict[str, Tensor]:
    """The scores by the names of their parameters."""
    return {
        name: (CRF_LR_MULTIPLIER * parameter.detach()).requires_grad_() for name, parameter in crf.named_parameters()
    }


def by_brute_force(
    crf: LinearChainCrf, scores: dict[str, Tensor], emissions: Tensor, labels: Tensor, chain: Tensor
) -> tuple[dict[str, Tensor], list]:
    """Log likelihoods and marginals from the scores of all paths, and the best path of each row."""
    k = len(crf.labels)
    start, end, transitions = (scores[name] for name in ("start_transitions", "end_transitions", "transitions"))
    names = [*crf.labels, None]
    if crf.scheme is not None:
        ruled_out = torch.tensor([[not may_follow(a, b, crf.scheme) for b in names] for a in names])
        start, end = start.masked_fill(ruled_out[k, :k], FORBIDDEN), end.masked_fill(ruled_out[:k, k], FORBIDDEN)
        transitions = transitions.masked_fill(ruled_out[:k, :k], FORBIDDEN)
    likelihoods, best = [], []
    marginals = emissions.log_softmax(-1)
    for row, columns in enumerate(chain):
        places = columns.nonzero()[:, 0].tolist()
        paths = crf_paths([emissions[row, place] for place in places], start, end, transitions)
        total = torch.stack(list(paths.values())).logsumexp(0)

        def log_share(matches: Any, paths: dict = paths, total: Tensor = total) -> Tensor:
            return torch.stack([score for path, score in paths.items() if matches(path)]).logsumexp(0) - total

        known = [(t, int(labels[row, place])) for t, place in enumerate(places) if labels[row, place] >= 0]
        likelihoods.append(log_share(lambda path, known=known: all(path[t] == label for t, label in known)))
        best.append(list(max(paths, key=lambda path, paths=paths: float(paths[path].detach()))))
        for t, place in enumerate(places):
            tags = [log_share(lambda path, t=t, tag=tag: path[t] == tag) for tag in range(k)]
            marginals = marginals.index_put((torch.tensor(row), torch.tensor(place)), torch.stack(tags))
    return {"likelihoods": torch.stack(likelihoods), "marginals": marginals}, best


# ------ against brute force


@given(mask=masks(), k=st.integers(1, 3), seed=st.integers(0, 1000), unknown=st.sampled_from([0.0, 0.3]))
@examples(60)
def test_likelihoods_marginals_and_best_paths_equal_those_over_all_paths(
    mask: Tensor, k: int, seed: int, unknown: float
) -> None:
    crf, labels = crf_of(k, seed), random_labels(mask, k, seed, unknown)
    generator = torch.Generator().manual_seed(seed)
    emissions = torch.randn(*mask.shape, k, generator=generator, dtype=torch.float64).requires_grad_()
    scores = scores_of(crf)
    expected, best = by_brute_force(crf, scores, emissions, labels, mask)
    actual = {
        "likelihoods": crf.log_likelihood(emissions, labels, mask),
        "marginals": crf.log_marginals(emissions, mask)[0],
    }
    assert_close(actual, expected, 1e-10)
    actual_gradients = gradients(actual, {**dict(crf.named_parameters()), "emissions": emissions})
    assert_close(actual_gradients, gradients(expected, {**scores, "emissions": emissions}), 1e-10)
    paths = crf.best_paths(emissions, mask)
    assert [paths[row, columns].tolist() for row, columns in enumerate(mask)] == best
    assert torch.equal(paths[~mask], emissions.argmax(-1)[~mask])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_constraints_remove_the_forbidden_paths(scheme: str) -> None:
    k = 5
    crf = crf_of(k, scheme=scheme)
    mask = padded([4, 2, 1, 0], 4, "holes")
    generator = torch.Generator().manual_seed(0)
    emissions = torch.randn(4, 4, k, generator=generator, dtype=torch.float64).requires_grad_()
    # "O" may be anywhere.
    labels = torch.full((4, 4), -100).masked_fill(torch.rand(4, 4, generator=generator) < 0.4, 0)
    scores = scores_of(crf)
    expected, best = by_brute_force(crf, scores, emissions, labels, mask)
    likelihoods, marginals = crf.log_likelihood(emissions, labels, mask), crf.log_marginals(emissions, mask)[0]
    assert difference(likelihoods, expected["likelihoods"]) <= 1e-10
    assert difference(marginals.exp(), expected["marginals"].exp()) <= 1e-10
    paths = crf.best_paths(emissions, mask)
    for row, columns in enumerate(mask):
        path = paths[row, columns].tolist()
        assert path == best[row]
        names = [crf.labels[label] for label in path]
        if names:
            assert all(may_follow(a, b, scheme) for a, b in itertools.pairwise([None, *names, None]))
    actual_gradients = gradients({"sum": likelihoods}, {**dict(crf.named_parameters()), "emissions": emissions})
    expected_gradients = gradients({"sum": expected["likelihoods"]}, {**scores, "emissions": emissions})
    assert_close(actual_gradients, expected_gradients, 1e-10)


@pytest.mark.parametrize(
    ("scheme", "sentence", "parts"),
    [
        ("iob2", (0, 1, 2, 2, 0), (slice(0, 2), slice(2, 5))),  # O B-x | I-x I-x O
        ("iobes", (0, 1, 2, 3, 0), (slice(0, 2), slice(2, 5))),  # O B-x | I-x E-x O
    ],
)
def test_a_window_may_begin_and_end_within_an_entity(
    scheme: str, sentence: tuple[int, ...], parts: tuple[slice, ...]
) -> None:
    k = 4
    crf, labels = crf_of(k, scheme=scheme), torch.tensor([sentence])
    emissions = torch.randn(1, 5, k, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    names = [*crf.labels, None]
    ruled_out = torch.tensor([[not may_follow(a, b, scheme) for b in names] for a in names])
    scores = scores_of(crf)
    transitions = scores["transitions"].masked_fill(ruled_out[:k, :k], FORBIDDEN)
    start = scores["start_transitions"].masked_fill(ruled_out[k, :k], FORBIDDEN)
    end = scores["end_transitions"].masked_fill(ruled_out[:k, k], FORBIDDEN)
    for place, part in enumerate(parts):
        window = labels[:, part]
        # At a cut that the constraints forbid neither start nor end has a score.
        first = torch.zeros_like(start) if ruled_out[k, window[0, 0]] else start
        last = torch.zeros_like(end) if ruled_out[window[0, -1], k] else end
        assert place == 0 or not first.any(), "the second part begins within an entity"
        paths = crf_paths(list(emissions[0, part]), first, last, transitions)
        expected = paths[tuple(window[0].tolist())] - torch.stack(list(paths.values())).logsumexp(0)
        for kind in ("right", "left", "holes"):  # the position of the chain in its row changes nothing
            n = window.shape[1]
            mask = padded([n], n + 3, kind)
            wide, known = torch.zeros(1, n + 3, k, dtype=torch.float64), torch.full((1, n + 3), -100)
            wide[mask], known[mask] = emissions[0, part], window[0]
            likelihood = crf.log_likelihood(wide, known, mask)
            assert difference(likelihood, expected[None]) <= 1e-10
            assert likelihood.item() > FORBIDDEN / 2


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_temperature_acts_on_the_score_of_the_whole_path(scheme: str) -> None:
    crf, n = crf_of(5, scheme=scheme), 4
    emissions = torch.randn(1, n, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    chain = torch.ones(1, n, dtype=torch.bool)
    start, end, transitions = crf._scores(torch.float64)
    paths = list(itertools.product(range(5), repeat=n))
    scores = torch.stack(
        [
            start[path[0]]
            + end[path[-1]]
            + sum(emissions[0, t, label] for t, label in enumerate(path))
            + sum(transitions[a, b] for a, b in itertools.pairwise(path))
            for path in paths
        ]
    )
    assert crf.best_paths(emissions, chain)[0].tolist() == list(paths[int(scores.argmax())])
    probabilities = (scores / 1.7).softmax(0)
    expected = torch.stack([(torch.tensor(paths) == k).double().T @ probabilities for k in range(5)], dim=-1)
    marginals, messages = crf.log_marginals(emissions, chain, 1.7)
    torch.testing.assert_close(marginals[0].exp(), expected, atol=1e-10, rtol=0)
    assert torch.isfinite(messages).all()


def test_a_saved_temperature_changes_no_loss_and_no_training() -> None:
    plain, changed = tagger(), tagger(calibration_temperature=2.0)
    inputs = {"input_ids": torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])}
    labels = torch.tensor([[0, 1, 2, 0], [1, -100, 0, 2]])
    for is_training in (True, False):
        for model in (plain, changed):
            model.eval()  # without dropout
            model.training = is_training
        outputs = [model(**inputs, labels=labels) for model in (plain, changed)]
        assert torch.equal(outputs[0].loss, outputs[1].loss)
        assert torch.equal(outputs[0].logits, outputs[1].logits)
    with torch.no_grad():
        assert not torch.allclose(changed(**inputs).logits, plain(**inputs).logits, atol=1e-3)


def test_labels_outside_the_chain_are_ignored() -> None:
    emissions, chain = torch.zeros(2, 3, 5), torch.tensor([[False] * 3, [True] * 3])
    labels = torch.tensor([[99, 99, 99], [0, 1, 2]])
    for scheme in (None, "iob2"):
        likelihoods = crf_of(5, scheme=scheme, dtype=torch.float32).log_likelihood(emissions, labels, chain)
        assert likelihoods[0] == 0
        assert likelihoods.isfinite().all()


def test_the_crf_equals_pytorch_crf() -> None:
    # pytorch-crf needs right padding and a label for every token.
    k, mask = 4, padded([5, 1, 3], 6, "right")
    crf, other = crf_of(k), torchcrf.CRF(k, batch_first=True).double()
    with torch.no_grad():
        for name, parameter in other.named_parameters():
            parameter.copy_(CRF_LR_MULTIPLIER * crf.get_parameter(name))
    generator = torch.Generator().manual_seed(0)
    emissions = torch.randn(3, 6, k, generator=generator, dtype=torch.float64).requires_grad_()
    labels = torch.randint(k, (3, 6), generator=generator)
    expected = other(emissions, labels, mask, reduction="none")
    actual = crf.log_likelihood(emissions, labels.masked_fill(~mask, -100), mask)
    assert difference(actual, expected) <= 1e-10
    gradient, other_gradient = (gradients({"x": x}, {"emissions": emissions}) for x in (actual, expected))
    assert_close(gradient, other_gradient, 1e-10)
    paths = crf.best_paths(emissions, mask)
    assert [paths[row, columns].tolist() for row, columns in enumerate(mask)] == other.decode(emissions, mask)


# ------ precision


def test_a_row_without_chain_or_labels_has_zero_loss_and_finite_gradients() -> None:
    crf, mask = crf_of(dtype=torch.float32), padded([0, 3], 3, "right")
    emissions = torch.randn(2, 3, 3, requires_grad=True)
    likelihoods = crf.log_likelihood(emissions, torch.full((2, 3), -100), mask)
    assert likelihoods.tolist() == [0, 0]
    (likelihoods.sum() + crf.log_marginals(emissions, mask)[0].sum()).backward()
    assert all(x.grad.isfinite().all() for x in (emissions, *crf.parameters()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_summed_in_float32(dtype: torch.dtype) -> None:
    crf, mask = crf_of(dtype=torch.float32), padded([300, 200], 300, "right")
    half = torch.randn(2, 300, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    labels = random_labels(mask, 3, 0)
    assert torch.equal(crf.log_likelihood(half, labels, mask), crf.log_likelihood(half.float(), labels, mask))
    marginals = crf.log_marginals(half, mask)[0]
    assert marginals.dtype == dtype
    assert torch.equal(marginals, crf.log_marginals(half.float(), mask)[0].to(dtype))


def test_a_long_text_of_large_scores_stays_finite_in_float32() -> None:
    crf, mask = crf_of(5, dtype=torch.float32, scheme="iob2"), torch.ones(1, 400).bool()
    emissions = (100 * torch.randn(1, 400, 5, generator=torch.Generator().manual_seed(0))).requires_grad_()
    marginals = crf.log_marginals(emissions, mask)[0]
    assert difference(marginals.exp().sum(-1), torch.ones(1, 400)) < 1e-5
    likelihood = crf.log_likelihood(emissions, torch.zeros(1, 400, dtype=torch.long), mask)
    likelihood.sum().backward()
    assert likelihood.isfinite().all()
    assert emissions.grad.isfinite().all()


# ------ schemes


def encoded(spans: tuple[tuple[int, int, str], ...], n: int, scheme: str) -> tuple[str, ...]:
    """Entities (first token, number of tokens, type), in order, as labels."""
    labels = ["O"] * n
    for place, (start, length, kind) in enumerate(spans):
        letters = ["I"] * length
        before = spans[place - 1] if place else None
        touches = before is not None and before[0] + before[1] == start and before[2] == kind
        if scheme == "iob2" or (scheme == "iob1" and touches):
            letters[0] = "B"
        if scheme == "iobes":
            letters = ["S"] if length == 1 else ["B", *["I"] * (length - 2), "E"]
        labels[start : start + length] = [f"{letter}-{kind}" for letter in letters]
    return tuple(labels)


def every_annotation(n: int, start: int = 0) -> list[tuple[tuple[int, int, str], ...]]:
    """All sets of entities of two types in n tokens, from `start` on."""
    if start >= n:
        return [()]
    annotations = list(every_annotation(n, start + 1))
    for length in range(1, n - start + 1):
        for kind in "xy":
            annotations += [((start, length, kind), *rest) for rest in every_annotation(n, start + length)]
    return annotations


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_the_allowed_sequences_are_the_encodings_of_annotations(scheme: str, n: int) -> None:
    written = {encoded(spans, n, scheme) for spans in every_annotation(n)}
    labels = SCHEMES[scheme]
    for sequence in itertools.product(labels, repeat=n) if len(labels) ** n < 7000 else written:
        allowed = all(may_follow(a, b, scheme) for a, b in itertools.pairwise([None, *sequence, None]))
        assert allowed == (sequence in written), sequence


@pytest.mark.parametrize(
    ("labels", "scheme"),
    [
        (BIO, "iob2"),
        (("B-x", "I-x", "B-y"), "iob2"),
        (("O", "I-x", "B-y", "I-y"), "iob1"),  # the published CoNLL-2003 has no B-PER
        (("O", "I-x", "I-y"), "iob1"),
        (SCHEMES["iobes"], "iobes"),
        (("O", "B-x", "I-x", "L-x", "U-x"), "iobes"),
        (("O", "B-x", "M-x", "E-x", "S-x"), "iobes"),
        (("O", "B-x", "M-x", "E-x", "W-x"), "iobes"),
    ],
)
def test_the_scheme_follows_from_the_labels(labels: tuple[str, ...], scheme: str) -> None:
    assert tag_scheme(labels) == scheme


def test_segmentation_labels_are_constrained_like_entities_of_one_type() -> None:
    letters = ("B", "M", "E", "S")
    alone = LinearChainCrf(letters, "auto", 10)
    typed = LinearChainCrf([f"{letter}-word" for letter in letters], "auto", 10)
    assert (alone.labels, alone.scheme) == (letters, "iobes")
    assert torch.equal(alone.forbidden, typed.forbidden)


def test_bilou_and_bmes_are_iobes_with_other_letters() -> None:
    assert [entity_tag(label) for label in ("L-x", "U-x", "M-x-y", "O")] == [
        ("E", "x"),
        ("S", "x"),
        ("I", "x-y"),
        ("O", ""),
    ]
    for letters in ("BILU", "BMES", "BMEW"):
        others = dict(zip(("B", "I", "E", "S"), letters, strict=True))
        for a, b in itertools.product([*SCHEMES["iobes"], None], repeat=2):
            renamed = [x if x in (None, "O") else others[x[0]] + x[1:] for x in (a, b)]
            assert may_follow(*renamed, "iobes") == may_follow(a, b, "iobes")


@pytest.mark.parametrize("labels", [("NOUN", "VERB"), ("O",), ("LABEL_0", "LABEL_1"), ("O", "B-x", "x")], ids=str)
def test_constraints_on_other_labels_are_an_error(labels: tuple[str, ...]) -> None:
    model_class = class_of("StarTransformer", "ForTokenClassification")
    config = model_class.config_class(use_crf=True, crf_constraints="auto", **named_labels(*labels))
    with pytest.raises(ValueError, match="crf_constraints"):
        model_class(config)


def test_loading_a_model_from_the_meta_device_restores_the_constraints() -> None:
    labels = named_labels("O", "B-x", "I-x")
    options = {"use_crf": True, "crf_constraints": "auto", **labels}
    model = tiny_model("StarTransformer", "ForTokenClassification", **options)
    with torch.device("meta"):
        other = type(model)(model.config)
    other.to_empty(device="cpu")
    other.crf.forbidden.fill_(True)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.crf.forbidden, model.crf.forbidden)
    assert model.crf.forbidden.any()


def test_constraints_without_a_crf_are_an_error() -> None:
    with pytest.raises(StrictDataclassError, match="crf_constraints"):
        class_of("StarTransformer", "ForTokenClassification").config_class(crf_constraints="iob2")


# ------ taggers


def tagger(stem: str = "StarTransformer", **options: Any) -> PreTrainedModel:
    return tiny_model(stem, "ForTokenClassification", use_crf=True, **options)


def batch_and_labels(kind: str = "holes") -> tuple[dict[str, Tensor], Tensor]:
    mask = padded([5, 0, 2, 1], 6, kind)
    return random_batch(mask).inputs(), random_labels(mask, 3, 0).masked_fill(~mask, -100)


@pytest.mark.parametrize("stem", STEMS)
def test_a_fresh_crf_changes_neither_the_tagger_nor_its_loss(stem: str) -> None:
    inputs, labels = batch_and_labels()
    plain, with_crf = (tiny_model(stem, "ForTokenClassification", seed=None, use_crf=use) for use in (False, True))
    with_crf.load_state_dict({**with_crf.state_dict(), **plain.state_dict()})
    expected, actual = plain(**inputs, labels=labels), with_crf(**inputs, labels=labels)
    assert difference(actual.logits, expected.logits.log_softmax(-1)) < 1e-5
    torch.testing.assert_close(actual.loss, expected.loss)
    assert torch.equal(with_crf.decode(**inputs), plain.decode(**inputs))


@pytest.mark.parametrize("stem", STEMS)
def test_paths_and_probabilities_do_not_depend_on_padding_and_batch(stem: str) -> None:
    model = tagger(stem, dtype=torch.float64).eval()
    inputs, _ = batch_and_labels()
    together = model(**inputs)
    for row, real in enumerate(inputs["attention_mask"].bool()):
        if real.any():
            alone = model(**{name: x[row, real][None] for name, x in inputs.items()})
            assert torch.equal(alone.paths[0], together.paths[row, real])
            assert difference(alone.logits[0], together.logits[row, real]) < 1e-10
        assert (together.paths[row, ~real] == -100).all()


def test_decoding_ignores_dropout_in_training_mode() -> None:
    for use_crf in (False, True):
        model = tiny_model("StarTransformer", "ForTokenClassification", use_crf=use_crf, hidden_dropout_prob=0.5)
        inputs, _ = batch_and_labels()
        expected = model.eval().decode(**inputs)
        model.train()
        assert all(torch.equal(model.decode(**inputs), expected) for _ in range(3))
        assert model.training


def test_labels_at_padding_are_ignored() -> None:
    model = tagger(dtype=torch.float64)
    inputs, labels = batch_and_labels()
    padding = inputs["attention_mask"] == 0
    expected = model(**inputs, labels=labels)
    for anything in (1, 99):
        output = model(**inputs, labels=labels.masked_fill(padding, anything))
        assert torch.equal(output.loss, expected.loss)
        assert torch.equal(output.logits, expected.logits)


WORDPIECES = "we ##ll live ##d in Kyo ##to not To ##kyo"


@pytest.fixture(scope="module")
def pieces() -> PreTrainedTokenizerFast:
    return word_tokenizer(WORDPIECES)


def test_the_vocabulary_excludes_special_tokens_and_pieces_from_the_chain(
    pieces: PreTrainedTokenizerFast,
) -> None:
    model = tagger(vocab_size=len(pieces)).eval()
    text = ["[CLS]", "we", "##ll", "[UNK]", "in", "Kyo", "##to", "[SEP]", "[PAD]"]
    ids = torch.tensor([pieces.convert_tokens_to_ids(text)])
    real = torch.tensor([[True] * 8 + [False]])

    def chain(**given: Any) -> list[str]:
        is_inside = model.crf.chain(real, given.get("input_ids", ids), given.get("tag_mask"))[0]
        return [word for word, inside in zip(text, is_inside.tolist(), strict=True) if inside]

    assert chain() == text[:-1]
    model.set_vocabulary(pieces)
    # An unknown word carries a tag.
    assert chain() == ["we", "[UNK]", "in", "Kyo"]
    with pytest.raises(ValueError, match="tag_mask"):
        chain(input_ids=None)
    assert chain(tag_mask=torch.ones_like(ids)) == text[:-1]
    # Tokens outside the chain have the logits of a tagger without a CRF.
    output = model(ids, real.long())
    emissions = model.classifier(model.model(ids, real.long()).last_hidden_state)
    assert torch.allclose(output.logits[0, [0, 7]], emissions[0, [0, 7]].log_softmax(-1), atol=1e-6)


def test_a_labelled_token_is_in_the_chain_whatever_the_vocabulary(pieces: PreTrainedTokenizerFast) -> None:
    model = tagger(vocab_size=len(pieces), dtype=torch.float64)
    model.set_vocabulary(pieces)
    ids = torch.tensor([pieces.convert_tokens_to_ids(["[CLS]", "we", "##ll", "in"])])
    labels = torch.tensor([[-100, 0, 1, 2]])
    known = model(ids, labels=labels).loss
    assert difference(known, model(ids, labels=labels, tag_mask=labels != -100).loss) < 1e-12
    assert difference(known, model(ids, labels=labels, tag_mask=torch.tensor([[0, 1, 0, 1]])).loss) < 1e-12


def test_a_tag_mask_replaces_the_vocabulary() -> None:
    model = tagger(dtype=torch.float64).eval()
    ids, tagged = torch.tensor([[3, 4, 5, 6, 7]]), torch.tensor([[0, 1, 1, 0, 1]])
    output = model(ids, tag_mask=tagged)
    emissions = model.classifier(model.model(ids).last_hidden_state)[:, tagged[0].bool()]
    everything = torch.ones(1, 3).bool()
    assert torch.equal(output.paths[tagged.bool()][None], model.crf.best_paths(emissions, everything))
    assert difference(output.logits[tagged.bool()][None], model.crf.log_marginals(emissions, everything)[0]) < 1e-10
    with pytest.raises(ValueError, match="use_crf"):
        tiny_model("StarTransformer", "ForTokenClassification")(ids, tag_mask=tagged)


@pytest.mark.parametrize("with_labels", [False, True], ids=["inference", "training"])
@pytest.mark.slow
def test_a_compiled_tagger_equals_the_eager_one(with_labels: bool) -> None:
    model = tagger(num_labels=3)
    inputs, labels = batch_and_labels()
    given = {**inputs, **({"labels": labels} if with_labels else {})}
    expected, actual = (named_outputs(call(**given)) for call in (model, compiled(model)))
    assert_close(actual, expected, 1e-5)
    leaves = dict(model.named_parameters())
    name = "loss" if with_labels else "logits"
    actual_gradients, expected_gradients = (gradients({name: x[name]}, leaves) for x in (actual, expected))
    assert_close(actual_gradients, expected_gradients, 1e-5)


def test_a_loaded_tagger_has_the_scores_the_vocabulary_and_the_constraints(
    tmp_path: Path, pieces: PreTrainedTokenizerFast
) -> None:
    model = tagger(vocab_size=len(pieces), crf_constraints="auto", num_labels=5, **named_labels(*BIO)).eval()
    model.set_vocabulary(pieces)
    model.save_pretrained(tmp_path)
    loaded, info = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    assert loaded.crf.scheme == "iob2"
    ids = torch.arange(len(pieces))[None]
    assert_close(named_outputs(loaded(ids)), named_outputs(model(ids)), 0.0)
    assert torch.equal(loaded.crf.forbidden, model.crf.forbidden)
    # A tagger without a CRF gets one that changes nothing.
    tiny_model("StarTransformer", "ForTokenClassification").save_pretrained(tmp_path / "plain")
    fresh = type(model).from_pretrained(tmp_path / "plain", use_crf=True)
    assert not any(parameter.any() for parameter in fresh.crf.parameters())


def test_labels_that_break_the_constraints_are_warned_about_and_have_a_finite_loss(warnings_of: Any) -> None:
    model = tagger(crf_constraints="iob2", num_labels=5, **named_labels(*BIO))
    ids = torch.tensor([[3, 4]])
    given = {"input_ids": ids, "tag_mask": torch.ones_like(ids)}
    assert warnings_of(model, labels=torch.tensor([[1, 2]]), **given) == []
    [message] = warnings_of(model, labels=torch.tensor([[0, 2]]), **given)
    assert "iob2" in message
    model(**given, labels=torch.tensor([[0, 2]])).loss.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("scheme", [*SCHEMES, None])
def test_forbidden_transitions_are_those_of_plain_loops(scheme: str | None) -> None:
    labels = SCHEMES[scheme or "iobes"]
    names = (*labels, None)
    expected = [[scheme is not None and not may_follow(a, b, scheme) for b in names] for a in names]
    assert LinearChainCrf(labels, scheme, vocab_size=3).forbidden.tolist() == expected


def test_a_crf_of_a_thousand_labels_takes_no_call_for_each_transition() -> None:
    labels = ["O", *(f"{prefix}-{kind}" for kind in range(500) for prefix in "BI")]
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        crf = LinearChainCrf(labels, "auto", vocab_size=3)
        crf.load_state_dict(crf.state_dict())
    finally:
        sys.setprofile(None)
    assert calls < 50 * len(labels)


def test_a_training_step_reads_one_number_from_the_device() -> None:
    """Each of them waits for a GPU."""

    class Waits(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            by_mask = function.name().startswith("aten::index.") and any(
                index is not None and index.dtype == torch.bool for index in args[1]
            )
            names = ("_local_scalar_dense", "nonzero", "masked_select")
            self.count += by_mask or any(name in function.name() for name in names)
            return function(*args, **(kwargs or {}))

    crf, mask = crf_of(5, scheme="iob2").train(), torch.ones(2, 4).long()
    emissions = torch.randn(2, 4, 5, dtype=torch.float64, requires_grad=True)
    for labels in (torch.zeros(2, 4).long(), torch.tensor([[0, 1, 2, -100], [1, 2, 0, 0]])):
        with Waits() as waits:
            crf(emissions, labels, mask, mask, None, None)["loss"].backward()
        assert waits.count == 1


def test_constraints_apply_along_the_chain_across_skipped_tokens(warnings_of: Any) -> None:
    model = tagger(crf_constraints="iob2", num_labels=5, **named_labels(*BIO))
    chain = torch.tensor([[True, False, True], [True, True, False], [True, False, False]])
    labels = torch.tensor([[0, 1, 2], [1, 2, 4], [2, 0, 2]])
    # O I-x around a skipped B-x; B-x I-x; one label that continues an entity.
    assert model.crf.breaks_constraints(labels, chain).tolist() == [True, False, False]


def test_a_vocabulary_that_is_too_large_or_unused_is_an_error(pieces: PreTrainedTokenizerFast) -> None:
    with pytest.raises(ValueError, match="resize_token_embeddings"):
        tagger().set_vocabulary(pieces)
    with pytest.raises(ValueError, match="use_crf"):
        tiny_model("StarTransformer", "ForTokenClassification").set_vocabulary(pieces)


# ------ metrics and pipelines


def test_logits_along_a_path_are_largest_on_it_with_its_probabilities() -> None:
    logits = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    paths = torch.randint(4, (2, 5), generator=torch.Generator().manual_seed(0))
    along = logits_along(paths, logits)
    assert torch.equal(along.argmax(-1), paths)
    expected = logits.exp().gather(-1, paths[..., None]).clamp(min=0.25)
    torch.testing.assert_close(along.softmax(-1).gather(-1, paths[..., None]), expected, atol=1e-3, rtol=0)


def test_logits_along_a_path_are_finite_for_certain_and_absent_labels() -> None:
    logits = torch.tensor([[[0.0, -100.0], [-100.0, 0.0], [0.0, 0.0]]])
    along = logits_along(torch.tensor([[0, 0, -100]]), logits)
    assert along.isfinite().all()
    assert along[0, :2].argmax(-1).tolist() == [0, 0]


@pytest.mark.parametrize("use_crf", [True, False], ids=["crf", "plain"])
def test_pipelines_give_the_probabilities_and_the_best_path(use_crf: bool, tmp_path: Path) -> None:
    tokenizer = word_tokenizer("we live in Kyoto not Tokyo")
    model = tiny_model("StarTransformer", "ForTokenClassification", vocab_size=len(tokenizer), use_crf=use_crf).eval()
    if use_crf:
        model.set_vocabulary(tokenizer)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    texts = ["we live in Kyoto not Tokyo", "Tokyo we", "in Kyoto in Tokyo not in in"]
    stock = pipeline("token-classification", str(tmp_path), ignore_labels=[])
    best = pipeline("token-classification", str(tmp_path), pipeline_class=BestPathPipeline, ignore_labels=[])
    for text, entries, along in zip(texts, stock(texts, batch_size=3), best(texts, batch_size=2), strict=True):
        inputs = tokenizer(text, return_tensors="pt")
        probabilities = model(**inputs).logits[0, 1:-1].softmax(-1)
        assert [entry["score"] for entry in entries] == pytest.approx(probabilities.amax(-1).tolist(), abs=1e-5)
        path = model.decode(**inputs)[0, 1:-1].tolist()
        assert [entry["entity"] for entry in along] == [model.config.id2label[label] for label in path]
        assert [(entry["start"], entry["end"]) for entry in along] == [(e["start"], e["end"]) for e in entries]


def test_one_model_serves_the_pipelines_of_several_threads() -> None:
    tokenizer = word_tokenizer("we live in Kyoto not Tokyo")
    model = tagger(vocab_size=len(tokenizer), tokenizer=tokenizer).eval()
    pipes = [
        pipeline("token-classification", model, tokenizer=tokenizer, pipeline_class=BestPathPipeline, ignore_labels=[])
        for _ in range(2)
    ]
    texts = ["we live in Kyoto not Tokyo", "Tokyo we"]
    alone = [pipe(text) for pipe, text in zip(pipes, texts, strict=True)]
    both_inside = threading.Barrier(2, timeout=20)

    def wait(*_: Any) -> None:
        both_inside.wait()

    # Each thread waits inside the model for the other.
    model.register_forward_hook(wait)
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(lambda pipe, text: pipe(text), pipes, texts)) == alone
