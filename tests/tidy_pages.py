#!/usr/bin/env python3
"""tidy_pages.py: what pages of docs say about the code, as far as a program can compare it. Prints a line for each violation.

Links lead to files and headings that exist. Programs that pages show are lines of docs/examples, each of which a test runs.
Command lines, options, names of the interface, words of a strategy, variables and targets of make exist. A figure stands in
the code as tests/page_figures.txt says. Run in the root of the repository; the reference pages that this compares with are
themselves compared with the program by scripts/reference."""
import pathlib
import re

ROOT = pathlib.Path(".")
PAGES = sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/**/*.md")) + sorted(ROOT.glob("bench/results/*.md"))
REFERENCE = ROOT / "docs" / "reference"
EXAMPLES = ROOT / "docs" / "examples"
LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
CODE_SPAN = re.compile(r"(`+)(.+?)\1")
# Lines that show a mistake and its answer, or stand for what a reader has.
ANSWER = re.compile(r"did you mean|allowed:|unknown |cannot be|refused")


class Page:
    """A page as lines: text outside of code, and blocks of code."""

    def __init__(self, path):
        self.path, self.text, self.blocks = path, [], []  # (line, text); (line, language, lines, whether it was made)
        made, fence, before = False, None, ""
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            if fence is None and re.match(r"<!-- (?!end)", line):
                made = True
            elif fence is None and line.startswith("<!-- end"):
                made = False
            elif fence is not None and line.strip() == "```":
                fence = None
            elif fence is not None:
                fence.append(line)
            elif re.match(r"\s*```", line):
                fence = []
                self.blocks.append((number + 1, line.strip()[3:], fence, made))
            elif line.startswith("    ") and (not before.strip() or before.startswith("    ")) and not self.in_list(number):
                if not before.startswith("    ") or not self.blocks or self.blocks[-1][1] is not None:
                    self.blocks.append((number, None, [], made))
                self.blocks[-1][2].append(line[4:])
            else:
                self.text.append((number, line))
            before = line if line.strip() or not before.startswith("    ") else before

    def in_list(self, number):
        """Whether a line that is indented continues an item."""
        for _, line in reversed(self.text):
            if line.strip():
                return bool(re.match(r"\s*([-*]|\d+\.) ", line)) or line.startswith("  ")
        return False

    def spans(self):
        """(line, code) of what is written as code in the text."""
        for number, line in self.text:
            for found in CODE_SPAN.finditer(line):
                yield number, found.group(2).replace("\\|", "|"), line

    def code(self):
        """(line, code, its whole line) of spans, and of the lines of blocks but what programs print."""
        yield from self.spans()
        for first, language, lines, _ in self.blocks:
            for number, line in enumerate(lines, first):
                if language != "text" and (language != "console" or line.startswith("$ ")):
                    yield number, line, line


def say(page, line, text):
    print(f"{page.path}:{line}: {text}")


# ---- links ----

def slug(heading):
    """The anchor of a heading."""
    heading = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(page):
    found, seen = set(), {}
    for _, line in page.text:
        found.update(re.findall(r'<a id="([^"]+)">', line))
        heading = re.match(r"#{1,6} +(.*?) *#*$", line)
        if heading:
            name = slug(heading.group(1))
            found.add(f"{name}-{seen[name]}" if name in seen else name)
            seen[name] = seen.get(name, 0) + 1
    return found


def check_links(pages):
    known = {page.path.resolve(): anchors(page) for page in pages}
    for page in pages:
        for number, line in page.text:
            for target in LINK.findall(CODE_SPAN.sub(lambda m: "x" * len(m.group()), line)):
                file, _, anchor = target.partition("#")
                if re.match(r"[a-z]+:", target):
                    continue
                there = (page.path.parent / file).resolve() if file else page.path.resolve()
                if not there.exists():
                    say(page, number, f"a dead link: there is no {file}")
                elif anchor and anchor not in known.get(there, {anchor}):
                    say(page, number, f"a dead link: {file or 'this page'} has no heading #{anchor}")


# ---- programs ----

def bare(lines):
    """Lines of a program without indentation and comments."""
    lines = (re.sub(r"(^|\s+)(#(?!include|define)|/\*).*$", "", line).strip() for line in lines)
    return [line for line in lines if line]


def contains(source, lines):
    """Whether the lines stand in a row in a source; a line `...` stands for any lines."""
    parts, part = [], []
    for line in lines:
        if line.strip() == "...":
            parts, part = parts + [part], []
        else:
            part.append(line)
    at = 0
    for part in [p for p in parts + [part] if any(line.strip() for line in p)]:
        wanted = bare(part)
        places = [i for i in range(at, len(source) - len(wanted) + 1) if source[i:i + len(wanted)] == wanted]
        if not places:
            return False
        at = places[0] + len(wanted)
    return True


def check_programs(pages):
    files = [f for f in sorted(EXAMPLES.iterdir()) + sorted(ROOT.glob("python/examples/**/*.py")) if f.is_file()]
    sources = [bare(f.read_text(encoding="utf-8").split("\n")) for f in files]
    for page in pages:
        for number, language, lines, made in page.blocks:
            lines = [line for line in lines if not re.match(r"(\$ )?gradwire ", line)]
            is_program = language in ("c", "python", "cmake", "make") or any(
                re.match(r"#include <gradwire|import gradwire|find_package\(gradwire", line) for line in lines)
            if is_program and not made and not any(contains(source, lines) for source in sources):
                say(page, number, "these lines are in no file of docs/examples, so no test runs them")
    tests = "".join(f.read_text(encoding="utf-8") for f in [*ROOT.glob("tests/*.sh"), *ROOT.glob("python/tests/*.py")])
    for file in sorted(EXAMPLES.iterdir()):
        call = {"Makefile": "make -C \"$tmp/examples\"", "CMakeLists.txt": "cmake -S docs/examples"}.get(
            file.name, f"examples/{file.stem}\"" if file.suffix == ".c" else f"\"{file.name}\"")
        if call not in tests:
            print(f"{file}: no test runs it (tests/install.sh, python/tests/examples.py)")


# ---- names ----

def commands():
    """The options of each command, from the reference."""
    text = (REFERENCE / "commands.md").read_text(encoding="utf-8")
    found = {}
    for part in re.split(r"^## gradwire ", text, flags=re.M)[1:]:
        found[part.split("\n")[0]] = set(re.findall(r"^\|[^|]*?`(--[a-z-]+)", part, re.M)) | set(
            re.findall(r"^\| `(-\w)`", part, re.M))
    return found


def techniques():
    """The parameters of each technique, and the words that a parameter takes."""
    text = (REFERENCE / "techniques.md").read_text(encoding="utf-8")
    found, current = {}, None
    for cells in re.findall(r"^\| (.*?) \| (.*?) \| .*\|$", text, re.M):
        name = re.match(r"`(\w+)=(\w+)`", cells[0])
        param = re.match(r"&emsp;`(\w+)`", cells[0])
        if name:
            current = found.setdefault(name.groups(), {})
        elif param and current is not None:
            current[param.group(1)] = cells[1]
    return found


def check_command(page, number, line, known):
    """A command line: gradwire, a command, its options."""
    for found in re.finditer(r"(?<![\w/.-])(?:build/)?gradwire ([a-z][a-z-]*)(?!:)\b( [^|`#]*)?", line):
        command, rest = found.group(1), (found.group(2) or "").split(" -- ")[0]
        word = rest.split()[:1]
        if command == "bench" and word and f"bench {word[0]}" in known:
            command = f"bench {word[0]}"
        if command not in known:
            if re.match(r"\S*\$?\s*(sudo )?(build/)?gradwire ", line.strip()) and command not in ("server", "supervise", "probe"):
                say(page, number, f"there is no command gradwire {command}")
            continue
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", re.sub(r"'[^']*'", "", rest)):
            if option not in known[command]:
                say(page, number, f"gradwire {command} has no option {option}")


def check_strategy(page, number, code, known):
    for axis, name, params in re.findall(r"\b(arch|sync|compress|schedule|transport)=([a-z]\w*)(?::([\w=.,]+))?", code):
        if (axis, name) not in known:
            say(page, number, f"there is no {axis}={name}")
            continue
        for param in filter(None, params.split(",")):
            word, _, value = param.partition("=")
            values = known[axis, name].get(word)
            if values is None:
                say(page, number, f"{axis}={name} has no parameter {word}")
            elif re.fullmatch(r"[a-z]+", value) and re.match(r"[a-z, ]+$", values) and values != "no value" and \
                    value not in values.split(", "):
                say(page, number, f"{axis}={name}: {word} cannot be {value}")


def check_names(pages):
    options, known = commands(), techniques()
    code = "".join(f.read_text(encoding="utf-8", errors="replace") for folder in ("include", "src", "tests", "fuzz")
                   for f in pathlib.Path(folder).rglob("*.[ch]"))
    names = set(re.findall(r"\b(?:gw|GW)_\w+", code)) | {"GW_" + c for c in re.findall(r"X\((\w+), \d+,", code)} | {
        "GW_COLL_" + c for c in re.findall(r"X\((\w+), \d+,", code)}
    cmake = "".join(f.read_text(encoding="utf-8") for f in [ROOT / "CMakeLists.txt", *ROOT.glob("cmake/*")])
    names |= {f"GW_{f.name.upper()}" for f in ROOT.glob("src/transport/*")}
    names |= {"GW_" + word for word in re.findall(r"\b[A-Z][A-Z0-9_]+\b", cmake.replace("GW_", ""))}  # options of the build
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    variables = set(re.findall(r'"(GRADWIRE_\w+)"', (ROOT / "src/base/environment.c").read_text(encoding="utf-8")))
    for page in (page for page in pages if page.path.name != "CHANGELOG.md"):  # of former versions
        for number, text, line in page.code():
            if ANSWER.search(line):
                continue
            check_command(page, number, text, options)
            check_strategy(page, number, text, known)
            for name in re.findall(r"\b(?:gw|GW)_[A-Za-z0-9_]*[A-Za-z0-9]\b(?![*_])", text):
                if name not in names and not re.search(r"gw_.*[A-Z]", name):  # gw_codec_NAME is for a name
                    say(page, number, f"there is no {name}")
            for name in re.findall(r"\bGRADWIRE_[A-Z_]*[A-Z]\b(?![*_])", text):
                if name not in variables:
                    say(page, number, f"there is no variable {name}")
            for target in re.findall(r"^make ([a-z][a-z0-9-]+)\b(?!=)", text.strip()):
                if target not in targets:
                    say(page, number, f"there is no target make {target}")


def check_statuses():
    """docs/reference/errors.md has every status."""
    header = (ROOT / "include/gradwire.h").read_text(encoding="utf-8")
    listed = re.search(r"#define GW_STATUS_LIST\(X\)(.*?)\n\n", header, re.S).group(1)
    page = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    for name in re.findall(r"X\((\w+),", listed)[1:]:
        if f"`GW_{name}`" not in page:
            print(f"docs/reference/errors.md: GW_{name} is missing")


def check_defaults(pages):
    """The default of an axis in a table of a page, and the default line."""
    text = (REFERENCE / "techniques.md").read_text(encoding="utf-8")
    presets = dict(re.findall(r"^\| `(\w+)=(\w+)` \|.*\(the default\) \|$", text, re.M))
    line = " ".join(f"{axis}={name}" for axis, name in presets.items())
    for page in pages:
        inside = False  # a table of axes with their defaults
        for number, row in page.text:
            inside = row.startswith("|") and (inside or row.startswith("| axis | question | default |"))
            stated = inside and re.match(r"\| \[?`(\w+)`(?:\]\(.*?\))? \| [^|]* \| `(\w+)`", row)
            if stated and presets.get(stated.group(1)) != stated.group(2):
                say(page, number, f"the default of {stated.group(1)} is {presets.get(stated.group(1))}")
            if row.startswith("| `GRADWIRE_STRATEGY` |") and page.path.name == "environment.md" and f"`{line}`" not in row:
                say(page, number, f"the default is {line}")


def check_figures(pages):
    """tests/page_figures.txt"""
    text = " ".join(" ".join(page.path.read_text(encoding="utf-8").split()) for page in pages)
    for number, line in enumerate((ROOT / "tests/page_figures.txt").read_text(encoding="utf-8").split("\n"), 1):
        if not line or line.startswith("#"):
            continue
        words, place = line.split(" = ", 1)
        file, code = place.split(": ", 1)
        if words not in text:
            print(f"tests/page_figures.txt:{number}: no page says {words!r}")
        if code not in " ".join((ROOT / file).read_text(encoding="utf-8").split()):
            print(f"tests/page_figures.txt:{number}: {file} has no {code!r}; pages say {words!r}")


all_pages = [Page(path) for path in PAGES]
check_links(all_pages)
check_programs(all_pages)
check_names(all_pages)
check_statuses()
check_defaults(all_pages)
check_figures(all_pages)
