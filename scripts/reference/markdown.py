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


def paragraphs(text, link):
    """A comment: paragraphs, and code samples, which are indented by four blanks."""
    parts = []  # (whether it is a sample, its lines)
    for line in text.split("\n"):
        sample = line.startswith("    ")
        if not line.strip():
            parts.append((None, [""]))
        elif parts and parts[-1][0] == sample:
            parts[-1][1].append(line)
        elif sample and len(parts) > 1 and parts[-1][0] is None and parts[-2][0]:
            parts.pop()
            parts[-1][1].extend(["", line])
        else:
            parts.append((sample, [line]))
    for sample, lines in parts:
        if sample:
            yield "```\n" + "\n".join(line[4:] for line in lines) + "\n```"
        elif sample is not None:
            yield wrapped(inline(" ".join(lines), link))


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
