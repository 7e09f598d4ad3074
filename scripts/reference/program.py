"""What the program says of itself, as Markdown: its commands with their options, and the techniques of a strategy."""
import json
import re
import subprocess

import markdown


def output(build, *words):
    return subprocess.run([build / "gradwire", *words], capture_output=True, text=True, check=True).stdout


def commands(build):
    """Names and descriptions of all commands."""
    return re.findall(r"^  ([a-z]+) +(.*)", output(build, "--help"), re.M)


def to_page(word):
    return markdown.page_link(word, "docs/reference")


def overview(build):
    rows = [[f"[`gradwire {name}`](#gradwire-{name})", markdown.inline(about, to_page)] for name, about in commands(build)]
    return "\n\n".join(["**Usage**", "```\n" + usage(output(build, "--help")) + "\n```", "**Commands**",
                        markdown.table(["command", "meaning"], rows)])


def usage(text):
    lines = re.search(r"^usage: (.*(?:\n +.*)*)", text, re.M).group(1).split("\n")
    return "\n".join(line.strip() for line in lines)


def command(build, *words):
    """One command: a line about it, usage, options, examples."""
    text = output(build, *words, "--help")
    about = re.match(r"gradwire [a-z ]+: (.*)", text).group(1)
    options = re.findall(r"^  (?:(-\w), |    )(--\S.*?)  +(.*)", text.split("\noptions:\n")[1].split("\nexample:")[0], re.M)
    rows = [[", ".join(markdown.code(word) for word in ((short,) if short else ()) + (long,)),
             markdown.inline(about, to_page)] for short, long, about in options]
    example = re.search(r"\nexample:\n(.*)", text, re.S).group(1)
    example = "\n".join(line[2:] for line in example.rstrip().split("\n"))
    return "\n\n".join([markdown.wrapped(markdown.inline(f"`gradwire {' '.join(words)}` {about}.", to_page)),
                        "**Usage**", "```\n" + usage(text) + "\n```", "**Options**",
                        markdown.table(["option", "meaning"], rows), "**Example**", "```\n" + example + "\n```"])


def allowed(build, axis):
    """Values of parameters as people write them (64K), from the table for people."""
    found, technique = {}, None
    for line in output(build, "list", axis).split("\n")[1:]:
        if line.startswith("    "):
            name, text = re.match(r"    (\S+) +(\S.*?)(?:  |$)", line).groups()
            found[technique, name] = text
        elif line:
            technique = line.split()[0].split("=")[1]
    return found


def techniques(build, axis):
    """The techniques of an axis, each with its parameters."""
    listed = json.loads(output(build, "list", axis, "--json"))["axes"][0]
    texts = allowed(build, axis)
    rows = []
    for technique in listed["techniques"]:
        about = markdown.inline(technique["about"], to_page) + (" (the default)" if technique["default"] else "")
        rows.append([f"`{axis}={technique['name']}`", "", "", about])
        for p in technique["parameters"]:
            rows.append([f"&emsp;`{p['name']}`", markdown.escaped(texts[technique["name"], p["name"]]),
                         "" if p["kind"] == "flag" else f"`{p['default']}`", markdown.inline(p["about"], to_page)])
    return markdown.table(["technique", "values", "default", "about"], rows)


def axes(build):
    listed = json.loads(output(build, "list", "--json"))["axes"]
    rows = []
    for axis in listed:
        preset = next(t for t in axis["techniques"] if t["default"])
        rows.append([f"[`{axis['name']}`](#{axis['name']})", axis["about"], f"`{preset['name']}`", ", ".join(
            f"`{t['name']}`" for t in axis["techniques"] if not t["default"])])
    return markdown.table(["axis", "question", "default", "others"], rows)
