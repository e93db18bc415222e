"""Importing the package: cheap, the same in every program, and known to transformers and PEFT."""

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import transformers
from common import TINY
from samples import AUTO_CLASSES

import modeling_star
from modeling_star import auto


ROOT = Path(modeling_star.__file__).parents[1]


def run(code: str, *arguments: str) -> Any:
    """The JSON that a new process prints last."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_import_loads_neither_torch_nor_transformers() -> None:
    code = "import json, sys, modeling_star; print(json.dumps([*sys.modules]))"
    assert not {"numpy", "torch", "transformers", "peft"} & {*run(code)}


# Before and after transformers; a configuration alone loads no model; nothing depends on the command line.
_ORDERS = {
    "ours first": "import modeling_star; from transformers import AutoConfig, AutoModel",
    "ours last": "from transformers import AutoConfig, AutoModel; AutoModel._model_mapping; import modeling_star",
    "in between": "from transformers import AutoConfig; import modeling_star; from transformers import AutoModel",
}


@pytest.mark.parametrize(
    "order", ["ours first", *(pytest.param(name, marks=pytest.mark.slow) for name in [*_ORDERS][1:])]
)
def test_auto_classes_know_a_saved_folder(order: str, tmp_path: Path) -> None:
    config = modeling_star.BigTransformerConfig(**TINY)
    modeling_star.BigTransformerModel(config).save_pretrained(tmp_path)
    code = f"""
import json, sys
{_ORDERS[order]}
config = AutoConfig.from_pretrained(sys.argv[1])
lazy = "transformers.modeling_utils" not in sys.modules
model = AutoModel.from_pretrained(sys.argv[1])
known = type(config) in AutoModel._model_mapping
print(json.dumps([type(config).__name__, type(model).__module__, model._auto_class, lazy, known]))
"""
    expected = ["BigTransformerConfig", "modeling_star.models.modeling_big", "AutoModel", True, True]
    assert run(code, str(tmp_path), "--help") == expected


def test_a_program_that_prints_its_help_has_all_names() -> None:
    code = """
import json
from modeling_star import *
from modeling_star import StarTransformerConfig, StarClassifier
import modeling_star
print(json.dumps([len(modeling_star.__all__), all(name in globals() for name in modeling_star.__all__)]))
"""
    assert run(code, "--help") == [len(modeling_star.__all__), True]


def test_all_names_are_what_their_modules_have() -> None:
    assert set(modeling_star.__all__) <= set(dir(modeling_star))
    for name in modeling_star.__all__:
        assert getattr(modeling_star, name).__name__ == name
    with pytest.raises(AttributeError, match="StarTransformer2"):
        modeling_star.StarTransformer2  # noqa: B018
    assert modeling_star.inference.Predictor.__name__ == "Predictor"


def test_type_checkers_see_the_names_that_programs_see() -> None:
    (block,) = (node for node in ast.parse(Path(modeling_star.__file__).read_text()).body if isinstance(node, ast.If))
    seen = set()
    for line in block.body:
        assert isinstance(line, ast.ImportFrom)
        module = __import__(f"modeling_star.{line.module}", fromlist=["*"])
        names = {alias.name for alias in line.names}
        seen |= set(module.__all__) if names == {"*"} else names
    assert seen == set(modeling_star.__all__)


def test_names_are_registered_for_every_auto_class() -> None:
    for model_type, (_, stem) in auto.ENCODERS.items():
        config = getattr(modeling_star, f"{stem}Config")
        assert transformers.AutoConfig.for_model(model_type).__class__ is config
        assert config.model_type == model_type
        for ending, name in AUTO_CLASSES.items():
            mapping = getattr(transformers, name)._model_mapping
            model = getattr(modeling_star, stem + ending)
            assert mapping[config] is model
            assert model._auto_class == name


def test_peft_is_changed_only_when_it_is_used() -> None:
    pytest.importorskip("peft")
    code = """
import json, sys
import modeling_star
from transformers import AutoModelForTokenClassification, BertConfig, BertForTokenClassification
star = modeling_star.StarTransformerForTokenClassification
before = "peft" in sys.modules
import peft
size = dict(hidden_size=16, num_attention_heads=2)
config = BertConfig(vocab_size=20, num_hidden_layers=1, intermediate_size=16, **size)
others = BertForTokenClassification(config)
others.crf = others.classifier  # a model of somebody else
made = [peft.get_peft_model(others, peft.LoraConfig(task_type="TOKEN_CLS"))]
for use_crf in (False, True):
    config = modeling_star.StarTransformerConfig(vocab_size=20, use_crf=use_crf, **size)
    made.append(peft.get_peft_model(star(config), peft.LoraConfig(task_type="TOKEN_CLS")))
print(json.dumps([before, [type(each).__module__.split(".")[0] for each in made]]))
"""
    assert run(code) == [False, ["peft", "peft", "modeling_star"]]


def test_predictions_of_typed_texts_import_no_readers_of_files() -> None:
    """pandas and `datasets` are a sixth of the memory of a process."""
    names = ("inference.prediction", "inference.torch_runtime", "commands.predict", "training.named_models")
    imports = ", ".join(f"modeling_star.{name}" for name in names)
    code = f"import sys, {imports}; assert not {{'datasets', 'pandas'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
