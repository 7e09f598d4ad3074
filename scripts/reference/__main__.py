"""reference [--check] [BUILD]: writes the parts of docs that are made from the source.

A part of a page lies between `<!-- NAME ARGUMENTS -->` and `<!-- end -->`; the makers below are the names. Commands and
techniques are asked of the program, BUILD/gradwire (BUILD is build by default). --check: changes nothing, and prints which
parts are not what the source says, and what has no text. Without a program its parts are not checked."""
import pathlib
import re
import sys

import c_pages
import formats
import program
import python_api

ROOT = pathlib.Path(__file__).resolve().parents[2]
PART = re.compile(r"<!-- (\w+)((?: \S+)*) -->\n(.*?)<!-- end -->", re.S)


class Makers:
    """Each method makes the parts of its name. None: it cannot be made here."""

    def __init__(self, build):
        self.build = build if (build / "gradwire").exists() else None
        self.interface = c_pages.Interface(ROOT)
        self.names = python_api.Page(ROOT)

    def header(self, name):
        """A public header."""
        return c_pages.page(self.interface, name)

    def python(self):
        """gradwire.torch."""
        return self.names.all()

    def formats(self):
        """The files that gradwire reads and writes."""
        return formats.page(ROOT)

    def program(self):
        """All commands."""
        return self.build and program.overview(self.build)

    def command(self, *words):
        """A command, or a word of one: bench step."""
        return self.build and program.command(self.build, *words)

    def axes(self):
        """The axes of a strategy."""
        return self.build and program.axes(self.build)

    def techniques(self, axis):
        """The techniques of an axis."""
        return self.build and program.techniques(self.build, axis)

    def missing(self):
        yield from self.interface.missing()
        yield from self.names.missing
        page = (ROOT / "docs/reference/commands.md").read_text(encoding="utf-8")
        for name, _ in program.commands(self.build) if self.build else ():
            if f"<!-- command {name} -->" not in page:
                yield f"docs/reference/commands.md: no part is about gradwire {name}"


def renewed(page, makers):
    """The text of a page with its parts made anew, and the lines of those that change."""
    text, changed = page.read_text(encoding="utf-8"), []

    def made(found):
        name, words = found.group(1), found.group(2).split()
        if not hasattr(Makers, name):
            sys.exit(f"{page.relative_to(ROOT)}: nothing makes a part named {name}")
        new = getattr(makers, name)(*words)
        if new is None or new + "\n" == found.group(3):
            return found.group()
        changed.append((text.count("\n", 0, found.start()) + 1, " ".join([name] + words)))
        return f"<!-- {' '.join([name] + words)} -->\n{new}\n<!-- end -->"

    return PART.sub(made, text), changed


def main(words):
    check = words[:1] == ["--check"]
    build = pathlib.Path((words[1:] if check else words or [""])[0] if words[check:] else ROOT / "build").resolve()
    makers, bad = Makers(build), 0
    for page in sorted((ROOT / "docs").rglob("*.md")):
        text, changed = renewed(page, makers)
        for line, part in changed if check else ():
            print(f"{page.relative_to(ROOT)}:{line}: the source says something else about: {part} (`make reference`)")
            bad = 1
        if changed and not check:
            page.write_text(text, encoding="utf-8")
    for line in makers.missing():
        print(line)
        bad = 1
    if not makers.build and not check:
        sys.exit(f"{build}/gradwire is not there: build it first")
    return bad


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
