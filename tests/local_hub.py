"""
Replaces the Hub by a cache of models on this machine: uploads write into it, and models load from it by name.

    subprocess.run([sys.executable, local_hub.__file__, "push.py"], env=local_hub.environment(folder))    # uploads
    subprocess.run([sys.executable, "load.py"], env=local_hub.environment(folder))    # loads, offline

As a script, it runs another one whose uploads become snapshots in the cache that HF_HOME names.
"""

import json
import os
import runpy
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub import CommitInfo, CommitOperationAdd, HfApi, RepoUrl


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """The variables of a process that has the local Hub in `folder`, and no network."""
    return {**os.environ, "HF_HOME": str(folder), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", **variables}


def repository(folder: Path, name: str) -> Path:
    """The cache of one model."""
    return folder / "hub" / f"models--{name.replace('/', '--')}"


def snapshot(folder: Path, name: str) -> Path:
    """The files of a model's last commit."""
    path = repository(folder, name)
    return path / "snapshots" / (path / "refs" / "main").read_text(encoding="utf-8")


def create_repo(self: HfApi, repo_id: str, *, private: bool | None = None, **_: Any) -> RepoUrl:
    """Write whether a new repository is private; "someone" owns it."""
    name = repo_id if "/" in repo_id else f"someone/{repo_id}"
    path = repository(Path(os.environ["HF_HOME"]), name)
    (path / "refs").mkdir(parents=True, exist_ok=True)
    (path / "info.json").write_text(json.dumps({"private": private}), encoding="utf-8")
    return RepoUrl(f"https://huggingface.co/{name}")


def create_commit(
    self: HfApi, repo_id: str, operations: Sequence[CommitOperationAdd], *, commit_message: str, **_: Any
) -> CommitInfo:
    """Write a snapshot: the files of the one before and the added ones."""
    path = repository(Path(os.environ["HF_HOME"]), repo_id)
    snapshots = sorted((path / "snapshots").glob("*"))
    oid = f"{len(snapshots) + 1:040x}"
    target = path / "snapshots" / oid
    if snapshots:
        shutil.copytree(snapshots[-1], target)
    for operation in operations:
        file = target / operation.path_in_repo
        file.parent.mkdir(parents=True, exist_ok=True)
        with operation.as_file() as content:
            file.write_bytes(content.read())
    (path / "refs" / "main").write_text(oid, encoding="utf-8")
    url = f"https://huggingface.co/{repo_id}/commit/{oid}"
    return CommitInfo(commit_url=url, commit_message=commit_message, commit_description="", oid=oid)


if __name__ == "__main__":
    HfApi.create_repo, HfApi.create_commit = create_repo, create_commit  # type: ignore[method-assign]
    huggingface_hub.hf_api.create_repo = HfApi().create_repo  # the function that transformers imports
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
