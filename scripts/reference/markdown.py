"""Texts of comments as Markdown."""
import os
import re

# What is code in a text although it has no backticks: names of the interface, pointers, elements, words of a strategy.
CODE = re.compile(r"\b(?:gw|GW|GRADWIRE)_\w*\w(?:\.\w+)?|(?<![\w*])\*[a-z_]+\b|\b[a-z_]+\[[^\] ]*[\])]|"
                  r"\b(?:arch|sync|compress|schedule|transport|strategy|accuracy|quorum)=[\w:=.,]*\w|"
                  r"(?<![\w-])--[a-z][a-z-]+|\b[a-z_]+/[a-z_/-]+\.(?:h|md)\b")


def page_link(name, folder):
    """Where a page of docs is from a folder of docs; None for what is no page."""
    return os.path.relpath(name, folder) if name.startswith("docs/") and name.endswith(".md") else None


def escaped(text):
    text = text.replace("<", "&lt;").replace("*", "\\*").replace("|", "\\|")
    return re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", text)


def inline(text, link):
    """One paragraph. link(name): what follows `[name]`, or None."""
    parts = []
    for number, part in enumerate(text.split("`")):
        if number % 2:
            parts.append(f"`{part}`")
            continue
        at = 0
        for found in CODE.finditer(part):
            target = link(found.group())
            code = f"`{found.group()}`".replace("|", "\\|")
            parts += [escaped(part[at:found.start()]), f"[{code}]({target})" if target else code]
            at = found.end()
        parts.append(escaped(part[at:]))
    return "".join(parts)


ITEM = re.compile(r"([a-z_]+(?:, [a-z_]+)*): ")


def parts_of(text):
    """(kind, lines) of a comment: "sample" for lines that are indented below an empty line, "text" for others."""
    parts, after_blank = [], True
    for line in text.split("\n"):
        kind = "sample" if line.startswith("    ") and (after_blank or parts[-1][0] == "sample") else "text"
        if not line.strip():
            after_blank = True
            continue
        if parts and parts[-1][0] == kind and (kind == "sample" or not after_blank):
            parts[-1][1].extend([""] * after_blank + [line])
        else:
            parts.append((kind, [line]))
        after_blank = False
    return parts


def paragraphs(text, link):
    """A comment as Markdown: paragraphs, code samples, and lists of `name: what it is`."""
    for kind, lines in parts_of(text):
        starts = [i for i, line in enumerate(lines) if ITEM.match(line)]
        if kind == "sample":
            yield "```\n" + "\n".join(line[4:] for line in lines) + "\n```"
        elif len(starts) > 3 and starts[0] == 0:
            items = [" ".join(lines[i:j]) for i, j in zip(starts, starts[1:] + [len(lines)])]
            yield "\n".join(listed(item, link) for item in items)
        else:
            yield wrapped(inline(" ".join(lines), link))


def listed(item, link):
    name = ITEM.match(item)
    words = ", ".join(f"`{word}`" for word in name.group(1).split(", "))
    return wrapped(f"- {words}: {inline(item[name.end():], link)}", 118).replace("\n", "\n  ")


def wrapped(text, width=120):
    """Filled lines; a line never begins with what Markdown takes for a list or a heading."""
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width and not re.match(r"[-+*#>]+$|\d+[.)]$", word):
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return "\n".join(lines + [line])


def table(columns, rows):
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def code(text):
    return "`" + text.replace("|", "\\|") + "`"
