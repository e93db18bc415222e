"""Saved folders of translators, and the former names."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import translation
from translation import TextEncoderDecoderConfig, TextEncoderDecoderModel
from translation.builders import set_generation
from translation.subwords import train_subword_tokenizer

import modeling_star
from modeling_star import Lexicon


ROOT = Path(__file__).resolve().parents[3]
WORDS = "we live in Kyoto not in Tokyo or Rome"
LOAD = """
import json, sys
import torch, transformers

translated = {}
for folder in sys.argv[1:]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    model, info = transformers.AutoModelForSeq2SeqLM.from_pretrained(
        folder, trust_remote_code=True, output_loading_info=True
    )
    inputs = tokenizer(["we live in Kyoto", "Rome"], padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = model(**inputs, labels=inputs["input_ids"]).logits
    translated[folder] = {
        "module": type(model).__module__.split(".")[0],
        "missing": sorted(map(str, info["missing_keys"])),
        "logits": logits.tolist(),
        "texts": tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True),
    }
print(json.dumps(translated))
"""


def test_a_saved_folder_loads_by_its_own_code_where_the_package_is_installed(tmp_path: Path) -> None:
    tokenizer = train_subword_tokenizer([WORDS] * 2, vocab_size=60)
    expected: dict[str, dict[str, Any]] = {}
    for kind in ("star_transformer", "big_transformer"):
        torch.manual_seed(1)
        encoder = {"model_type": kind, "hidden_size": 12, "num_attention_heads": 2}
        model = TextEncoderDecoderModel(TextEncoderDecoderConfig(encoder=encoder, vocab_size=len(tokenizer))).eval()
        if kind == "big_transformer":
            model.get_encoder().set_lexicon(Lexicon.from_words(["Kyoto", "live", "Rome"], tokenizer))
        set_generation(model, tokenizer, num_beams=3, penalty=0.5)
        model.generation_config.max_length = 12
        folder = tmp_path / kind
        for saved in (model, tokenizer):
            saved.save_pretrained(folder)
        code = {"configuration_encoder_decoder.py", "modeling_encoder_decoder.py"}
        assert {path.name for path in (folder / "code").iterdir()} == code
        inputs = tokenizer(["we live in Kyoto", "Rome"], padding=True, return_tensors="pt")
        with torch.no_grad():
            logits = model(**inputs, labels=inputs["input_ids"]).logits
        texts = tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True)
        assert any(texts)
        expected[str(folder)] = {
            "module": "transformers_modules",
            "missing": [],
            "logits": logits.tolist(),
            "texts": texts,
        }
    caches = {"HF_HOME": str(tmp_path / "home"), "HF_MODULES_CACHE": str(tmp_path / "modules"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", LOAD, *expected],
        env={**os.environ, **caches, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout.splitlines()[-1])
    for folder, values in expected.items():
        logits = torch.tensor(values.pop("logits"))
        torch.testing.assert_close(torch.tensor(loaded[folder].pop("logits")), logits)
    assert loaded == expected


@pytest.mark.parametrize("name", ["TextEncoderDecoderConfig", "TextEncoderDecoderModel", "translate"])
def test_a_former_name_says_where_it_is(name: str) -> None:
    with pytest.raises(ImportError, match=f"from translation import {name}"):
        getattr(modeling_star, name)
    assert name not in dir(modeling_star)
    assert hasattr(translation, name)  # as the error says


@pytest.mark.parametrize("former", [["-m", "modeling_star", "translation"], ["run_scripts/run_translation.py"]])
def test_a_former_command_says_where_it_is(former: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, *former, "tatoeba_zh_en"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "python experiments/run_translation.py" in done.stderr
    assert (ROOT / "experiments" / "run_translation.py").is_file()
