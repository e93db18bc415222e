"""
What one must read to change one thing, packages and the arrows between them, and totals, of any tree of the project:

    python experiments/walks.py FOLDER --picture packages.svg

"imported": files that plain imports reach from the walk's first files. "by name": files and lines of the functions and
classes whose names those of the walk mention, and so on; "users": those that mention the first ones. A class is read
whole. `git worktree add --detach FOLDER COMMIT` makes the tree of another commit.
"""

import argparse
import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path


Place = tuple[str, str]  # a module, and a name in it
# A walk -> definitions that it begins with: the first ones that a tree has.
WALKS: dict[str, list[tuple[str, ...]]] = {
    "Star's forward, to change its ring": [("StarTransformerModel",)],
    "another loss for taggers": [("TaskLoss", "CRFLoss")],
    "a metric": [("metrics_for", "count_examples", "score_counts")],
    "a file format": [("detect",), ("read_file", "stream_rows", "kind_of")],
    "a wrong offset of an entity": [
        ("EntityDecoder",),
        ("EntityGroups", "_Tagged", "BestPathPipeline"),
    ],
    "`classify x.csv` to scores": [("run_script", "ClassificationTask")],
}
SWITCH = re.compile(r"environ|get_cpu_capability|is_available\(|get_device_capability|find_spec|is_compiling|cpuinfo")


def reached(starts: Iterable, onwards: Mapping) -> set:
    """All that can be reached, the starts included."""
    seen, due = set(starts), list(starts)
    while due:
        due += (new := set(onwards.get(due.pop(), ())) - seen)
        seen |= new
    return seen


class Project:
    """The modules of a tree: what they import at the top, and which definitions their definitions name."""

    def __init__(self, root: Path):
        files = {path.relative_to(root).with_suffix(""): path for path in (root / "modeling_star").rglob("*.py")}
        self.text = {".".join(each.parts).removesuffix(".__init__"): path.read_text() for each, path in files.items()}
        trees = {name: ast.parse(text) for name, text in self.text.items()}
        packages = {".".join(each.parent.parts) for each in files if each.name == "__init__"}
        base = {name: name.split(".") if name in packages else name.split(".")[:-1] for name in trees}
        self.plain = {}
        kinds = (ast.FunctionDef, ast.ClassDef)
        self.defs = {(name, node.name): node for name in trees for node in trees[name].body if isinstance(node, kinds)}
        self.named: dict[Place, set[Place]] = {}
        for name, tree in trees.items():
            self.plain[name] = {found for _, (found, _) in self.imports(tree.body, base[name])} - {name}
            known = dict(self.imports(ast.walk(tree), base[name]))
            for place, node in self.defs.items():
                if place[0] == name:
                    words = {x.id for x in ast.walk(node) if isinstance(x, ast.Name)}
                    self.named[place] = {known.get(word, (name, word)) for word in words} & self.defs.keys()

    def imports(self, nodes: Iterable[ast.AST], base: list[str]) -> Iterator[tuple[str, Place]]:
        """A name -> the module of this package that it is imported from, and its name there."""
        for node in nodes:
            if isinstance(node, ast.ImportFrom):
                above = base[: len(base) - node.level + 1] if node.level else []
                source = ".".join([*above, *([node.module] if node.module else [])])
                for alias in node.names:
                    whole = f"{source}.{alias.name}"
                    if whole in self.text or source in self.text:
                        yield alias.asname or alias.name, (whole if whole in self.text else source, alias.name)

    def arrows(self) -> Counter[Place]:
        """How many imports lead from one package to another; a file outside them is a package of its own."""
        pairs = [(one.split(".")[1:2], other.split(".")[1:2]) for one in self.text for other in self.plain[one]]
        return Counter((one[0], other[0]) for one, other in pairs if one and other and one != other)


def on_circles(arrows: Iterable[Place]) -> set[Place]:
    """The arrows that lie on a circle."""
    below: dict[str, set[str]] = {}
    for one, other in arrows:
        below.setdefault(one, set()).add(other)
    return {(one, other) for one, other in arrows if one in reached([other], below)}


def draw(floor: Mapping[str, int], arrows: Counter[Place], circle: set[Place], path: Path) -> None:
    """A box for each package on its floor; arrows point at what is imported, those of circles in red."""
    from matplotlib.figure import Figure

    rows = [sorted(name for name in floor if floor[name] == y) for y in range(max(floor.values()) + 1)]
    place = {name: ((x + 1) / (len(row) + 1), y) for y, row in enumerate(rows) for x, name in enumerate(row)}
    figure = Figure(figsize=(9, 1 + 0.8 * len(rows)), layout="constrained")
    axis = figure.subplots()
    axis.set(xlim=(0, 1), ylim=(-0.5, len(rows) - 0.5))
    axis.axis("off")
    for pair, count in arrows.items():
        style = {"arrowstyle": "-|>", "color": "red" if pair in circle else "0.6", "lw": 0.5 + 0.15 * min(count, 15)}
        axis.annotate("", place[pair[1]], place[pair[0]], arrowprops={**style, "shrinkA": 12, "shrinkB": 12})
    for name, (x, y) in place.items():
        axis.text(x, y, name, ha="center", va="center", bbox={"boxstyle": "round", "fc": "white", "ec": "#3558a8"})
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    """Print all, and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path, help="a tree of the project")
    parser.add_argument("--picture", type=Path, help="an .svg or .png of the packages")
    arguments = parser.parse_args()
    root, project = arguments.root, Project(arguments.root)
    for walk, names in WALKS.items():
        starts = next(filter(None, ([place for place in project.defs if place[1] in each] for each in names)))
        files = reached({module for module, _ in starts}, project.plain)
        imported = sum(len(project.text[module].splitlines()) for module in files)
        print(f"{walk}: {len(files)} files / {imported:,} lines imported", end="")
        users = {place for place, words in project.named.items() if words & set(starts)}
        for title, found in {"by name": reached(starts, project.named), "users": users}.items():
            read = sum(project.defs[place].end_lineno - project.defs[place].lineno + 1 for place in found)
            print(f"; {title} {len({module for module, _ in found})} / {read:,}", end="")
        print()
    asked = [len(SWITCH.findall(text)) for text in project.text.values() if SWITCH.search(text)]
    print(f"What the machine or a variable decides: {sum(asked)} places in {len(asked)} files")
    arrows = project.arrows()
    circle, floor = on_circles(arrows), dict.fromkeys({name for pair in arrows for name in pair}, 0)
    for _ in floor:
        for one, other in arrows.keys() - circle:
            floor[one] = max(floor[one], floor[other] + 1)
    for name in sorted(floor, key=lambda name: (-floor[name], name)):
        print(f"floor {floor[name]}: {name} imports", *sorted(other for one, other in arrows if one == name))
    inside = {(one, other) for one in project.text for other in project.plain[one]}
    print(f"{len(arrows)} arrows between packages, {len(circle)} on circles; ", end="")
    print(f"{len(inside)} imports between files, {len(on_circles(inside))} on circles")
    python = {name: list((root / name).rglob("*.py")) for name in ("modeling_star", "tests", "experiments")}
    lines = {name: sum(len(path.read_bytes().splitlines()) for path in files) for name, files in python.items()}
    data = [path for name in (*python, "configuration") for path in (root / name).rglob("*.json*")]
    words = sum(len(path.read_text().split()) for path in (root / "docs").rglob("*.md"))
    print(f"Lines of Python: {lines}; files: {sum(map(len, python.values()))}; words of docs: {words}; ", end="")
    print("lines of JSON:", sum(len(path.read_bytes().splitlines()) for path in data))
    if arguments.picture is not None:
        draw(floor, arrows, circle, arguments.picture)


if __name__ == "__main__":
    main()
