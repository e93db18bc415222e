"""What the Hub of loopback_hub.py stores: repositories, their commits and their files."""

import codecs
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any


# As on the Hub, these suffixes (there are more), anything binary and anything above 10 MB go to large file storage.
LARGE_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".onnx", ".npy", ".npz", ".parquet", ".arrow", ".gz", ".zip")
LARGE_SIZE = 10 * 1024 * 1024


@dataclass(frozen=True)
class Blob:
    """The content of one file, kept as a git blob or, when `large`, by LFS (then git holds a pointer to it)."""

    data: bytes
    large: bool = False

    @cached_property
    def sha256(self) -> str:
        """The name under which LFS stores the content."""
        return hashlib.sha256(self.data).hexdigest()

    @cached_property
    def pointer(self) -> bytes:
        """What git stores in place of a large file."""
        return (
            f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {len(self.data)}\n"
        ).encode()

    @cached_property
    def oid(self) -> str:
        """git's object id: the client computes the same one to see whether a file has changed."""
        content = self.pointer if self.large else self.data
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()

    @property
    def etag(self) -> str:
        """The name of the content, as the client knows it: SHA-256 for large files, git's id for others."""
        return self.sha256 if self.large else self.oid


@dataclass(frozen=True)
class Commit:
    """One state of a repository: `files` is the whole tree, not the difference from `parent`."""

    oid: str
    parent: str | None
    title: str
    message: str
    date: str
    files: Mapping[str, Blob]


class HubError(Exception):
    """An error that the Hub answers with: HTTP status, and the code that the client turns into its own exception."""

    def __init__(self, status: int, message: str, code: str | None = None, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        # A header holds neither line breaks nor, say, the Chinese name of a missing file.
        self.headers = {"X-Error-Message": ascii(message)[1:-1], **headers}
        if code is not None:
            self.headers["X-Error-Code"] = code


class UnknownRequestError(HubError):
    """A request that the real Hub may know and this one does not; it is recorded in `unknown_requests`."""

    def __init__(self, message: str) -> None:
        super().__init__(501, message)


class Repository:
    """Commits, branches and tags of one repository, which starts as on the Hub: with one commit, `.gitattributes`."""

    def __init__(self, repo_id: str, repo_type: str, *, private: bool = False) -> None:
        self.repo_id = repo_id
        self.repo_type = repo_type
        self.private = private
        self.branches: dict[str, str] = {}
        self.tags: dict[str, str] = {}
        self.objects: dict[str, bytes] = {}  # LFS content by SHA-256
        self.expected: dict[str, int] = {}  # LFS uploads that were announced: size by SHA-256
        self._commits: dict[str, Commit] = {}
        attributes = "".join(f"*{suffix} filter=lfs diff=lfs merge=lfs -text\n" for suffix in LARGE_SUFFIXES)
        self.commit("main", {".gitattributes": Blob(attributes.encode())}, "initial commit")

    def resolve(self, revision: str) -> Commit:
        """The commit that a branch, a tag or a full commit id names."""
        revision = revision.removeprefix("refs/heads/")
        commit = self._commits.get(self.branches.get(revision) or self.tags.get(revision) or revision)
        if commit is None:
            raise HubError(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return commit

    def file(self, revision: str, path: str) -> tuple[Commit, Blob]:
        """One file of one commit."""
        commit = self.resolve(revision)
        if path not in commit.files:
            # With the commit's id, the client remembers for good that this file does not exist there.
            raise HubError(404, f"{path} not in {commit.oid}", "EntryNotFound", **{"X-Repo-Commit": commit.oid})
        return commit, commit.files[path]

    def history(self, revision: str) -> list[Commit]:
        """A commit and its ancestors, newest first."""
        commits = [self.resolve(revision)]
        while (parent := commits[-1].parent) is not None:
            commits.append(self._commits[parent])
        return commits

    def last_change(self, revision: str, path: str) -> Commit:
        """The newest commit in which `path` (a file or a folder) became what it is."""

        def state(commit: Commit) -> list[tuple[str, str]]:
            below = path + "/"
            return [(name, b.oid) for name, b in commit.files.items() if name == path or name.startswith(below)]

        commits = self.history(revision)
        for commit, older in pairwise(commits):
            if state(commit) != state(older):
                return commit
        return commits[-1]

    def commit(self, branch: str, files: Mapping[str, Blob], title: str, message: str = "") -> Commit:
        """Add a commit that holds exactly `files` to `branch`."""
        parent = self.branches.get(branch)
        date = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        tree = sorted((path, blob.oid) for path, blob in files.items())
        oid = hashlib.sha1(repr((self.repo_type, self.repo_id, parent, title, message, date, tree)).encode())
        commit = Commit(oid.hexdigest(), parent, title, message, date, dict(sorted(files.items())))
        self._commits[commit.oid] = commit
        self.branches[branch] = commit.oid
        return commit


def is_large(path: str, size: int, sample: bytes) -> bool:
    """Whether a file of this name, size and first bytes belongs in large file storage."""
    if size == 0:
        return False
    try:
        # Incremental, because the sample may end within a character.
        codecs.getincrementaldecoder("utf-8")().decode(sample)
        binary = b"\0" in sample
    except UnicodeDecodeError:
        binary = True
    return binary or size > LARGE_SIZE or path.endswith(LARGE_SUFFIXES)


def card_metadata(card: str) -> dict[str, Any]:
    """The YAML block at the top of a model card. Raises ValueError where it is not a mapping in valid YAML."""
    import yaml  # here: the only part that needs more than the standard library (huggingface_hub depends on it)

    match = re.match(r"\s*---\r?\n(.*?)^---\s*$", card, flags=re.DOTALL | re.MULTILINE)
    if match is None:
        return {}
    try:
        metadata = yaml.safe_load(match.group(1))
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    if metadata is not None and not isinstance(metadata, dict):
        raise ValueError(f"the metadata must be a mapping, not {type(metadata).__name__}")
    return metadata or {}


def file_entry(path: str, blob: Blob) -> dict[str, Any]:
    """A file as tree listings show it."""
    entry: dict[str, Any] = {"type": "file", "path": path, "oid": blob.oid, "size": len(blob.data)}
    if blob.large:
        entry["lfs"] = {"oid": blob.sha256, "size": len(blob.data), "pointerSize": len(blob.pointer)}
    return entry


def entries(files: Mapping[str, Blob]) -> dict[str, dict[str, Any]]:
    """Every file and every folder of a commit by path, as tree listings show them."""
    found = {path: file_entry(path, blob) for path, blob in files.items()}
    for path in files:
        for folder in map(str, list(PurePosixPath(path).parents)[:-1]):
            oid = hashlib.sha1(repr([(p, b.oid) for p, b in files.items() if p.startswith(folder + "/")]).encode())
            found[folder] = {"type": "directory", "path": folder, "oid": oid.hexdigest(), "size": 0}
    return dict(sorted(found.items()))


def with_last_commit(repo: Repository, revision: str, listed: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Entries of a listing that was asked for with `expand`: each with the commit that last changed it."""
    expanded = []
    for entry in listed:
        last = repo.last_change(revision, entry["path"])
        expanded.append({**entry, "lastCommit": {"id": last.oid, "title": last.title, "date": last.date}})
    return expanded
