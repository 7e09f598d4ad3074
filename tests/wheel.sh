#!/usr/bin/env bash
# wheel.sh BUILD: the wheel that `make wheel` has put into BUILD, in fresh venvs, with nothing else on PATH: no compiler
# and no gradwire of the system. PYTHONS="python3.9 python3.13" names the Pythons (default: python3); torch is that of
# scripts/torch, or TORCH=2.15.0.
set -uo pipefail
build=$(cd "${1:-build}" && pwd) || exit 2
cd "$(dirname "$0")/.." || exit 2
skip() { echo "wheel: skipped, $*"; exit 77; }
wheel=$(find "$build" -maxdepth 1 -name 'gradwire-*.whl')
[ -n "$wheel" ] || skip "$build has none (make wheel)"
python3 -c 'import ensurepip' 2>/dev/null || skip "python3 makes no venvs with pip (Debian: python3-venv)"
. tests/with_torch.sh
passed=0 failed=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cp python/tests/installed.py "$scratch/"
ok() { # ok NAME COMMAND...
    if "${@:2}" >"$scratch/log" 2>&1; then passed=$((passed + 1)); echo "ok   $1"
    else failed=$((failed + 1)); echo "FAIL $1"; cat "$scratch/log"; fi
}
says() { # says WORDS: standard input does; all of it is shown where the test fails
    cat >"$scratch/heard"
    cat "$scratch/heard"
    grep -q "$1" "$scratch/heard"
}

# bare VENV COMMAND...: with the commands of the venv only, outside of the repository.
bare() {
    (cd "$scratch" && timeout -k 5 600 env -i HOME="$scratch" PATH="$1/bin" OMP_NUM_THREADS=1 \
        ${ONEDNN_MAX_CPU_ISA:+ONEDNN_MAX_CPU_ISA="$ONEDNN_MAX_CPU_ISA"} "${@:2}" 2>&1)
}
installs() { "$1" -m venv "$2" && bare "$2" pip install -q --no-index --no-deps --disable-pip-version-check "$wheel"; }
job() { # job VENV NAME, with two ranks
    bare "$1" gradwire run -n 2 --no-prefix --deadline 60 -- python "$scratch/installed.py" "$2" >"$scratch/said"
    local code=$?
    cat "$scratch/said"
    [ "$code" = 0 ] && [ "$(grep -c '^agrees$' "$scratch/said")" = 2 ]
}
library() { bare "$1" python -c 'import gradwire; print(gradwire.library_path)'; }

right_name() {
    [[ $(basename "$wheel") =~ ^gradwire-[0-9.]+-py3-none-manylinux_2_(1[0-9]|2[0-9]|3[0-4])_$(uname -m)\.whl$ ]]
}
audited() {
    auditwheel show "$wheel" | tr -s '\n' ' ' | says "platform tag: \"$(basename "$wheel" .whl | cut -d- -f5)\"\."
}
hides_libcrypto() {
    python3 -m zipfile -e "$wheel" "$scratch/files" &&
        nm -D --defined-only "$scratch/files/gradwire/lib/libgradwire.so.1" | awk '{print $3}' >"$scratch/said" &&
        grep -q '^gw_init_version$' "$scratch/said" && ! grep -v '^gw_' "$scratch/said"
}
commands_work() {
    bare "$1" gradwire --version && bare "$1" python -m gradwire list | says '^arch=ring'
}
brings_what_it_needs() { # all but what every Linux has
    ldd "$(dirname "$(dirname "$(library "$1")")")/bin/gradwire" >"$scratch/said" && cat "$scratch/said" &&
        ! grep -E '=> (/|not)' "$scratch/said" | grep -vE "=> $1/|^[[:space:]]lib(c|m|gcc_s|stdc\\+\\+|z)\.so"
}
has_its_library() { library "$1" | says "^$1/.*/gradwire/lib/libgradwire.so.1$"; }
trains() {
    cat docs/*/*.md >"$scratch/text"
    bare "$1" gradwire train -n 2 --model gpt --data "$scratch/text" --layers 1 --heads 2 --embedding 32 --context 16 \
        --steps 3 | says 'the same bits on 2 workers'
}
reports_a_missing_library() {
    local file
    file=$(library "$1") && mv "$file" "$file.away" || return 1
    bare "$1" python -c 'import gradwire' >"$scratch/said"
    mv "$file.away" "$file"
    says "libgradwire cannot be loaded: .*; install gradwire's wheel" <"$scratch/said" &&
        ! grep 'setup\.py' "$scratch/said"
}
refuses_a_checkout() {
    mkdir "$scratch/checkout" && cp -R python/{gradwire,setup.py,pyproject.toml} "$scratch/checkout/" || return 1
    cd "$scratch/checkout" || return 1
    ! "$1" -c 'from setuptools import build_meta; build_meta.build_wheel(".")' >"$scratch/said" 2>&1 &&
        says 'Run .make wheel. at the top' <"$scratch/said"
}
# The torch of another Python of the same version is in the venv by a .pth file: a copy would take a gigabyte.
lend_torch() { # lend_torch PYTHON VENV
    "$1" -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parents[1])' \
        >"$("$2/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch.pth"
}

ok "its name is right" right_name
if command -v auditwheel >/dev/null; then ok "auditwheel agrees with the name" audited; fi
ok "its library exports the public functions, none of libcrypto" hides_libcrypto
for one in ${PYTHONS:-python3}; do
    name=Python-$("$one" -c 'import platform; print(platform.python_version())') venv=$scratch/$name
    ok "$name: pip installs it" installs "$one" "$venv"
    ok "$name: gradwire, python -m gradwire" commands_work "$venv"
    ok "$name: the library is that of the wheel" has_its_library "$venv"
    ok "$name: the program brings the libraries it needs" brings_what_it_needs "$venv"
    ok "$name: two ranks sum" job "$venv" plain
done
ok "gradwire train, with its own oneDNN" trains "$venv"
ok "a missing library is reported" reports_a_missing_library "$venv"
for one in python3 /usr/bin/python3; do
    "$one" -c 'import setuptools, wheel' 2>/dev/null || continue
    ok "a checkout without the library says make wheel" refuses_a_checkout "$one"
    break
done
if [ -n "$python" ]; then
    name="torch $("$python" -c 'import torch; print(torch.__version__)')" venv=$scratch/torch
    ok "$name: pip installs it" installs "$python" "$venv"
    ok "$name: the venv has that torch" lend_torch "$python" "$venv"
    ok "$name: DistributedOptimizer" job "$venv" optimizer
    ok "$name: init_process_group, DistributedDataParallel" job "$venv" group
    if "$python" -c 'from torch.distributed.fsdp import fully_shard' 2>/dev/null; then
        ok "$name: FSDP2" job "$venv" fsdp2
    fi
else
    echo "$why"
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
