"""The public headers, read declaration by declaration, and their pages.

An entry is a comment and the declarations below it, up to the next comment of its own or an empty line. A comment at the
end of a declaration's last line belongs to that declaration alone. The lists that make enums (X-macros) are read too."""
import re

BLANK, COMMENT, DIRECTIVE, DECLARATION = "blank", "comment", "directive", "declaration"
PLAIN_COMMENT = re.compile(r"/\*.*?\*/", re.S)


class Declaration:
    """text: without comments and attributes. names: what it declares. rows: fields or enum values with their texts, for
    a struct or an enum."""

    def __init__(self, text, kind, names):
        self.text, self.kind, self.names = text, kind, names
        self.beside, self.rows, self.columns = "", [], []


class Entry:
    def __init__(self, comment, line):
        self.comment, self.line, self.declarations = comment, line, []

    def names(self):
        return [name for declaration in self.declarations for name in declaration.names]


def body_of(comment):
    """The text of a comment without its marks; a code sample keeps its indentation."""
    lines = comment[2:-2].split("\n")
    return "\n".join([lines[0].strip()] + [re.sub(r"^\s*\*? ?", "", line).rstrip() for line in lines[1:]]).strip()


def beside_of(comment):
    """The text of a comment beside a declaration, whose lines are only aligned."""
    return " ".join(re.sub(r"^\s*\* ", "", line).strip() for line in comment[2:-2].split("\n")).strip()


def end_of_declaration(text, at):
    """Behind the semicolon, or behind the body of a function."""
    depth, start = 0, at
    while at < len(text):
        if text.startswith("/*", at):
            at = text.index("*/", at) + 2
            continue
        depth += {"{": 1, "(": 1, "}": -1, ")": -1}.get(text[at], 0)
        at += 1
        if depth == 0 and (text[at - 1] == ";" or text[at - 1] == "}" and text.startswith("static inline", start)):
            return at
    raise ValueError(f"a declaration without an end: {text[start:start + 60]!r}")


def tokens(text):
    """(kind, text, line, whether it begins on the line on which the last one ended)."""
    at = 0
    while at < len(text):
        space = re.compile(r"\s*").match(text, at).group()
        at += len(space)
        line = text.count("\n", 0, at) + 1
        if space.count("\n") > 1:
            yield BLANK, "", line, False
        if at == len(text):
            return
        if text.startswith("/*", at):
            kind, end = COMMENT, text.index("*/", at) + 2
        elif text[at] == "#":
            kind, end = DIRECTIVE, re.compile(r"(?:\\\n|/\*.*?\*/|[^\n])*", re.S).match(text, at).end()
            inner = PLAIN_COMMENT.search(text, at, end)
            end = inner.start() if inner else end
        elif text.startswith('extern "C" {', at):
            at += len('extern "C" {')
            continue
        elif text[at] == "}":
            at += 1
            continue
        else:
            kind, end = DECLARATION, end_of_declaration(text, at)
        yield kind, text[at:end].rstrip(), line, "\n" not in space
        at = end


def arguments(text):
    """The arguments of a macro call, split at commas outside of strings."""
    return [a.strip() for a in re.findall(r'(?:"[^"]*"|[^,"])+', text)]


def list_rows(define, maker):
    """Rows of an enum from its X-list and from the macro that makes a value of an entry."""
    columns = arguments(re.search(r"\((.*?)\)", maker).group(1))
    value = maker.split(")", 1)[1].strip().rstrip(",")
    value = re.split(r"\s*=\s*", value)[0]
    rows = []
    for entry in re.findall(r'X\(((?:"[^"]*"|[^()"])*)\)', define.split("\n", 1)[1]):
        cells = [cell.strip('"') for cell in arguments(entry)]
        rows.append([value.replace("##" + columns[0], cells[0])] + cells[1:])
    return columns, rows


def members(body, separator):
    """(names, text) of fields or enum values. A comment above some of them holds up to the next comment or empty line,
    one behind the separator for its own alone."""
    above, rows, at, fresh = "", [], 0, True
    pattern = re.compile(r"(\s*)(?:(/\*.*?\*/)|((?:[^%s/]|/(?!\*))*)(%s|$)[ \t]*(/\*.*?\*/)?)" % (separator, separator), re.S)
    while at < len(body):
        found = pattern.match(body, at)
        if found.end() == at:
            break
        at = found.end()
        fresh = fresh and found.group(1).count("\n") < 2
        if not fresh:
            above, fresh = "", True
        if found.group(2):
            above = beside_of(found.group(2))
        elif found.group(3).strip():
            beside = beside_of(found.group(5)) if found.group(5) else ""
            if beside:
                above = ""
            rows.append((re.sub(r"\s+", " ", found.group(3).strip()), beside or above))
    return rows


def field_names(text):
    """The names that a field declares: `const size_t *counts, *offsets` has two."""
    first, *rest = text.split(",")
    pointer = re.search(r"\(\*(\w+)\)", first)
    return [pointer.group(1) if pointer else re.findall(r"\w+", first)[-1]] + [re.findall(r"\w+", r)[-1] for r in rest]


def without_comments(text):
    lines = PLAIN_COMMENT.sub("", text).split("\n")
    return "\n".join(line.rstrip() for line in lines if line.strip())


def structure(text):
    name, body = re.match(r"typedef struct (\w+) \{(.*)\} \w+;$", text, re.S).groups()
    declaration = Declaration(without_comments(text), "struct", [name])
    declaration.rows = [[", ".join(field_names(field)), about] for field, about in members(body, ";")]
    declaration.columns = ["field", "meaning"]
    return declaration


def enumeration(text, lists):
    name, body = re.match(r"typedef enum (\w+) \{(.*)\} \w+;$", text, re.S).groups()
    made = re.search(r"(GW_\w+_LIST)\((\w+)\)", body)
    declaration = Declaration(without_comments(text), "enum", [name])
    if made:
        define = re.search(r"#define %s(.*)" % made.group(2), body).group(1)
        listed, comment = lists[made.group(1)]
        declaration.columns, declaration.rows = list_rows(listed.text, define)
        declaration.names.append(made.group(1))
        declaration.beside = re.sub(r"^name, value[^.]*(\.\s*|$)", "", comment)
        declaration.text = f"typedef enum {name} {name};"
        return declaration
    value = -1
    for item, about in members(body, ","):
        word, _, given = (part.strip() for part in item.partition("="))
        value = int(given) if given else value + 1
        declaration.rows.append([word, str(value), about])
    declaration.columns = ["name", "value", "meaning"]
    return declaration


def declared(text, lists):
    """A declaration of any kind but a directive."""
    if re.match(r"typedef struct \w+ \{", text):
        return structure(text)
    if text.startswith("typedef enum"):
        return enumeration(text, lists)
    plain = re.sub(r"\s+", " ", PLAIN_COMMENT.sub("", text))
    if text.startswith("static inline"):
        plain = plain[:plain.index(" {")] + ";"
    name = re.search(r"(\w+)(?: ?\(.*\))?;$", plain).group(1)
    return Declaration(text if not plain.startswith("static inline") else plain,
                       "type" if text.startswith("typedef") else "function", [name])


def macro(text):
    """A macro with a value; None for an include guard."""
    name, value = re.match(r"#define +(\w+(?:\([^)]*\))?)(.*)", text, re.S).groups()
    short = name.split("(")[0]
    if not value.strip():
        return None
    return Declaration(text, "macro", [short])


def parse(text):
    """The entries of a header, in its order. The first is the comment of the file; one without declarations is text
    between others."""
    entries, entry, lists = [], None, {}
    for kind, part, line, beside in tokens(text):
        if kind == COMMENT and beside and entry and entry.declarations:
            entry.declarations[-1].beside = beside_of(part)
        elif kind == COMMENT:
            entry = Entry(body_of(part), line)
            entries.append(entry)
        elif kind == BLANK:
            entry = None
        else:
            if kind == DIRECTIVE:
                declaration = macro(part) if part.startswith("#define") else None
            else:
                declaration = declared(part, lists)
            if declaration is None:
                continue
            if entry is None:
                entry = Entry("", line)
                entries.append(entry)
            if declaration.names[0].endswith("_LIST"):
                lists[declaration.names[0]] = declaration, entry.comment
                entries.remove(entry)
                entry = None
                continue
            entry.declarations.append(declaration)
    return merged(entries)


def merged(entries):
    """Nonblocking forms stand beside their calls: gw_reduce_start with gw_reduce."""
    of_name = {name: entry for entry in entries for name in entry.names()}
    for entry in [e for e in entries if e.names() and all(name.endswith("_start") for name in e.names())]:
        for declaration in list(entry.declarations):
            base = of_name.get(declaration.names[0].removesuffix("_start"))
            if declaration.names[0].endswith("_start") and base and base.declarations[0].kind == "function":
                base.declarations.append(declaration)
                entry.declarations.remove(declaration)
                declaration.beside = declaration.beside or entry.comment
        if not entry.declarations:
            entries.remove(entry)
    return entries


def without_text(entries):
    """(line, name) of what has no reference text: declarations, fields, enum values."""
    for entry in entries:
        for declaration in entry.declarations:
            if not entry.comment and not declaration.beside:
                yield entry.line, declaration.names[0]
            for row in declaration.rows:
                if not row[-1]:
                    yield entry.line, f"{declaration.names[0]}: {row[0]}"
