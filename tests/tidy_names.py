#!/usr/bin/env python3
"""tidy_names.py: the rules of tests/tidy that need a tokenizer or the whole tree. Prints a line for each violation.

Retired words (tests/retired_words.txt) in identifiers and file names; types of the gw_ prefix that are defined twice;
file names that recur in src; paths in the pages of docs that do not exist. Run in the root of the repository."""
import collections
import io
import pathlib
import re
import tokenize

FOLDERS = ("src", "include", "tests", "fuzz", "bench", "python", "scripts")
C_FILES = (".c", ".h", ".cc")
SKIPPED = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)  # comments and strings
SHELL_FUNCTION = re.compile(r"^\s*([A-Za-z_]\w*)\s*\(\)", re.M)
TYPE = re.compile(r"\b(?:struct|enum|union)\s+(gw_\w+)\s*\{")
# A path in a page: under a folder of the repository, or under one of src (engine/executor.c).
PATH = re.compile(r"(?<![\w./-])((?:[a-z_]+/)+[A-Za-z_0-9-]+\.(?:c|h|sh|py|cc|md|csv|cmake|yaml|svg|png|txt))\b")


def files():
    for folder in FOLDERS:
        for path in sorted(pathlib.Path(folder).rglob("*")):
            if path.is_file() and path.suffix in C_FILES + (".py", ".sh", ""):
                yield path


def blanked(text):
    """C without comments and strings; lines keep their numbers."""
    return SKIPPED.sub(lambda found: " " + "\n" * found.group().count("\n"), text)


def identifiers(path):
    """(line, identifier) of a file; of a shell script its functions only."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix in C_FILES:
        for number, line in enumerate(blanked(text).split("\n"), 1):
            if not line.startswith("#include"):
                yield from ((number, word) for word in re.findall(r"[A-Za-z_]\w*", line))
    elif path.suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NAME:
                yield token.start[0], token.string
    else:
        for found in SHELL_FUNCTION.finditer(text):
            yield text.count("\n", 0, found.start(1)) + 1, found.group(1)


def retired():
    """Words, whole names and file names, each with its replacement."""
    words, names, file_names = {}, {}, {}
    for line in pathlib.Path("tests/retired_words.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            old, new = line.split()
            if old.startswith("="):
                names[old[1:]] = new
            elif old.startswith("file:"):
                file_names[old[5:]] = new
            else:
                words[old] = words[old + "s"] = new
    return words, names, file_names


def retired_words(paths):
    words, names, file_names = retired()
    for path in paths:
        seen = set()
        if path.name in file_names:
            print(f"{path}: this file name is retired; {file_names[path.name]} is in use")
        for part in re.split(r"[_.-]", path.stem.lower()):
            if part in words and path.name != "retired_words.txt":
                print(f"{path}: the file name has the retired word {part}: write {words[part]}")
        for line, name in identifiers(path):
            if name in seen:
                continue
            seen.add(name)
            if name in names:
                print(f"{path}:{line}: {name} is retired: write {names[name]}")
            for part in name.lower().split("_"):
                if part in words:
                    print(f"{path}:{line}: {name} has the retired word {part}: write {words[part]}")


def types_defined_twice():
    places = collections.defaultdict(list)
    for path in sorted(pathlib.Path(".").glob("src/**/*.[ch]")) + sorted(pathlib.Path("include").rglob("*.h")):
        for number, line in enumerate(blanked(path.read_text(encoding="utf-8")).split("\n"), 1):
            for name in TYPE.findall(line):
                places[name].append(f"{path}:{number}")
    for name, where in sorted(places.items()):
        if len(where) > 1:
            print(f"{where[1]}: type {name} is also defined in {where[0]}")


def names_that_recur():
    places = collections.defaultdict(list)
    for path in sorted(pathlib.Path("src").rglob("*.[ch]")):
        places[path.name].append(str(path))
    for where in places.values():
        if len(where) > 1:
            print(f"{where[1]}: src has another file of this name, {where[0]}")


def paths_in_pages():
    for page in sorted(pathlib.Path("docs").rglob("*.md")) + [pathlib.Path("README.md")]:
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            for found in PATH.findall(line):
                if found.startswith("build/") or re.search(r"/[A-Z_]+\.", found):  # built, or a placeholder
                    continue
                if not any((base / found).exists() for base in map(pathlib.Path, (".", "include", "src", "docs", "python"))):
                    print(f"{page}:{number}: there is no {found}")


retired_words(list(files()))
types_defined_twice()
names_that_recur()
paths_in_pages()
