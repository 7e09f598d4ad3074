"""The public names of gradwire.torch as Markdown, from the source: signatures and the texts below them. Nothing is imported,
so PyTorch need not be there."""
import ast
import re

import markdown

PACKAGE = "gradwire.torch"
RESULTS = {"DistributedOptimizer": ("gradwire.torch.optimizer", "Distributed")}  # the class that a function returns


def to_page(word):
    return markdown.page_link(word, "docs/reference")


class Module:
    def __init__(self, root, name):
        path = root / "python" / name.replace(".", "/")
        self.name = name
        self.path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        self.text = self.path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.text)
        self.comments = dict(enumerate(self.text.split("\n"), 1))
        self.imported, self.defined = {}, {}
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom):
                self.imported.update({a.asname or a.name: (node.module, a.name) for a in node.names})
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                self.defined[node.name] = node
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    for name in target.elts if isinstance(target, ast.Tuple) else [target]:
                        if isinstance(name, ast.Name):
                            self.defined[name.id] = node


class Package:
    def __init__(self, root):
        self.root, self.modules = root, {}
        self.main = self.module(PACKAGE)

    def module(self, name):
        if name not in self.modules:
            self.modules[name] = Module(self.root, name)
        return self.modules[name]

    def exported(self):
        node = self.main.defined["__all__"]
        return [ast.literal_eval(e) for e in node.value.elts]

    def find(self, module, name):
        """(module, node) of a name, where it is defined; node None: it is a module itself."""
        if name in module.defined:
            return module, module.defined[name]
        source, original = module.imported[name]
        if (self.root / "python" / source.replace(".", "/") / f"{original}.py").exists():
            return self.module(f"{source}.{original}"), None
        return self.find(self.module(source), original)


def signature(name, node, method=False):
    arguments = ast.unparse(node.args)
    if method and not any(ast.unparse(d) == "staticmethod" for d in node.decorator_list):
        arguments = re.sub(r"^(self|cls)(, )?", "", arguments)
    return f"{name}({arguments})"


def comment_of(module, node):
    """The comment behind an assignment, or directly above it."""
    line = module.comments[node.end_lineno]
    if "  # " in line:
        return line.split("  # ", 1)[1].strip()
    above = module.comments.get(node.lineno - 1, "")
    return above[2:].strip() if above.startswith("# ") else ""


def is_public(node):
    return isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")


def is_property(node):
    return any(ast.unparse(d) in ("property", "functools.cached_property") for d in node.decorator_list)


class Page:
    """Collects sections, and names without a text."""

    def __init__(self, root):
        self.package, self.missing, self.parts = Package(root), [], []

    def text(self, module, node, name, doc):
        """The paragraphs below a signature."""
        if not doc:
            self.missing.append(f"{module.path.relative_to(self.package.root)}:{node.lineno}: no text says what {name} is")
        return list(markdown.paragraphs(doc or "", to_page))

    def function(self, module, node, name):
        self.parts += [f'<a id="{name}"></a>\n### {name}', "```python\n" + signature(f"gw.{name}", node) + "\n```",
                       *self.text(module, node, name, ast.get_docstring(node))]
        if name in RESULTS:
            self.members(self.package.module(RESULTS[name][0]).defined[RESULTS[name][1]])

    def members(self, node):
        """A table of the methods that have a text; the others are not for users."""
        rows = []
        for member in node.body:
            doc = ast.get_docstring(member) if isinstance(member, ast.FunctionDef) and is_public(member) else None
            if doc:
                shown = member.name if is_property(member) else signature(member.name, member, True)
                rows.append([markdown.code(shown), markdown.inline(" ".join(doc.split()), to_page)])
        if rows:
            self.parts.append(markdown.table(["member", "meaning"], rows))

    def a_class(self, module, node, name):
        init = next((n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
        shown = signature(f"gw.{name}", init, True) if init else f"class gw.{name}"
        self.parts += [f'<a id="{name}"></a>\n### {name}', f"```python\n{shown}\n```",
                       *self.text(module, node, name, ast.get_docstring(node))]
        self.members(node)

    def value(self, module, node, name):
        """A constant, or another name of something."""
        target = module.defined.get(ast.unparse(node.value).split("(")[0])
        doc = comment_of(module, node)
        if not doc and isinstance(target, (ast.FunctionDef, ast.ClassDef)):
            doc = ast.get_docstring(target)
        shown = f"gw.{name}()" if isinstance(target, ast.FunctionDef) else f"gw.{name}"
        self.parts += [f'<a id="{name}"></a>\n### {name}', f"```python\n{shown}\n```",
                       *self.text(module, node, name, doc)]

    def module(self, module, name):
        """A submodule: its text and its public names."""
        self.parts += [f'<a id="{name}"></a>\n### {name}', *self.text(module, module.tree, name,
                                                                     ast.get_docstring(module.tree))]
        for node in module.tree.body:
            if is_public(node):
                self.any(module, node, f"{name}.{node.name}")

    def any(self, module, node, name):
        if node is None:
            self.module(module, name)
        elif isinstance(node, ast.FunctionDef):
            self.function(module, node, name)
        elif isinstance(node, ast.ClassDef):
            self.a_class(module, node, name)
        else:
            self.value(module, node, name)

    def all(self):
        for name in sorted(self.package.exported(), key=lambda n: (n.lower(), n)):
            self.any(*self.package.find(self.package.main, name), name)
        return "\n\n".join(self.parts)
