"""What a configuration tells of how its model is to be asked."""

import pytest
from transformers import BertConfig

from modeling_star import StarTransformerConfig
from modeling_star.inference.question_answering import save_options, saved_options


def test_each_task_has_its_own_options() -> None:
    config = StarTransformerConfig()
    save_options(config, "translation", {"max_extra_tokens": 3})
    save_options(config, "question-answering", {"stride": 1})
    assert saved_options(config, "translation") == {"max_extra_tokens": 3}
    assert saved_options(config, "question-answering") == {"stride": 1}
    assert saved_options(config, "summarization") == {}


@pytest.mark.parametrize("told", [{}, {"task_specific_params": None}], ids=["absent", "null"])
def test_a_model_may_tell_no_options(told: dict[str, None]) -> None:
    config = BertConfig(**told)
    assert saved_options(config, "translation") == {}
    save_options(config, "translation", {"max_extra_tokens": 3})
    assert saved_options(config, "translation") == {"max_extra_tokens": 3}
