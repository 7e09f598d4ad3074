"""The reference of a public header as Markdown: a section for each call, type and macro."""
import re

import headers
import markdown

PAGES = {"gradwire.h": "gradwire.md", "gradwire/reducer.h": "reducer.md", "gradwire/coded.h": "coded.md",
         "gradwire/trace.h": "trace.md"}


class Interface:
    """All public headers."""

    def __init__(self, root):
        self.entries = {name: headers.parse((root / "include" / name).read_text(encoding="utf-8"))
                        for name in sorted(str(p.relative_to(root / "include")) for p in (root / "include").rglob("*.h"))}
        self.of_name = {name: header for header, entries in self.entries.items() for e in entries for name in e.names()}

    def missing(self):
        for header, entries in self.entries.items():
            for line, name in headers.without_text(entries):
                yield f"include/{header}:{line}: no comment says what {name} is"

    def link(self, header, own=()):
        """Links of the page of a header; names of its own section have none."""
        def target(word):
            if word.endswith(".md"):
                return markdown.page_link(word, "docs/reference/c")
            name = word.split(".")[0]
            where = self.of_name.get(name)
            if where is None or name in own:
                return None
            return ("" if where == header else PAGES[where]) + "#" + name
        return target


def shown(declaration):
    """The declaration as a program sees it."""
    text = re.sub(r"^(?:GW_API|static inline) ", "", declaration.text)
    if declaration.kind == "macro":
        text = re.sub(r"\s*\\\n\s*", " ", text)
    elif declaration.kind == "function":
        text = re.sub(r"\s+", " ", text)
    return broken(text) if "\n" not in text else text


def broken(text, width=100):
    """A long line is cut behind commas."""
    lines = [""]
    for part in re.split(r"(?<=,) ", text):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("    " + part)
        else:
            lines[-1] += (" " if lines[-1] else "") + part
    return "\n".join(lines)


def rows_of(declaration, link):
    """The table of fields or values: names are code, the last column is a text."""
    rows = []
    for first, *cells, text in declaration.rows:
        names = ", ".join(markdown.code(name) for name in first.split(", "))
        rows.append([names] + cells + [markdown.inline(text, link)])
    return markdown.table(declaration.columns, rows)


def sentence(text):
    """A note beside a declaration, as a sentence."""
    return text if text.endswith(".") else text + "."


def section(entry, interface, header):
    link = interface.link(header, entry.names())
    names = entry.names()
    yield "".join(f'<a id="{name}"></a>' for name in names) + f"\n### {', '.join(names)}"
    yield "```c\n" + "\n".join(shown(d) for d in entry.declarations) + "\n```"
    if entry.comment:
        yield from markdown.paragraphs(entry.comment, link)
    said = {entry.comment}
    for declaration in entry.declarations:
        if declaration.beside and declaration.beside not in said:
            said.add(declaration.beside)
            before = f"`{declaration.names[0]}`: " if len(entry.declarations) > 1 else ""
            yield markdown.wrapped(before + sentence(markdown.inline(declaration.beside, link)))
        if declaration.rows:
            yield rows_of(declaration, link)


def page(interface, header):
    first, *entries = interface.entries[header]
    about = re.sub(r"^\S+\.h - (\w)", lambda m: m.group(1).upper(), first.comment)
    parts = [f"```c\n#include <{header}>\n```", *markdown.paragraphs(about, interface.link(header))]
    for entry in entries:
        if entry.declarations:
            parts += section(entry, interface, header)
        else:
            parts += [f"## {entry.comment.split('.')[0]}", *markdown.paragraphs(
                entry.comment.split(".", 1)[1].strip() or entry.comment, interface.link(header))]
    return "\n\n".join(parts)
