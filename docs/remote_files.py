"""
Write the list of files in docs/remote_code.md: what transformers copies into the folder `code` of a saved model.

    python docs/remote_files.py
"""

from pathlib import Path

from transformers.dynamic_module_utils import get_relative_import_files


ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "remote_code.md"
TITLES = {
    **{"star": "Star-Transformer", "big": "BiG-Transformer", "vanilla": "standard Transformer", "disan": "DiSAN"},
    **{"bilstm": "BiLSTM", "window_modernbert": "WindowModernBert"},
}
START, END = "<!-- written by docs/remote_files.py -->\n", "<!-- end -->\n"


def table() -> str:
    """The files of every encoder, and what each has besides."""
    found = {}
    for name, title in TITLES.items():
        module = ROOT / "modeling_star" / "models" / f"modeling_{name}.py"
        found[title] = {module.name, *(Path(path).name for path in get_relative_import_files(module))}
    shared = set.intersection(*(files for title, files in found.items() if title != "WindowModernBert"))
    rows = {"every encoder but WindowModernBert": shared}
    rows |= {f"{title}, in addition": files - shared for title, files in found.items() if title != "WindowModernBert"}
    rows["WindowModernBert alone"] = found["WindowModernBert"]
    lines = [f"| {title} | {', '.join(f'`{name}`' for name in sorted(files))} |" for title, files in rows.items()]
    return "\n".join(["| model | files |", "|:--|:--|", *lines]) + "\n"


def page() -> str:
    """The page with the list as it is now."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    return f"{before}{START}\n{table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
