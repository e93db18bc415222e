"""What the heads of every encoder promise of their losses: a part of `EncoderContract`."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from common import HEADS, labels_of, padded, random_batch
from torch import Tensor, nn
from transformers import PreTrainedModel


SEQUENCE, TOKEN, SPAN, MASKED_LM = HEADS


class LossContract:
    """Tests of the losses of an encoder's heads, which `model` builds."""

    def model(self, ending: str = "Model", variant: str = "default", **options: Any) -> PreTrainedModel:
        """An encoder, or one of its heads. `EncoderContract` says how."""
        raise TypeError(f"{type(self).__name__} defines no model(ending, variant, **options).")

    @pytest.mark.parametrize(
        ("task", "options", "kind"),
        [
            (SEQUENCE, {}, "classes"),
            (SEQUENCE, {"num_labels": 1}, "numbers"),
            (SEQUENCE, {"problem_type": "regression"}, "numbers"),
            (SEQUENCE, {"problem_type": "multi_label_classification"}, "yes or no"),
            (TOKEN, {}, "classes"),
            (TOKEN, {"use_crf": True}, "classes"),
            (SPAN, {}, "classes"),
            (MASKED_LM, {}, "classes"),
        ],
        ids=["classes", "number", "numbers", "several labels", "tokens", "chains", "span", "masked"],
    )
    def test_losses_of_accumulated_batches_add_up_to_that_of_the_whole(
        self, task: str, options: dict[str, Any], kind: str
    ) -> None:
        model = self.model(task, **options)
        batch = random_batch(padded([3, 1, 5, 6], 6, "right"))
        given = {**batch.inputs(), **labels_of(task, batch)}
        if kind != "classes":
            given["labels"] = torch.randn(4, model.num_labels, generator=torch.Generator().manual_seed(0))
        if kind == "yes or no":
            given["labels"] = (given["labels"] > 0).float()
        if model.num_labels == 1:
            given["labels"] = given["labels"][:, 0]
        count = given["labels"].ne(-100).sum() if "labels" in given else torch.tensor(4)
        whole = model(**given).loss
        # Parts of unequal size: an average of averages would differ.
        for items in (count, int(count)):
            parts = [{k: x[rows] for k, x in given.items()} for rows in (slice(0, 1), slice(1, 4))]
            losses = [model(**part, num_items_in_batch=items).loss for part in parts]
            torch.testing.assert_close(sum(losses), whole)

    def test_labels_of_minus_100_do_not_count(self, head: str) -> None:
        model = self.model(head)
        batch = random_batch(padded([6, 6], 6, "right"))
        labels = labels_of(head, batch)
        ignored = -100 if head != SPAN else 6
        for x in labels.values():
            x[1] = ignored
        rows = {name: x[:1] for name, x in {**batch.inputs(), **labels}.items()}
        torch.testing.assert_close(model(**batch.inputs(), **labels).loss, model(**rows).loss)

    def test_those_of_several_labels_that_are_unknown_do_not_count(self) -> None:
        model = self.model(SEQUENCE, problem_type="multi_label_classification")
        labels = torch.tensor([[1.0, -100.0, 0.0], [-100.0, -100.0, 1.0]])
        output, known = model(**random_batch(padded([2, 2], 2, "right")).inputs(), labels=labels), labels != -100
        expected = nn.functional.binary_cross_entropy_with_logits(output.logits[known], labels[known])
        torch.testing.assert_close(output.loss, expected)

    def test_answers_outside_the_input_do_not_count(self) -> None:
        model = self.model(SPAN)
        inputs = random_batch(padded([6, 6], 6, "right")).inputs()

        def loss(*ends: int, **options: Any) -> Tensor:
            return model(
                **inputs, start_positions=torch.tensor(ends), end_positions=torch.tensor(ends), **options
            ).loss

        first = {name: x[:1] for name, x in inputs.items()}
        alone = model(**first, start_positions=torch.tensor([2]), end_positions=torch.tensor([2])).loss
        for outside in (-1, -100, 6, 9):
            torch.testing.assert_close(loss(2, outside), alone)
            assert loss(outside, outside).item() == 0
        torch.testing.assert_close(loss(2, 9, num_items_in_batch=4), alone / 4)

    def test_without_labels_there_is_no_loss(self, head: str) -> None:
        assert self.model(head)(**random_batch(padded([2], 2, "right")).inputs()).loss is None

    @pytest.mark.parametrize(
        ("num_labels", "labels", "problem", "function"),
        [
            (1, torch.tensor([[-100.0], [-2.0]]), "regression", nn.functional.mse_loss),  # -100 is a number here
            (3, torch.tensor([0, 2]), "single_label_classification", nn.functional.cross_entropy),
            (
                3,
                torch.tensor([[0.0, 1.0, 1.0], [0.0, 0.0, 1.0]]),
                "multi_label_classification",
                nn.functional.binary_cross_entropy_with_logits,
            ),
        ],
        ids=["regression", "one class", "several"],
    )
    def test_the_problem_and_its_loss_follow_from_the_labels(
        self, num_labels: int, labels: Tensor, problem: str, function: Callable[[Tensor, Tensor], Tensor]
    ) -> None:
        model = self.model(SEQUENCE, num_labels=num_labels)
        output = model(**random_batch(padded([2, 2], 2, "right")).inputs(), labels=labels)
        assert model.config.problem_type == problem
        torch.testing.assert_close(output.loss, function(output.logits, labels))

    def test_the_loss_of_a_model_in_half_precision_is_summed_in_float32(self, head: str) -> None:
        model = self.model(head).to(torch.bfloat16)
        batch = random_batch(padded([6, 4, 0], 6, "right"))
        loss = model(**batch.inputs(), **labels_of(head, batch)).loss
        assert loss.dtype == torch.float32
        assert loss.isfinite()
