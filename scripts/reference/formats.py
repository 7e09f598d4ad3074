"""The file formats as Markdown: each from the comment at the head of the file that defines it."""
import headers
import markdown

FORMATS = {  # title: the file whose first comment describes it
    "Hosts": "src/launch/hosts.h",
    "Link costs": "src/arch/link_file.h",
    "Racks": "src/arch/racks.h",
    "Machine speeds": "src/predict/machine.h",
    "Decisions": "src/decide/decision_file.h",
    "Sizes of a schedule": "src/reducer/tuning_file.h",
    "Profile of a model": "src/profile/profile.h",
    "Description of a model": "src/nn/model_spec.h",
    "Checkpoint": "src/store/checkpoint.h",
    "Capture": "src/trace/capture.h",
    "Timeline": "src/trace/chrome.h",
}


def to_page(word):
    return markdown.page_link(word, "docs/reference")


def section(root, title):
    comment = headers.body_of(next(t for kind, t, _, _ in headers.tokens(
        (root / FORMATS[title]).read_text(encoding="utf-8")) if kind == headers.COMMENT))
    name, about = comment.split(" - ", 1)
    about = about[0].upper() + about[1:]
    return "\n\n".join([f"## {title}", *markdown.paragraphs(about, to_page),
                        f"(From `{FORMATS[title]}`.)"])


def page(root):
    return "\n\n".join(section(root, title) for title in FORMATS)
