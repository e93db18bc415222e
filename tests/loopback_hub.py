"""A small Hugging Face Hub on 127.0.0.1, for tests that push models and load them back by name.

It answers what the real `huggingface_hub` client asks when it creates, fills, lists and reads model and dataset
repositories, keeps everything in memory, and notes every request that it does not know. The client reads
`HF_ENDPOINT` once, when it is imported, so it must run in a process of its own:

    with LoopbackHub() as hub:
        subprocess.run([sys.executable, "push.py"], env=hub.environment(), check=True)
        assert "model.safetensors" in hub.files("someone/star")
        assert hub.unknown_requests == []

Not here, and recorded as unknown when asked for: Xet storage, pull requests, .gitignore rules, Spaces, searching.
The client has no way back from Xet to LFS, whatever the server answers (`_upload_files` in huggingface_hub 2.4), so
`environment()` switches Xet off.
"""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from loopback_repository import (
    Blob,
    Commit,
    HubError,
    Repository,
    UnknownRequestError,
    card_metadata,
    entries,
    file_entry,
    is_large,
    with_last_commit,
)


@dataclass(frozen=True)
class Request:
    """One HTTP request; `fields` are the parts of the path that its route names, unquoted."""

    target: str
    fields: Mapping[str, str]
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    def asks(self, name: str) -> bool:
        """Whether the query says yes to an option."""
        return self.query.get(name, [""])[-1].lower() in ("1", "true")


@dataclass(frozen=True)
class Answer:
    """One HTTP response."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def json(cls, content: Any, status: int = 200, **headers: str) -> "Answer":
        """An answer whose body is `content` as JSON."""
        return cls(json.dumps(content).encode(), status, {"Content-Type": "application/json", **headers})


Route = Callable[["LoopbackHub", Request], Answer]
ROUTES: list[tuple[str, re.Pattern[str], bool, Route]] = []
NAME = r"(?P<repo_id>[^/]+(?:/[^/]+)?)"
API = rf"/api/(?P<repo_type>model|dataset)s/{NAME}"
WEB = rf"/(?:(?P<repo_type>dataset)s/)?{NAME}"
LFS = rf"{WEB}\.git/info/lfs/objects"


def route(method: str, pattern: str, *, needs_token: bool = False) -> Callable[[Route], Route]:
    """Register a function for the requests whose whole (still quoted) path matches `pattern`."""

    def register(function: Route) -> Route:
        ROUTES.append((method, re.compile(pattern), needs_token, function))
        return function

    return register


@route("GET", "/api/whoami-v2", needs_token=True)
def who_am_i(hub: "LoopbackHub", request: Request) -> Answer:
    """The owner of the token."""
    access = {"accessToken": {"displayName": "loopback", "role": "write"}}
    return Answer.json({"type": "user", "name": hub.user, "fullname": hub.user, "orgs": [], "auth": access})


@route("GET", "/api/agent-harnesses")
def agent_harnesses(hub: "LoopbackHub", request: Request) -> Answer:
    """Programs that the client names in its User-Agent when they started it: none here."""
    return Answer.json({"standardEnvVars": [], "harnesses": {}})


@route("POST", "/api/validate-yaml")
def validate_card(hub: "LoopbackHub", request: Request) -> Answer:
    """Check the metadata of a README.md before it is committed."""
    try:
        metadata = card_metadata(request.json()["content"])
    except ValueError as error:
        return Answer.json({"errors": [{"message": str(error)}], "warnings": []}, 400)
    empty = [] if metadata else [{"message": "empty or missing yaml metadata in repo card"}]
    return Answer.json({"errors": [], "warnings": empty})


@route("POST", "/api/repos/create", needs_token=True)
def create_repository(hub: "LoopbackHub", request: Request) -> Answer:
    """Create a repository; an existing one is a conflict that the client forgives with `exist_ok=True`."""
    payload = request.json()
    repo_type = payload.get("type") or "model"
    if repo_type not in ("model", "dataset"):
        raise UnknownRequestError(f"repositories of type {repo_type}")
    owner = payload.get("organization") or hub.user
    if owner != hub.user:
        raise HubError(403, f"You don't have the rights to create a {repo_type} under the namespace {owner}")
    repo_id = f"{owner}/{payload['name']}"
    web = "" if repo_type == "model" else f"{repo_type}s/"
    created = {"url": f"{hub.url}/{web}{repo_id}", "name": repo_id, "id": repo_id}
    if (repo_type, repo_id) in hub.repositories:
        return Answer.json({"error": f"You already created this {repo_type} repo", **created}, 409)
    # Older clients say `private`, newer ones `visibility`.
    private = payload.get("private") is True or payload.get("visibility") == "private"
    hub.repositories[repo_type, repo_id] = Repository(repo_id, repo_type, private=private)
    return Answer.json(created)


@route("GET", API)
@route("GET", API + "/revision/(?P<revision>[^/]+)")
def repository_info(hub: "LoopbackHub", request: Request) -> Answer:
    """Name, commit, files and card of a repository at a revision."""
    repo = hub.repository(request)
    commit = repo.resolve(request.fields.get("revision", "main"))
    siblings: list[dict[str, Any]] = [{"rfilename": path} for path in commit.files]
    if request.asks("blobs"):
        for sibling in siblings:
            entry = file_entry(sibling["rfilename"], commit.files[sibling["rfilename"]])
            sibling |= {"size": entry["size"], "blobId": entry["oid"]}
            if "lfs" in entry:
                # Here the Hub says `sha256`, in a tree listing `oid`.
                sibling["lfs"] = {"sha256": entry["lfs"]["oid"], **entry["lfs"]}
    info: dict[str, Any] = {
        "id": repo.repo_id,
        "author": repo.repo_id.split("/")[0],
        "sha": commit.oid,
        "createdAt": repo.history("main")[-1].date,
        "lastModified": commit.date,
        "private": repo.private,
        "gated": False,
        "disabled": False,
        "downloads": 0,
        "likes": 0,
        "tags": [],
        "siblings": siblings,
    }
    if "README.md" in commit.files:
        card = card_metadata(commit.files["README.md"].data.decode())
        info["cardData"] = card
        tags = card.get("tags") or []
        info["tags"] = [tags] if isinstance(tags, str) else list(tags)
        info |= {name: card[name] for name in ("pipeline_tag", "library_name") if name in card}
    return Answer.json(info)


@route("GET", API + "/refs")
def references(hub: "LoopbackHub", request: Request) -> Answer:
    """Branches and tags."""
    repo = hub.repository(request)

    def listed(folder: str, references: Mapping[str, str]) -> list[dict[str, str]]:
        return [{"name": n, "ref": f"refs/{folder}/{n}", "targetCommit": oid} for n, oid in references.items()]

    return Answer.json({"branches": listed("heads", repo.branches), "tags": listed("tags", repo.tags), "converts": []})


@route("GET", API + "/commits/(?P<revision>[^/]+)")
def commits(hub: "LoopbackHub", request: Request) -> Answer:
    """History, newest first."""
    history = hub.repository(request).history(request.fields["revision"])
    names = [{"user": hub.user}]
    return Answer.json(
        [{"id": c.oid, "title": c.title, "message": c.message, "authors": names, "date": c.date} for c in history]
    )


@route("POST", API + "/branch/(?P<branch>[^/]+)", needs_token=True)
def create_branch(hub: "LoopbackHub", request: Request) -> Answer:
    """Start a branch from a revision."""
    repo, branch = hub.repository(request), request.fields["branch"]
    if branch in repo.branches:
        raise HubError(409, f"Reference already exists: refs/heads/{branch}")
    repo.branches[branch] = repo.resolve(request.json().get("startingPoint") or "main").oid
    return Answer.json({})


@route("POST", API + "/tag/(?P<revision>[^/]+)", needs_token=True)
def create_tag(hub: "LoopbackHub", request: Request) -> Answer:
    """Name a revision."""
    repo, tag = hub.repository(request), request.json()["tag"]
    if tag in repo.tags:
        raise HubError(409, f"Tag already exists: refs/tags/{tag}")
    repo.tags[tag] = repo.resolve(request.fields["revision"]).oid
    return Answer.json({})


@route("GET", API + "/tree/(?P<revision>[^/]+)(?:/(?P<path>.+))?")
def tree(hub: "LoopbackHub", request: Request) -> Answer:
    """List a folder, or with `recursive` all that lies below it."""
    repo, revision = hub.repository(request), request.fields["revision"]
    commit = repo.resolve(revision)
    folder = request.fields.get("path", "").rstrip("/")
    below = f"{folder}/" if folder else ""
    listed = [entry for path, entry in entries(commit.files).items() if path.startswith(below)]
    if folder and not listed:
        raise HubError(404, f"{folder} does not exist on {revision!r}", "EntryNotFound")
    if not request.asks("recursive"):
        listed = [entry for entry in listed if "/" not in entry["path"][len(below) :]]
    return Answer.json(with_last_commit(repo, revision, listed) if request.asks("expand") else listed)


@route("POST", API + "/paths-info/(?P<revision>[^/]+)")
def paths_info(hub: "LoopbackHub", request: Request) -> Answer:
    """Those of the given paths that exist; the client sends an HTML form here, not JSON."""
    repo, revision = hub.repository(request), request.fields["revision"]
    form = parse_qs(request.body.decode())
    known = entries(repo.resolve(revision).files)
    listed = [known[path] for path in form.get("paths", []) if path in known]
    expand = form.get("expand", ["false"])[-1].lower() == "true"
    return Answer.json(with_last_commit(repo, revision, listed) if expand else listed)


@route("GET", WEB + "/resolve/(?P<revision>[^/]+)/(?P<path>.+)")
def resolve(hub: "LoopbackHub", request: Request) -> Answer:
    """A file. The real Hub redirects to its storage for large ones; the client needs no more than these headers."""
    commit, blob = hub.repository(request).file(request.fields["revision"], request.fields["path"])
    headers = {
        "Content-Type": "application/octet-stream",
        "ETag": f'"{blob.etag}"',
        "X-Repo-Commit": commit.oid,
        "Accept-Ranges": "bytes",
    }
    if blob.large:
        headers |= {"X-Linked-Etag": f'"{blob.etag}"', "X-Linked-Size": str(len(blob.data))}
    asked = request.headers.get("Range")
    if asked is None:
        return Answer(blob.data, headers=headers)
    size = len(blob.data)
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", asked)
    if match is None or not any(match.groups()):
        raise UnknownRequestError(f"Range: {asked}")
    first, last = match.groups()
    start = int(first) if first else max(0, size - int(last))
    stop = min(size, int(last) + 1) if first and last else size
    if start >= stop:
        raise HubError(416, f"Range {asked} of {size} bytes", **{"Content-Range": f"bytes */{size}"})
    headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    return Answer(blob.data[start:stop], 206, headers)


@route("POST", API + "/preupload/(?P<revision>[^/]+)", needs_token=True)
def preupload(hub: "LoopbackHub", request: Request) -> Answer:
    """Say for each file whether it is sent within the commit or by LFS, and what stands there now."""
    commit = hub.repository(request).resolve(request.fields["revision"])
    payload = request.json()
    if request.asks("create_pr") or payload.get("gitIgnore") or ".gitignore" in commit.files:
        raise UnknownRequestError("pull requests and .gitignore rules")
    files = []
    for file in payload["files"]:
        mode = "lfs" if is_large(file["path"], file["size"], base64.b64decode(file["sample"])) else "regular"
        there = commit.files.get(file["path"])
        oid = None if there is None else there.etag
        files.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid})
    return Answer.json({"files": files, "commitOid": commit.oid})


@route("POST", LFS + "/batch", needs_token=True)
def lfs_batch(hub: "LoopbackHub", request: Request) -> Answer:
    """Tell where to put the large files that are not here yet."""
    repo, payload = hub.repository(request), request.json()
    if payload["operation"] != "upload" or "basic" not in payload["transfers"]:
        raise UnknownRequestError(f"LFS {payload['operation']} by {payload['transfers']}")
    objects = []
    for wanted in payload["objects"]:
        oid, size = wanted["oid"], wanted["size"]
        action: dict[str, Any] = {"oid": oid, "size": size}
        if oid not in repo.objects:
            repo.expected[oid] = size
            base = f"{hub.url}{quote(urlsplit(request.target).path.removesuffix('/batch'))}"
            action["actions"] = {"upload": {"href": f"{base}/{oid}"}, "verify": {"href": f"{base}/verify"}}
        objects.append(action)
    return Answer.json({"transfer": "basic", "objects": objects})


@route("PUT", LFS + "/(?P<oid>[0-9a-f]{64})")  # no token: the client treats the address as signed, and sends none
def lfs_upload(hub: "LoopbackHub", request: Request) -> Answer:
    """Receive the content of one large file."""
    repo = hub.signed_repository(request)
    oid = request.fields["oid"]
    if repo.expected.get(oid) != len(request.body) or hashlib.sha256(request.body).hexdigest() != oid:
        raise HubError(400, f"{len(request.body)} bytes are not the object {oid} that was announced")
    repo.objects[oid] = request.body
    return Answer()


@route("POST", LFS + "/verify", needs_token=True)
def lfs_verify(hub: "LoopbackHub", request: Request) -> Answer:
    """Confirm that a large file has arrived whole."""
    repo, payload = hub.repository(request), request.json()
    if len(repo.objects.get(payload["oid"], b"")) != payload["size"]:
        raise HubError(404, f"object {payload['oid']} was not uploaded")
    return Answer.json({})


@route("POST", API + "/commit/(?P<revision>[^/]+)", needs_token=True)
def commit_files(hub: "LoopbackHub", request: Request) -> Answer:
    """Apply one JSON object per line to the head of a branch: a header first, then files and deletions."""
    repo, branch = hub.repository(request), request.fields["revision"]
    if request.asks("create_pr"):
        raise UnknownRequestError("pull requests")
    if branch not in repo.branches:
        raise HubError(404, f"Invalid rev id: {branch}", "RevisionNotFound")
    head = repo.resolve(branch)
    files, header = dict(head.files), {}
    for line in request.body.splitlines():
        operation = json.loads(line)
        key, value = operation["key"], operation["value"]
        if key == "header":
            header = value
        elif key == "file":
            files[value["path"]] = Blob(base64.b64decode(value["content"]))
        elif key == "lfsFile":
            if value["oid"] not in repo.objects:
                raise HubError(400, f"{value['path']} points to {value['oid']}, which was not uploaded")
            files[value["path"]] = Blob(repo.objects[value["oid"]], large=True)
        elif key in ("deletedFile", "deletedFolder"):
            path = value["path"].rstrip("/")
            gone = [p for p in files if p == path or (key == "deletedFolder" and p.startswith(f"{path}/"))]
            if not gone:
                raise HubError(404, f"A file with this name doesn't exist: {path}", "EntryNotFound")
            for name in gone:
                del files[name]
        else:
            raise UnknownRequestError(f"the commit operation {key}")
    if header.get("parentCommit") not in (None, head.oid):
        raise HubError(412, "A commit has happened since. Please refresh and try again.")
    commit = repo.commit(branch, files, header["summary"], header.get("description", ""))
    url = f"{hub.url}/{'datasets/' if repo.repo_type == 'dataset' else ''}{repo.repo_id}/commit/{commit.oid}"
    return Answer.json({"success": True, "commitOid": commit.oid, "commitUrl": url, "hookOutput": ""})


class LoopbackHub:
    """A Hub for one user on a free port of 127.0.0.1, alive within its `with` block.

    Args:
        user: The owner of the token, and the only namespace that accepts new repositories.
    """

    token = "hf_loopback"

    def __init__(self, user: str = "someone") -> None:
        self.user = user
        self.repositories: dict[tuple[str, str], Repository] = {}  # by (repo_type, repo_id)
        self.requests: list[str] = []  # "METHOD /path?query" of every request, in order
        self.unknown_requests: list[str] = []  # those that this Hub cannot answer, and why
        self._lock = threading.Lock()

    def __enter__(self) -> "LoopbackHub":
        self._home = Path(tempfile.mkdtemp(prefix="loopback-hub-"))
        self._server = _Server(self)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        # Leaving the block waits for one polling interval, which is 0.5 s unless told otherwise.
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        shutil.rmtree(self._home, ignore_errors=True)

    def environment(self, cache: str = "cache", **changes: str) -> dict[str, str]:
        """The environment for a process that shall see this Hub and no other.

        Args:
            cache: Name of the cache folder (which is temporary). Another name is another, fresh machine.
            changes: Further variables to set.
        """
        # What the caller's own environment says (an offline switch, a token, a cache, a proxy) must not get through.
        foreign = re.compile(r"(HF|HUGGINGFACE|HUGGING_FACE|TRANSFORMERS|DATASETS)_.*|.*_PROXY", re.IGNORECASE)
        home = self._home / cache
        return {
            **{name: value for name, value in os.environ.items() if not foreign.fullmatch(name)},
            "HF_ENDPOINT": self.url,
            "HF_TOKEN": self.token,
            "HF_HOME": str(home),
            "HF_HUB_CACHE": str(home / "hub"),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_UPDATE_CHECK": "1",
            "NO_PROXY": "127.0.0.1",
            **changes,
        }

    def publish(self, repo_id: str, files: Mapping[str, bytes], *, repo_type: str = "model") -> str:
        """Add files to a repository without the client, creating it if need be, and return the commit's id."""
        with self._lock:
            repo = self.repositories.setdefault((repo_type, repo_id), Repository(repo_id, repo_type))
            blobs = {path: Blob(data, is_large(path, len(data), data[:512])) for path, data in files.items()}
            repo.objects |= {blob.sha256: blob.data for blob in blobs.values() if blob.large}
            return repo.commit("main", {**repo.resolve("main").files, **blobs}, "Publish files").oid

    def files(self, repo_id: str, revision: str = "main", *, repo_type: str = "model") -> dict[str, bytes]:
        """Every file of a repository at a branch, tag or commit id; HubError where there is no such thing."""
        with self._lock:
            commit = self._find(repo_id, repo_type).resolve(revision)
            return {path: blob.data for path, blob in commit.files.items()}

    def commits(self, repo_id: str, revision: str = "main", *, repo_type: str = "model") -> list[Commit]:
        """History of a repository, newest first; the last is the Hub's own, made with the repository."""
        with self._lock:
            return self._find(repo_id, repo_type).history(revision)

    def signed_repository(self, request: Request) -> Repository:
        """The repository that a request names, also a private one: the address itself is the permission."""
        return self._find(request.fields["repo_id"], request.fields.get("repo_type", "model"))

    def repository(self, request: Request) -> Repository:
        """The repository that a request names; for routes, which run under the lock."""
        repo = self.signed_repository(request)
        if repo.private and "Authorization" not in request.headers:
            raise HubError(401, f"Repository not found: {repo.repo_id}", "RepoNotFound")
        return repo

    def _find(self, repo_id: str, repo_type: str) -> Repository:
        if (repo_type, repo_id) not in self.repositories:
            raise HubError(404, f"Repository not found: {repo_type} {repo_id}", "RepoNotFound")
        return self.repositories[repo_type, repo_id]

    def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Answer one HTTP request, whose headers are looked up without regard to case."""
        with self._lock:
            self.requests.append(f"{method} {target}")
            try:
                return self._dispatch(method, target, headers, body)
            except Exception as error:
                answered = error if isinstance(error, HubError) else UnknownRequestError(repr(error))
                if isinstance(answered, UnknownRequestError):
                    self.unknown_requests.append(f"{method} {target}: {answered.message}")
                return Answer.json({"error": answered.message}, answered.status, **answered.headers)

    def _dispatch(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Answer:
        url = urlsplit(target)
        authorization = headers.get("Authorization")
        for known, pattern, needs_token, function in ROUTES:
            match = pattern.fullmatch(url.path) if known == ("GET" if method == "HEAD" else method) else None
            if match is None:
                continue
            if authorization not in (None, f"Bearer {self.token}") or (needs_token and authorization is None):
                raise HubError(401, "Invalid credentials in Authorization header")
            # Unquoted only now: a quoted slash belongs to a branch's or a file's name.
            fields = {name: unquote(value) for name, value in match.groupdict().items() if value is not None}
            return function(self, Request(target, fields, parse_qs(url.query), headers, body))
        raise UnknownRequestError("no such route")


class _Server(ThreadingHTTPServer):
    daemon_threads = True  # clients keep connections open: leaving the `with` block must not wait for them

    def __init__(self, hub: LoopbackHub) -> None:
        self.hub = hub
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing where a client has hung up early, as it may."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """HTTP/1.1 around `LoopbackHub.answer`."""

    server: _Server
    protocol_version = "HTTP/1.1"  # connections stay open
    wbufsize = -1  # buffered, and sent at once: otherwise headers and body wait for each other's acknowledgement
    disable_nagle_algorithm = True

    def _handle(self) -> None:
        answer = self.server.hub.answer(self.command, self.path, self.headers, self._body())  # type: ignore[arg-type]
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = _handle  # noqa: N815 - http.server calls these

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # trailers
        return b"".join(chunks)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: `LoopbackHub.requests` has it all."""


def run_client(hub: LoopbackHub, folder: Path, script: str, *, needs: str = "", cache: str = "cache") -> Any:
    """Run `needs` and `script` in a fresh process within `folder`; returns what the script leaves in `result`."""
    program = f"{needs}\n{textwrap.dedent(script)}\nimport json\njson.dump(result, open('result.json', 'w'))\n"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=hub.environment(cache), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "result.json").read_text())
