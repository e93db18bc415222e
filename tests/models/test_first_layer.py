"""What star-plus-2 starts from: scores of deviation 1 in layer 1, so that it attends after a short training."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from transformers import set_seed

from modeling_star import StarTransformerConfig, StarTransformerForSequenceClassification


SHAPES = Path(__file__).resolve().parents[2] / "configuration" / "models"
MARK, CLASSES, LENGTH = 1, 4, 16
WORDS = 2 * CLASSES  # the first CLASSES of them have a class each


def marked_texts(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Texts `[count, LENGTH]` of words and one mark; the label is the class of the word after the mark."""
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(2, 2 + WORDS, (count, LENGTH), generator=draw)
    place = torch.randint(0, LENGTH - 1, (count, 1), generator=draw)
    labels = torch.randint(0, CLASSES, (count, 1), generator=draw)
    ids.scatter_(1, place, MARK)
    ids.scatter_(1, place + 1, 2 + labels)
    return ids, labels[:, 0]


def trained(shape: str, steps: int) -> StarTransformerForSequenceClassification:
    """A narrow model of a shape, trained for some steps to name the word after the mark."""
    set_seed(0)
    config = StarTransformerConfig.from_pretrained(
        SHAPES / f"{shape}.json", vocab_size=2 + WORDS, hidden_size=48, num_labels=CLASSES, pad_token_id=0
    )
    model = StarTransformerForSequenceClassification(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(steps):
        ids, labels = marked_texts(32, step)
        model(input_ids=ids, labels=labels).loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


@torch.no_grad()
def entropies(model: StarTransformerForSequenceClassification) -> dict[str, list[float]]:
    """The mean entropy of each layer's weights over its maximum: 1 is a mean of all candidates."""
    output = model.base_model(marked_texts(64, -1)[0], output_attentions=True)
    layers = {"ring": output.attentions, "relay": output.relay_attentions}

    def of(weights: Tensor) -> float:
        return float(torch.special.entr(weights).sum(-1).mean() / torch.tensor(weights.shape[-1]).log())

    return {kind: [of(weights) for weights in each] for kind, each in layers.items()}


BOUND = 0.95


def test_after_a_short_training_no_layer_of_star_plus_2_attends_uniformly() -> None:
    model = trained("star-plus-2", steps=120)
    ids, labels = marked_texts(200, -2)
    assert (model(input_ids=ids).logits.argmax(-1) == labels).float().mean() > 0.6
    found = entropies(model)
    assert {kind: len(layers) for kind, layers in found.items()} == {"ring": 2, "relay": 2}
    assert max(found["ring"] + found["relay"]) < BOUND, found


def test_the_first_layer_of_star_plus_attends_uniformly_and_only_that_one() -> None:
    found = entropies(trained("star-plus", steps=120))
    assert min(found["ring"][0], found["relay"][0]) > 0.99
    assert max(found["ring"][1], found["relay"][1]) < BOUND


@pytest.mark.parametrize("deviation", [0.02, 1.0, 5.0])
def test_the_first_scores_of_star_plus_2_have_a_deviation_of_one_whatever_the_embeddings_have(
    deviation: float,
) -> None:
    set_seed(0)
    config = StarTransformerConfig.from_pretrained(SHAPES / "star-plus-2.json", vocab_size=500, pad_token_id=0)
    model = StarTransformerForSequenceClassification(config).eval()
    nn.init.normal_(model.get_input_embeddings().weight, std=deviation)
    attention = model.base_model.layers[0].ring_attention.projections
    seen: dict[str, Tensor] = {}
    attention.query.register_forward_hook(lambda module, inputs, output: seen.update(states=inputs[0], query=output))
    model(torch.randint(500, (4, 50)))
    query, key = (attention.split(x) for x in (seen["query"], seen["states"] @ attention.key.weight.T))
    scores = torch.einsum("ihc,jhc->hij", query, key) * attention.scale
    assert scores.std().item() == pytest.approx(1, abs=0.15)
