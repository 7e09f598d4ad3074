#!/usr/bin/env python3
"""A list of techniques stands in one place: the table of its axis. Used by tests/tidy.

Finds the names of all codecs, schedules, synchronizations, plans and transports in the files that define them, and
reports every other C file that names three or more techniques of one axis in string literals. And the GRADWIRE_*
variables: those of src/base/environment.c, of docs/reference/environment.md and of the code are the same."""
import pathlib
import re
import sys

AXES = ("compress", "schedule", "sync", "plan", "transport")
DEFINITION = re.compile(r"^(?:static )?const gw_\w+ \w+ = \{(.*?)^\};", re.S | re.M)
NAME = re.compile(r'\.name = "(\w+)"')
COMMENT = re.compile(r"/\*.*?\*/", re.S)
LITERAL = re.compile(r'"((?:\\.|[^"\\\n])*)"')
COMMON = {"none", "auto", "alone", "pair", "mpi"}  # words that texts use for other things, too


def names_of(folder):
    names = set()
    for file in folder.rglob("*.c"):
        for body in DEFINITION.findall(file.read_text()):
            found = NAME.search(body)
            names |= {found.group(1)} if found else set()
    return names - COMMON


def variables_of(files):
    return {name for file in files for name in re.findall(r"GRADWIRE_[A-Z_]+[A-Z]", LITERAL_OF[file.suffix](file))}


LITERAL_OF = {
    ".c": lambda file: " ".join(LITERAL.findall(COMMENT.sub("", file.read_text()))),
    ".h": lambda file: " ".join(LITERAL.findall(file.read_text())),
    ".py": lambda file: file.read_text(),
    ".md": lambda file: file.read_text(),
}


def check_variables(root):
    """True if the three lists are the same."""
    listed = root / "src" / "base" / "environment.c"
    code = [f for f in (root / "src").rglob("*.[ch]") if f != listed] + list((root / "python" / "gradwire").rglob("*.py"))
    found = {"src/base/environment.c": variables_of([listed]),
             "docs/reference/environment.md": variables_of([root / "docs" / "reference" / "environment.md"]),
             "the code": variables_of(code)}
    everything = set.union(*found.values())
    for where, names in found.items():
        for name in sorted(everything - names):
            print(f"{name}: {where} does not have it")
    return all(names == everything for names in found.values())


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    axes = {axis: names_of(root / "src" / axis) for axis in AXES}
    bad = 0
    for axis, names in axes.items():
        if len(names) < 3:
            print(f"tests/tidy_lists.py finds only {len(names)} techniques in src/{axis}")
            bad = 1
    for file in sorted((root / "src").rglob("*.[ch]")) + sorted((root / "fuzz").glob("*.c")):
        literals = LITERAL.findall(COMMENT.sub("", file.read_text()))
        for axis, names in axes.items():
            named = sorted(n for n in names if any(re.match(rf"(?:\w+=)?{n}(?!\w)", text) for text in literals))
            named = [n for n in named if n != file.parent.name]  # a transport may name itself
            if len(named) >= 3:
                print(f"{file.relative_to(root)}: a list of techniques beside the table of {axis}: {', '.join(named)}")
                bad = 1
    return bad if check_variables(root) else 1


if __name__ == "__main__":
    sys.exit(main())
