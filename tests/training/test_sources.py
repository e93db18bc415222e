"""Names of models and data: what is neither here nor on the Hub is refused before its client waits for a network."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from huggingface_hub import HfApi, constants
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

from modeling_star.errors import UserError
from modeling_star.sources import check_exists
from modeling_star.training.named_models import loading


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mock:
    """The question to the Hub, in a folder with two trained models, with an empty cache."""
    for name in ("outputs/reviews", "outputs/tagger", "mine"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    question = Mock()
    monkeypatch.setattr(HfApi, "repo_info", question)
    return question


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("./outputs/reviws", "outputs/reviews"),
        ("outputs/taggr/", "outputs/tagger"),
        ("../none/at/all", ""),
        ("shape.json", ""),
        ("vectors.txt", ""),
        ("~/mine", ""),
        ("outputs\\reviews", ""),
    ],
)
def test_a_path_that_does_not_exist_is_refused_without_a_question(asked: Mock, name: str, nearest: str) -> None:
    with pytest.raises(UserError, match="--model_name_or_path") as refused:
        check_exists("--model_name_or_path", name)
    assert nearest in str(refused.value)
    asked.assert_not_called()


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("outputs/reviws", "outputs/reviews"), ("output/reviews", "outputs/reviews"), ("min", "mine"), ("bert", None)],
)
@pytest.mark.parametrize("error", [RepositoryNotFoundError("404", response=Mock()), ConnectionError("no network")])
def test_a_name_that_the_hub_does_not_have_is_refused_after_one_question(
    asked: Mock, name: str, nearest: str | None, error: Exception
) -> None:
    asked.side_effect = error
    with pytest.raises(UserError) as refused:
        check_exists("MODEL", name)
    assert asked.call_count == 1
    assert ("Did you mean" in str(refused.value)) == (nearest is not None)
    assert (nearest or "") in str(refused.value)


@pytest.mark.parametrize("name", ["bert-base-cased", "google/bert-mini", "a/star-v1.1", "mines", "outputs/tagge"])
def test_names_of_the_hub_are_used_whatever_they_resemble(asked: Mock, name: str) -> None:
    check_exists("MODEL", name)
    asked.side_effect = HfHubHTTPError("503", response=Mock())
    check_exists("MODEL", name)
    asked.side_effect = ConnectionError("no network")
    (Path("cache") / f"models--{name.replace('/', '--')}" / "snapshots").mkdir(parents=True)
    check_exists("MODEL", name)


def test_what_is_here_is_not_asked_for(asked: Mock) -> None:
    for name in ("mine", "outputs/reviews", "./mine/", None):
        check_exists("MODEL", name)
    asked.assert_not_called()


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"auto_map": {"AutoConfig": "configuration_x.X"}}, "model_type"),
        ({"hidden_size": 16}, "model_type"),
        ({"auto_map": {"AutoConfig": "configuration_x.X"}, "model_type": "x"}, "--trust_remote_code"),
    ],
)
def test_code_of_a_model_is_suggested_only_where_its_kind_is_known(
    tmp_path: Path, config: dict[str, Any], told: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    from transformers import AutoConfig

    with pytest.raises(UserError) as refused, loading("MODEL", str(tmp_path)):
        AutoConfig.from_pretrained(tmp_path, trust_remote_code=False)
    assert told in str(refused.value)
    assert "trust_remote_code=True" not in str(refused.value)
    assert ("--trust_remote_code" in str(refused.value)) == (told != "model_type")
