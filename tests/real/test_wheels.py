"""
sdist and wheel, built and installed alone: an environment has what `pip install` would bring, and nothing else.

Its packages are links to those that the tests run with, so that no network is needed.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[2]
HAS_COMPILER = sys.platform == "linux" and any(map(shutil.which, ("c++", "g++", "clang++")))

NO_COMPILER = {"PATH": "/nowhere", "CXX": ""}
CLASSIFY = "classify --train_file train.csv --test_file test.csv --max_steps 2 --disable_tqdm true --output_dir model"
BASE = """
import json, sys
from transformers import AutoModelForSequenceClassification, pipeline
import modeling_star
from modeling_star.inference import Predictor
from modeling_star.kernels import cpu, cpu_library
texts = ["A fine film.", "A dull film."]
labels = [found[0]["label"] for _, found in Predictor("model").predict(texts)]
assert [one["label"] for one in pipeline("text-classification", "model")(texts)] == labels
assert AutoModelForSequenceClassification.from_pretrained("model").config.model_type == "star_transformer"
found = cpu_library.find(cpu.level())
print(json.dumps([modeling_star.__file__, cpu.level_in_use() is not None, found and str(found.parent)]))
"""


def run(command: Sequence[object], folder: Path, **environment: str) -> str:
    """What a program prints. It finds this checkout neither by PYTHONPATH nor in its folder."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*map(str, command)],
        cwd=folder,
        env={**variables, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def build(source: Path, target: str, folder: Path, **environment: str) -> Path:
    """An sdist or a wheel of a source tree."""
    environment["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")  # hatchling may be there
    run([sys.executable, "-m", "hatchling", "build", "-t", target, "-d", folder], source, **environment)
    [built] = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source tree of the sdist, from which wheels are built."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build(ROOT, "sdist", folder / "dist")) as archive:
        archive.extractall(folder, filter="data")
    [tree] = folder.glob("modeling_star-*")
    return tree


@pytest.fixture(scope="module", params=["compiled", "pure"])
def wheel(request: pytest.FixtureRequest, unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built where there is a compiler, and one built where there is none."""
    if request.param == "compiled" and not HAS_COMPILER:
        pytest.skip("there is no C++ compiler")
    variables = {"MODELING_STAR_CPU_KERNELS": "auto"} | ({} if request.param == "compiled" else NO_COMPILER)
    built = build(unpacked, "wheel", tmp_path_factory.mktemp("wheel") / "dist", **variables)
    assert built.name.endswith("-py3-none-any.whl") == (request.param == "pure")
    return built


def required(requirements: Sequence[str] | None, extras: frozenset[str]) -> dict[str, metadata.Distribution]:
    """The distributions of requirements, and what they require in turn."""
    from packaging.requirements import Requirement

    found: dict[str, metadata.Distribution] = {}
    waiting = [(Requirement(line), extras) for line in requirements or ()]
    while waiting:
        requirement, allowed = waiting.pop()
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in (*allowed, "")):
            continue
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if name not in found:
            found[name] = metadata.distribution(name)
        elif not requirement.extras:
            continue
        waiting += [(Requirement(line), frozenset(requirement.extras)) for line in found[name].requires or ()]
    return found


def install(wheel: Path, extras: frozenset[str], folder: Path) -> Path:
    """An environment with a wheel and its requirements; returns its folder of programs."""
    venv.create(folder, with_pip=False)
    [packages] = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        requires = metadata.PathDistribution(zipfile.Path(archive, name.rpartition("/")[0] + "/")).requires
    for distribution in required(requires, extras).values():
        for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(Path(str(distribution.locate_file(top))))
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install"]
    run([*pip, "--no-deps", "--no-index", "--disable-pip-version-check", wheel], folder)
    return folder / "bin"


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two small tables."""
    folder = tmp_path_factory.mktemp("work")
    for split, count in {"train": 64, "test": 16}.items():
        rows = (f"A {('dull', 'fine')[n % 2]} film, number {n}.,{('bad', 'good')[n % 2]}" for n in range(count))
        lines = ['"{}",{}'.format(*row.rsplit(",", 1)) for row in rows]
        (folder / f"{split}.csv").write_text("\n".join(["text,label", *lines]) + "\n", encoding="utf-8")
    return folder


def test_a_wheel_is_compiled_where_a_compiler_is_and_pure_elsewhere(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    libraries = [name for name in names if name.endswith(".so")]
    assert bool(libraries) == (not wheel.name.endswith("-py3-none-any.whl"))
    assert all(name.startswith("modeling_star/kernels/cpu-") for name in libraries)
    assert {"modeling_star/kernels/cpu.cpp", "modeling_star/configuration/models/star-plus-2.json"} <= {*names}


def test_what_is_installed_alone_trains_and_predicts(wheel: Path, work: Path, tmp_path: Path) -> None:
    train, base = (
        install(wheel, frozenset(extras), tmp_path / name)
        for name, extras in {"train": ("train",), "base": ()}.items()
    )
    shutil.rmtree(work / "model", ignore_errors=True)
    run([train / "modeling-star", *CLASSIFY.split()], work)
    # Without datasets, evaluate, matplotlib, scikit-learn; without a compiler, and with an empty cache.
    nothing = {**NO_COMPILER, "MODELING_STAR_CPU_KERNELS": "auto", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert "No module" in run([base / "python", "-c", "try: import datasets\nexcept ImportError as e: print(e)"], work)
    assert run([base / "modeling-star", "--version"], work).split()[0] == "modeling-star"
    assert "good" in run([base / "modeling-star", "predict", "model", "A fine film."], work, **nothing)
    assert "good" in run([base / "modeling-star", "predict", "model", "--file=test.csv"], work, **nothing)
    with pytest.raises(AssertionError, match=r'pip install "\.\[train\]"'):
        run([base / "modeling-star", *CLASSIFY.replace("model", "other").split()], work)
    with pytest.raises(AssertionError, match=r'StarClassifier: .*pip install "\.\[train\]"'):
        run([base / "python", "-c", "from modeling_star import StarClassifier"], work)
    imported, compiled, found = json.loads(run([base / "python", "-c", BASE], work, **nothing).splitlines()[-1])
    assert Path(imported).is_relative_to(tmp_path / "base")
    assert found == (str(Path(imported).parent / "kernels") if compiled else None)
    if wheel.name.endswith("-any.whl"):
        assert not compiled
    elif "avx2" in Path("/proc/cpuinfo").read_text(encoding="utf-8"):
        assert compiled
