# man.awk - man pages from the pages of docs/reference, at build time:
#
#     awk -v out=DIR -v version=0.2.0 -f man.awk kind=commands commands.md kind=calls c/gradwire.md ...
#
# kind=commands: a page of section 1 for each "## gradwire NAME". kind=calls: a page of section 3 for each "### NAME, NAME",
# the later names refer to it, and the text before them is a page named by `page`. kind=whole: one page named by `page` of
# section `section`. Only the Markdown of those pages is known. A table becomes a list: its first column names the entry.

BEGIN { SYNOPSIS = "SYNOPSIS"; DESCRIPTION = "DESCRIPTION"; OPTIONS = "OPTIONS"; COMMANDS = "COMMANDS"; EXAMPLES = "EXAMPLES" }

# ---- text ----

# Characters that roff takes for something else. verbatim: a hyphen is a minus sign, which can be copied.
function plain(text, verbatim) {
    gsub(/\\/, "\\e", text)
    if (verbatim) gsub(/-/, "\\-", text)
    gsub(/&emsp;/, "    ", text)
    gsub(/&lt;/, "<", text)
    gsub(/&gt;/, ">", text)
    gsub(/&amp;/, "\\&", text)
    return text
}

# Code, bold and links of a line, in one pass: what is in backticks is never read as anything else.
function inline(text,    result, at, end, char, rest) {
    while (text != "") {
        char = substr(text, 1, 1)
        rest = substr(text, 2)
        if (char == "`" && (end = index(rest, "`")) > 0) {
            result = result "\\fB" plain(unescaped(substr(rest, 1, end - 1)), 1) "\\fR"
            text = substr(rest, end + 1)
        } else if (substr(text, 1, 2) == "**" && (end = index(substr(text, 3), "**")) > 0) {
            result = result "\\fB" inline(substr(text, 3, end - 1)) "\\fR"
            text = substr(text, end + 4)
        } else if (char == "[" && match(text, /^\[[^]]*\]\([^) ]*\)/)) {
            end = index(text, "](")
            at = RLENGTH
            result = result inline(substr(text, 2, end - 2))
            text = substr(text, at + 1)
        } else if (char == "\\") {
            result = result plain(substr(rest, 1, 1), 0)
            text = substr(rest, 2)
        } else {
            match(text, /^[^`*\[\\]+/)
            at = RLENGTH > 0 ? RLENGTH : 1
            result = result plain(substr(text, 1, at), 0)
            text = substr(text, at + 1)
        }
    }
    return result
}

function unescaped(text) {
    gsub(/\\\|/, "|", text)
    return text
}

# A line of text must not begin like a request.
function guarded(text) { return text ~ /^[.']/ ? "\\&" text : text }

# ---- pages ----

function add(text) { body[part] = body[part] text "\n" }

function paragraph() {
    if (filled != "") {
        add(".PP\n" guarded(inline(filled)))
        if (first == "") first = filled
    }
    filled = ""
}

function start(names, number) {
    finish()
    count = split(names, name, /, /)
    current = number
    part = DESCRIPTION
}

# The first sentence, without its full stop: what `apropos` shows.
function summary(text) {
    sub(/^`gradwire[a-z ]*` /, "", text)
    text = inline(text)
    gsub(/\\f[BR]/, "", text)
    if (match(text, /[.;] /)) text = substr(text, 1, RSTART - 1)
    sub(/[.:;]$/, "", text)
    if (length(text) > 120 && match(text, /: /)) text = substr(text, 1, RSTART - 1)
    if (length(text) > 120) {
        text = substr(text, 1, 117)
        sub(/ [^ ]*$/, " ...", text)
    }
    return text
}

function emit(heading) {
    if (body[heading] == "") return
    print ".SH " heading > file
    printf "%s", body[heading] > file
}

function finish(    i, list) {
    paragraph()
    table_end()
    if (count) {
        for (i = 1; i <= count; i++) gsub(/ /, "-", name[i])
        file = out "/man" current "/" name[1] "." current
        printf ".TH \"%s\" %s \"\" \"gradwire %s\" \"gradwire\"\n.SH NAME\n", toupper(name[1]), current, version > file
        for (i = 1; i <= count; i++) list = list (i > 1 ? ", " : "") name[i]
        gsub(/-/, "\\-", list)
        print list " \\- " (title != "" ? title : summary(first)) > file
        emit(SYNOPSIS)
        emit(DESCRIPTION)
        emit(OPTIONS)
        emit(COMMANDS)
        emit(EXAMPLES)
        print ".SH SEE ALSO\n" also(name[1] "(" current ")") > file
        close(file)
        for (i = 2; i <= count; i++) {
            file = out "/man" current "/" name[i] "." current
            print ".so man" current "/" name[1] "." current > file
            close(file)
        }
    }
    count = 0
    first = title = ""
    delete body
}

# The other pages that are no single command or call.
function also(own,    all, i, n, result) {
    n = split("gradwire(1) gradwire(3) gradwire_reducer(3) gradwire_coded(3) gradwire_trace(3) " \
              "gradwire-files(5) gradwire-environment(7) gradwire-errors(7) gradwire-strategy(7)", all, " ")
    for (i = 1; i <= n; i++)
        if (all[i] != own) result = result (result == "" ? "" : ",\n") "\\fB" all[i]
    gsub(/\(/, "\\fR(", result)
    gsub(/-/, "\\-", result)
    return result
}

# ---- tables ----

function cells_of(line,    i) {
    gsub(/\\\|/, "\001", line)
    sub(/^\| */, "", line)
    sub(/ *\|$/, "", line)
    width = split(line, cell, / *\| */)
    for (i = 1; i <= width; i++) gsub(/\001/, "\\|", cell[i])
}

# What an entry means, then its other columns in parentheses.
function table_row(    text, main, i) {
    for (i = 2; i <= width; i++) {
        if (width == 2 || column[i] ~ /^(meaning|about|text)$/) main = cell[i]
        else if (cell[i] != "") text = text (text == "" ? "" : "; ") column[i] ": " cell[i]
    }
    if (text != "") text = main == "" ? text : main " (" text ")"
    else text = main
    add(".TP\n" guarded(inline(cell[1])) "\n" guarded(inline(text == "" ? " " : text)))
}

function table_end() { in_table = 0 }

# ---- lines ----

FNR == 1 { finish(); fence = sample = item = 0; header = "" }
FNR == 1 && kind == "whole" { start(page, section) }
FNR == 1 && kind == "calls" { start(page, 3) }
FNR == 1 && kind == "commands" { start("gradwire", 1) }

/^```/ {
    paragraph()
    fence = !fence
    if (fence) {
        opened = part
        if (kind == "calls" && $0 ~ /c$/) part = SYNOPSIS
        add(".PP\n.RS 4\n.nf")
        if (part == SYNOPSIS && header != "" && !included) { add(header); included = 1 }
    } else {
        add(".fi\n.RE")
        part = opened
    }
    next
}
fence && /^#include </ && kind == "calls" { header = plain($0, 1) }
fence { add(guarded(plain($0, 1))); next }
/^    / && filled == "" && !item {
    if (!sample) add(".PP\n.RS 4\n.nf")
    sample = 1
    add(guarded(plain(substr($0, 5), 1)))
    next
}
sample { add(".fi\n.RE"); sample = 0 }
/^<!-- end/ { paragraph(); table_end(); part = DESCRIPTION; next }
/^<(!--|a )/ { next }
/^# / { paragraph(); title = kind == "commands" ? "" : substr($0, 3); next }
/^## / && kind == "commands" {
    heading = substr($0, 4)
    if (heading != "gradwire") start(heading, 1)
    next
}
/^### / && kind == "calls" { start(substr($0, 5), 3); included = 0; next }
/^## / { paragraph(); table_end(); add((kind == "calls" ? ".SS " : ".SH ") toupper(inline(substr($0, 4)))); next }
/^### / { paragraph(); table_end(); add(".SS " inline(substr($0, 5))); next }
/^\*\*[A-Z][a-z]+\*\*$/ && kind == "commands" {
    paragraph()
    part = $0 == "**Usage**" ? SYNOPSIS : $0 == "**Options**" ? OPTIONS : $0 == "**Commands**" ? COMMANDS : EXAMPLES
    next
}
/^\|/ {
    paragraph()
    if ($0 ~ /^\|(---\|)+$/) next
    cells_of($0)
    if (in_table) { table_row(); next }
    in_table = 1
    for (i = 1; i <= width; i++) column[i] = cell[i]
    next
}
/^(- |[0-9]+\. )/ { paragraph(); match($0, /^(-|[0-9]+\.) /); add(".IP \"" substr($0, 1, RLENGTH - 1) "\" 4\n" guarded(inline(substr($0, RLENGTH + 1)))); item = 1; next }
/^$/ { paragraph(); table_end(); item = 0; next }
item { sub(/^ +/, ""); add(guarded(inline($0))); next }
{ table_end(); filled = filled (filled == "" ? "" : " ") $0 }
END { finish() }
