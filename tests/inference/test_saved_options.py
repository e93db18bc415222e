"""Options of a task in the configuration of a saved model."""

import pytest
from transformers import BertConfig

from modeling_star import StarTransformerConfig
from modeling_star.inference.question_answering import saved_options


def test_tasks_have_separate_options() -> None:
    options = {"translation": {"max_extra_tokens": 3}, "question-answering": {"stride": 1}}
    config = StarTransformerConfig(task_specific_params=options)
    assert saved_options(config, "translation") == {"max_extra_tokens": 3}
    assert saved_options(config, "question-answering") == {"stride": 1}
    assert saved_options(config, "summarization") == {}


@pytest.mark.parametrize("fields", [{}, {"task_specific_params": None}], ids=["absent", "null"])
def test_a_model_may_have_no_options(fields: dict[str, None]) -> None:
    assert saved_options(BertConfig(**fields), "translation") == {}
