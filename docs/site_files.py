"""A hook of MkDocs: the site has the layout of the repository, whose links therefore hold in both."""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


PATTERNS = (
    "*.md",
    "LICENSE",
    "CITATION.cff",
    "docs/*.*",
    "docs/notebooks/*",
    "docs/pictures/*",
    "experiments/**/*.md",
    "experiments/**/*.png",
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """README.md and the pages of docs/ and experiments/, with pictures and examples, in place of docs/ alone."""
    root = Path(config.docs_dir).parent
    shown = sorted(path for pattern in PATTERNS for path in root.glob(pattern))
    pages = [File.generated(config, path.relative_to(root).as_posix(), abs_src_path=str(path)) for path in shown]
    return Files([*(file for file in files if file.src_dir != config.docs_dir), *pages])
