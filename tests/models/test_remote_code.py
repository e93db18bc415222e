"""
Saved folders where this package is not installed: everything happens in fresh processes that cannot import it.

Starting a process takes seconds, so that each checks all folders at once and writes its findings to a file; each
test checks one finding.
"""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from common import EVERY_MODEL, TINY, tiny_model
from safetensors.torch import load_file, save_file
from samples import AUTO_CLASSES, LEXICON, PEERS, STEMS, embedded_model, some_inputs, tensors_of, word_tokenizer
from transformers import pipeline
from transformers.utils import is_triton_available

import modeling_star
from modeling_star import Lexicon


# The code that a saved model needs, no more: nothing of training, tests, or other encoders.
SHARED_CODE = {
    *("configuration_encoder.py", "modeling_encoder.py", "embeddings.py", "heads.py", "token_layout.py"),
    *("char_cnn.py", "crf.py", "pairs.py", "backbone.py", "convert.py", "saving.py", "sorted_keys.py"),
    *("tag_schemes.py", "token_runs.py", "vocabulary.py", "word_marks.py", "word_matcher.py", "word_vectors.py"),
}
ATTENTION_CODE = {"attention.py", "ops.py", "sparse_attention.py", "derivatives.py"}
CODE = {
    "StarTransformer": SHARED_CODE | ATTENTION_CODE | {"configuration_star.py", "modeling_star.py"},
    "BigTransformer": SHARED_CODE
    | ATTENTION_CODE
    | {"configuration_big.py", "modeling_big.py", "window_attention.py"},
    "VanillaTransformer": SHARED_CODE | {"configuration_vanilla.py", "modeling_vanilla.py"},
    "Disan": SHARED_CODE | {"configuration_disan.py", "derivatives.py", "modeling_disan.py"},
    "BiLstm": SHARED_CODE | {"configuration_bilstm.py", "modeling_bilstm.py"},
}
WORDS = "we live in Kyoto not Tokyo or Rome"
TEXT = "we live in Kyoto"
UNFROZEN = ("random", "characters", "bert", "vote")
TAGGERS = ("StarTransformer", "BigTransformer")

CASES = [
    *(("StarTransformer", ending, embeddings) for ending in EVERY_MODEL for embeddings in ("random", "static")),
    *(("StarTransformer", ending, "contextual") for ending in EVERY_MODEL),
    *(("BigTransformer", ending, "random") for ending in EVERY_MODEL),
    *((stem, "ForSequenceClassification", "vote") for stem in ("StarTransformer", "BiLstm")),
    ("BigTransformer", "ForTokenClassification", "contextual"),
    *(("BigTransformer", ending, "bert") for ending in ("ForSequenceClassification", "ForTokenClassification")),
    *((stem, "ForTokenClassification", "characters") for stem in STEMS),
    *((stem, ending, "random") for stem in PEERS for ending in EVERY_MODEL),
    *((stem, "ForTokenClassification", "contextual") for stem in PEERS),
]

# Put before every program of a fresh process. An editable install is found by an entry of sys.meta_path or of
# sys.path; refusing the name before either is searched covers both.
COLD = """
import importlib.abc, json, sys
from pathlib import Path

class NotInstalled(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "modeling_star" or name.startswith("modeling_star."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NotInstalled())
sys.modules["triton"] = None  # nor is it
try:
    import modeling_star
except ModuleNotFoundError:
    pass
else:
    raise SystemExit("modeling_star can be imported, which proves nothing")

import torch, transformers
from safetensors.torch import load_file, save_file

torch.set_num_threads(1)
transformers.utils.logging.disable_progress_bar()

def outputs(model, inputs):
    with torch.no_grad():
        return {name: tensor.contiguous() for name, tensor in model(**inputs).items()}

def trainable(model):
    return sorted(name for name, parameter in model.named_parameters() if parameter.requires_grad)
"""

LOAD_ALL = """
root = Path(sys.argv[1])
inputs = load_file(root / "inputs.safetensors")
findings = {}
for name, (auto, labels) in json.loads((root / "cases.json").read_text()).items():
    folder = root / name
    model, info = getattr(transformers, auto).from_pretrained(
        folder, trust_remote_code=True, output_loading_info=True
    )
    save_file(outputs(model, inputs), root / f"{name}.loaded.safetensors")
    model.train()
    backbone = model.base_model.embeddings.backbone
    findings[name] = {
        "class": type(model).__name__,
        "module": type(model).__module__,
        "info": {key: sorted(map(str, value)) for key, value in info.items() if value},
        "trainable": trainable(model),
        "backbone_trains": None if backbone is None else backbone.training,
        "labels": model.config.id2label == {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"},
    }
    model.eval().save_pretrained(root / "again" / name)
json.dump(findings, open(root / "findings.json", "w"))
assert not [name for name in sys.modules if name.split(".")[0] == "modeling_star"]
"""

# Other uses of a folder without the package.
USE = """
root = Path(sys.argv[1])
inputs = load_file(root / "inputs.safetensors")
load = dict(trust_remote_code=True)
findings = {}

# A masked language model loads as any other.
folder = root / "StarTransformer-ForMaskedLM-random"
for auto in ("AutoModel", "AutoModelForTokenClassification", "AutoModelForSequenceClassification"):
    model, info = getattr(transformers, auto).from_pretrained(folder, output_loading_info=True, **load)
    masked = transformers.AutoModelForMaskedLM.from_pretrained(folder, **load).base_model.state_dict()
    shared = {name: tensor for name, tensor in model.base_model.state_dict().items() if name in masked}
    findings[auto] = {
        "class": type(model).__name__,
        "missing": sorted(info["missing_keys"]),
        "shared": len(shared) / len(masked),
        "same": all(torch.equal(tensor, masked[name]) for name, tensor in shared.items()),
        "finite": all(tensor.isfinite().all().item() for tensor in outputs(model, inputs).values()),
    }

# A configuration alone, changed; a new model from it.
config = transformers.AutoConfig.from_pretrained(folder, num_hidden_layers=3, **load)
model = transformers.AutoModelForQuestionAnswering.from_config(config, **load)
findings["from_config"] = {"class": type(model).__name__, "layers": len(model.model.layers)}
try:
    transformers.AutoConfig.from_pretrained(folder, hidden_dropout_prob=2, **load)
except Exception as error:
    findings["message"] = str(error)

# The stock pipeline, from folders that hold a tokenizer too.
findings["tags"] = {}
for name in ("StarTransformer", "BigTransformer"):
    folder = root / f"{name}-tagger"
    tagger = transformers.pipeline("token-classification", model=str(folder), trust_remote_code=True)
    findings["tags"][name] = [
        {key: value if isinstance(value, (str, int)) else float(value) for key, value in entry.items()}
        for entry in tagger("we live in Kyoto")
    ]

    # Fine-tuned here and saved: code travels on.
    model = transformers.AutoModelForTokenClassification.from_pretrained(folder, **load)
    loss = model(**inputs, labels=inputs["input_ids"] % 3).loss
    loss.backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    model.eval().save_pretrained(root / "again" / f"{name}-tuned")
    save_file(outputs(model, inputs), root / "again" / f"{name}-tuned.expected.safetensors")
json.dump(findings, open(root / "used.json", "w"))
"""

PREDICT = """
model = transformers.AutoModel.from_pretrained(sys.argv[1], trust_remote_code=True)
with torch.inference_mode():
    print(model(torch.tensor([[5, 6, 7]])).last_hidden_state.flatten().tolist())
"""

# The code of a folder beside the installed package: its kernels are used, in Triton's interpreter.
USE_KERNELS = """
import sys
from pathlib import Path
import transformers
from safetensors.torch import load_file, save_file

root, folder = Path(sys.argv[1]), Path(sys.argv[2])
model = transformers.AutoModel.from_pretrained(folder, trust_remote_code=True)
assert type(model).__module__.startswith("transformers_modules."), type(model)
assert "modeling_star" not in sys.modules
save_file({"state": model(**load_file(root / "inputs.safetensors")).last_hidden_state}, root / "kernels.safetensors")
assert "modeling_star.kernels.triton_ring_attention" in sys.modules
import modeling_star.kernels
modeling_star.kernels.INTERFACE += 1
try:
    model(**load_file(root / "inputs.safetensors"))
except (ImportError, RuntimeError) as error:
    assert "interface" in str(error)
else:
    raise SystemExit("kernels of another interface were called")
"""


def name_of(case: tuple[str, str, str]) -> str:
    return "-".join(case)


def run_cold(program: str, root: Path, *arguments: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in a fresh process, from another folder, without this package and with empty caches."""
    # -I: neither the working folder nor PYTHONPATH is searched for modules.
    return run_fresh(["-I", "-c", COLD + program, *map(str, arguments)], root, {})


def run_fresh(arguments: list[str], root: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    elsewhere = root / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    cache = {"HF_HOME": str(root / "home"), "HF_MODULES_CACHE": str(root / "modules"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=elsewhere,
        env={**os.environ, **cache, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, tiny_bert_path: str) -> Path:
    """Every case saved by this process, frozen if it has a BERT inside, with its output."""
    root = tmp_path_factory.mktemp("remote")
    inputs = some_inputs()
    save_file(inputs, root / "inputs.safetensors")
    trained, files = {}, {}
    for stem, ending, embeddings in CASES:
        name = name_of((stem, ending, embeddings))
        model = embedded_model(embeddings, stem, ending, root, tiny_bert_path, freeze=embeddings not in UNFROZEN)
        model.save_pretrained(root / name)
        expected = {key: tensor.contiguous() for key, tensor in tensors_of(model, inputs).items()}
        save_file(expected, root / f"{name}.expected.safetensors")
        trained[name] = sorted(key for key, parameter in model.named_parameters() if parameter.requires_grad)
        files[name] = files_in(root / name)
    (root / "files.json").write_text(json.dumps(files))
    (root / "trained.json").write_text(json.dumps(trained))
    write_cases(root, [name_of(case) for case in CASES])
    words = word_tokenizer(WORDS)
    for stem in TAGGERS:
        tagger = tiny_model(stem, "ForTokenClassification", vocab_size=len(words)).eval()
        if stem == "BigTransformer":
            tagger.set_lexicon(Lexicon.from_words(["live in Kyoto", "in Kyoto", "not Tokyo"], words))
        tagger.save_pretrained(root / f"{stem}-tagger")
        words.save_pretrained(root / f"{stem}-tagger")
        scores = [float(entry["score"]) for entry in pipeline("token-classification", tagger, tokenizer=words)(TEXT)]
        (root / f"{stem}-scores.json").write_text(json.dumps(scores))
    return root


def files_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def write_cases(root: Path, names: list[str]) -> None:
    cases = {name: (AUTO_CLASSES[ending_of(name)], TINY["num_labels"]) for name in names}
    (root / "cases.json").write_text(json.dumps(cases))


def ending_of(name: str) -> str:
    ending = name.split("-")[1]
    return "ForTokenClassification" if ending == "tuned" else ending


@pytest.fixture(scope="module")
def findings(saved: Path) -> dict[str, Any]:
    """The findings of a fresh process that loads every case and saves it again."""
    run_cold(LOAD_ALL + USE, saved, saved)
    return json.loads((saved / "findings.json").read_text())


@pytest.fixture(scope="module")
def used(findings: dict[str, Any], saved: Path) -> dict[str, Any]:
    """The findings of the same process on using the folders."""
    return json.loads((saved / "used.json").read_text())


@pytest.fixture(scope="module")
def found_again(findings: dict[str, Any], saved: Path) -> dict[str, Any]:
    """The findings of another fresh process on the models saved by the first, whose folders are out of reach."""
    again = saved / "again"
    write_cases(again, [*(name_of(case) for case in CASES), *(f"{stem}-tuned" for stem in TAGGERS)])
    (saved / "inputs.safetensors").rename(again / "inputs.safetensors")
    for case in CASES:
        (saved / name_of(case)).rename(saved / f"hidden-{name_of(case)}")
    run_cold(LOAD_ALL, again, again)
    return json.loads((again / "findings.json").read_text())


def assert_same_bits(actual: Path, expected: Path) -> None:
    loaded, saved = load_file(actual), load_file(expected)
    assert loaded.keys() == saved.keys()
    for name, tensor in saved.items():
        assert tensor.isfinite().all(), name
        assert torch.equal(loaded[name], tensor), name


# ------ files of a saved folder


@pytest.mark.parametrize("stem", TAGGERS)
def test_a_folder_with_a_tokenizer_adds_the_tokenizer_files_only(stem: str, saved: Path) -> None:
    model_files = {f"code/{file}" for file in CODE[stem]} | {"config.json", "model.safetensors"}
    assert set(files_in(saved / f"{stem}-tagger")) - model_files == {"tokenizer.json", "tokenizer_config.json"}


def test_the_shipped_code_imports_only_torch_transformers_and_its_neighbours() -> None:
    # Another import would have to be installed on the loader's machine.
    package = Path(modeling_star.__file__).parent / "models"
    allowed = {"torch", "transformers", "huggingface_hub", *sys.stdlib_module_names}
    shipped = set().union(*CODE.values())
    for file in shipped:
        tree = ast.parse((package / file).read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                assert {alias.name.split(".")[0] for alias in node.names} <= allowed, (file, node.lineno)
            elif isinstance(node, ast.ImportFrom) and node.level:
                assert node.level == 1, (file, node.lineno)
                assert f"{node.module}.py" in shipped, (file, node.lineno)
            elif isinstance(node, ast.ImportFrom):
                assert str(node.module).split(".")[0] in allowed, (file, node.lineno)


# ------ loading


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_folder_computes_the_same_bits_cold_and_warm_and_trains_the_same_parameters(
    case: tuple[str, str, str], findings: dict[str, Any], saved: Path
) -> None:
    name = name_of(case)
    files, trained = (json.loads((saved / f"{kind}.json").read_text())[name] for kind in ("files", "trained"))
    assert set(files) == {f"code/{file}" for file in CODE[case[0]]} | {"config.json", "model.safetensors"}
    assert_same_bits(saved / f"{name}.loaded.safetensors", saved / f"{name}.expected.safetensors")
    warm = getattr(transformers, AUTO_CLASSES[case[1]]).from_pretrained(saved / name)  # by the package
    assert type(warm).__module__.startswith("modeling_star.models.")
    expected = load_file(saved / f"{name}.expected.safetensors")
    for key, tensor in tensors_of(warm, load_file(saved / "inputs.safetensors")).items():
        assert torch.equal(tensor, expected[key]), key
    assert findings[name]["class"] == case[0] + case[1]
    assert findings[name]["module"].startswith("transformers_modules.")
    assert findings[name]["info"] == {}
    assert findings[name]["labels"]
    assert findings[name]["trainable"] == trained
    # A frozen BERT stays in eval mode while the model trains.
    assert findings[name]["backbone_trains"] is (False if case[2] == "contextual" else None)


@pytest.mark.parametrize(
    "auto", ["AutoModel", "AutoModelForTokenClassification", "AutoModelForSequenceClassification"]
)
def test_a_masked_lm_loads_as_any_other_model(auto: str, used: dict[str, Any]) -> None:
    result = used[auto]
    ending = next(ending for ending, name in AUTO_CLASSES.items() if name == auto)
    assert result["class"] == f"StarTransformer{ending}"
    assert result["shared"] == 1
    assert result["same"]
    assert result["finite"]
    assert all("relay" in name or "classifier" in name for name in result["missing"])


def test_a_configuration_loads_and_is_checked_without_the_package(used: dict[str, Any]) -> None:
    assert used["from_config"] == {"class": "StarTransformerForQuestionAnswering", "layers": 3}
    assert "hidden_dropout_prob=2" in used["message"]


@pytest.mark.parametrize("stem", TAGGERS)
def test_the_stock_pipeline_runs_without_the_package(stem: str, used: dict[str, Any], saved: Path) -> None:
    tags = used["tags"][stem]
    assert [entry["word"] for entry in tags] == TEXT.split()
    assert [(entry["start"], entry["end"]) for entry in tags] == [(0, 2), (3, 7), (8, 10), (11, 16)]
    expected = json.loads((saved / f"{stem}-scores.json").read_text())
    assert [entry["score"] for entry in tags] == pytest.approx(expected, abs=1e-6)


def test_the_words_that_a_cold_process_matches_change_its_output() -> None:
    # The same bits as with the package say nothing of the lexicon if there is no word of it in the text.
    words = word_tokenizer(WORDS)
    model = tiny_model("BigTransformer", "ForTokenClassification", vocab_size=len(words)).eval()
    tagger = pipeline("token-classification", model, tokenizer=words)
    without = [float(entry["score"]) for entry in tagger(TEXT)]
    model.set_lexicon(Lexicon.from_words(["live in Kyoto", "in Kyoto"], words))
    assert [float(entry["score"]) for entry in tagger(TEXT)] != pytest.approx(without, abs=1e-3)
    model = tiny_model("BigTransformer")
    inputs, states = some_inputs(), []
    for lexicon in (None, LEXICON):
        model.set_lexicon(lexicon)
        states.append(tensors_of(model, inputs)["last_hidden_state"])
    assert not torch.equal(*states)


@pytest.mark.slow
def test_a_prediction_without_the_package_puts_a_line_on_the_log_at_most(tmp_path: Path) -> None:
    model = tiny_model("StarTransformer").eval()
    model.save_pretrained(tmp_path / "model")
    done = run_cold(PREDICT, tmp_path, tmp_path / "model")
    with torch.inference_mode():
        expected = model(torch.tensor([[5, 6, 7]])).last_hidden_state.flatten().tolist()
    assert json.loads(done.stdout) == pytest.approx(expected, abs=1e-5)
    assert len(done.stderr.splitlines()) <= 1, done.stderr


@pytest.mark.skipif(not is_triton_available(), reason="Triton is not installed: pip install triton")
def test_the_code_of_a_folder_finds_the_kernels_of_an_installed_package(saved: Path) -> None:
    name = "StarTransformer-Model-random"
    package = str(Path(modeling_star.__file__).parents[1])
    setting = {"PYTHONPATH": package, "TRITON_INTERPRET": "1", "MODELING_STAR_KERNELS": "1"}
    run_fresh(["-c", USE_KERNELS, str(saved), str(saved / name)], saved, setting)
    expected = load_file(saved / f"{name}.expected.safetensors")["last_hidden_state"]
    torch.testing.assert_close(load_file(saved / "kernels.safetensors")["state"], expected, rtol=1e-5, atol=1e-5)


# ------ saved again, without the package


@pytest.mark.parametrize("case", CASES, ids=name_of)
@pytest.mark.slow
def test_a_model_saved_by_a_cold_process_loads_in_another(
    case: tuple[str, str, str], found_again: dict[str, Any], saved: Path
) -> None:
    name = name_of(case)
    assert_same_bits(saved / "again" / f"{name}.loaded.safetensors", saved / f"{name}.expected.safetensors")
    assert found_again[name]["class"] == case[0] + case[1]
    assert found_again[name]["info"] == {}
    assert found_again[name]["trainable"] == json.loads((saved / "trained.json").read_text())[name]
    assert set(files_in(saved / "again" / name)) == {f"code/{file}" for file in CODE[case[0]]} | {
        "config.json",
        "model.safetensors",
    }


@pytest.mark.parametrize("stem", TAGGERS)
@pytest.mark.slow
def test_a_model_tuned_by_a_cold_process_loads_in_another(stem: str, found_again: dict[str, Any], saved: Path) -> None:
    tuned = f"{stem}-tuned"
    assert_same_bits(
        saved / "again" / f"{tuned}.loaded.safetensors", saved / "again" / f"{tuned}.expected.safetensors"
    )
    assert found_again[tuned]["info"] == {}


@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.slow
def test_every_head_is_named_in_the_auto_map(stem: str, found_again: dict[str, Any], saved: Path) -> None:
    module = stem.removesuffix("Transformer").lower()
    expected = {auto: f"code/modeling_{module}.{stem}{ending}" for ending, auto in AUTO_CLASSES.items()}
    expected["AutoConfig"] = f"code/configuration_{module}.{stem}Config"
    # Saved with the package, and by two processes without it one after the other.
    for folder in ("hidden-{}-ForMaskedLM-random", "again/{}-ForMaskedLM-random", "again/again/{}-Model-random"):
        config = json.loads((saved / folder.format(stem) / "config.json").read_text())
        assert config["auto_map"] == expected
