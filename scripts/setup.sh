#!/usr/bin/env bash
# Makes or renews .venv: the pinned packages of the lock files, this package in place, the compiled twins.
# Needs Python >= 3.11 with venv and headers, and a C compiler (Proton comes as source). Says what is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_INPUT=1
export PIP_NO_COMPILE=1 # Python compiles what is imported, when it is; most of mypy and pip never is.

say() { printf 'setup: %s\n' "$*"; }
stop() { printf 'setup: %s\n' "$*" >&2; exit 1; }

distribution() {
    if [ "$(uname)" = Darwin ]; then echo macos; return; fi
    # shellcheck disable=SC1091
    case "$(. /etc/os-release 2>/dev/null; echo "${ID:-} ${ID_LIKE:-}")" in
        *debian* | *ubuntu*) echo debian ;;
        *fedora* | *rhel* | *centos*) echo fedora ;;
        *alpine*) echo alpine ;;
        *) echo other ;;
    esac
}

# missing WHAT: one line that names it and the command that installs it here. Does not return.
missing() {
    local name debian fedora alpine macos remedy
    case "$1" in
        python) name="Python 3.11 or newer" debian="python3 python3-venv python3-dev" fedora="python3 python3-devel"
            alpine="python3 python3-dev" macos="brew install python@3.13" ;;
        venv) name="Python's venv module" debian="python3-venv" fedora="python3"
            alpine="python3" macos="brew install python@3.13" ;;
        headers) name="Python's headers (Python.h)" debian="python3-dev" fedora="python3-devel"
            alpine="python3-dev" macos="brew install python@3.13" ;;
        compiler) name="a C compiler with the C library's headers" debian="gcc libc6-dev" fedora="gcc glibc-devel"
            alpine="gcc musl-dev" macos="xcode-select --install" ;;
    esac
    case "$(distribution)" in
        debian) remedy="apt-get install -y $debian" ;;
        fedora) remedy="dnf install -y $fedora" ;;
        alpine) remedy="apk add $alpine" ;;
        macos) remedy="$macos" ;;
        *) remedy="apt-get install -y $debian, dnf install -y $fedora, apk add $alpine, or on macOS $macos" ;;
    esac
    stop "missing: $name. Install it: $remedy"
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

check_machine() {
    "$python" -c 'import venv, ensurepip' 2>/dev/null || missing venv
    local cc include
    cc="${CC:-$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("CC") or "cc")')}"
    include="$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')"
    # shellcheck disable=SC2086
    printf '#include <stdlib.h>\nint main(void) { return 0; }\n' | $cc -x c -o /dev/null - 2>/dev/null || missing compiler
    [ -e "$include/Python.h" ] || missing headers
}

# A twin that no longer builds must not leave its old self behind, which would speak for code that has changed.
drop_stale_twins() {
    local source built
    find amqpbroker -name '_*.pyx' | while read -r source; do
        for built in "${source%.pyx}".*.so; do
            if [ -e "$built" ] && [ "$source" -nt "$built" ]; then rm -f "$built"; fi
        done
    done
}

# run LOG COMMAND…: quiet when it works, everything it said when it does not.
run() {
    local log="$1"; shift
    "$@" >"$log" 2>&1 || { cat "$log" >&2; stop "failed: $*"; }
}

python="$(find_python)" || missing python
.venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || rm -rf .venv
locked="$(cat requirements-build.lock requirements.lock | cksum)"

if [ "$(cat .venv/.locked 2>/dev/null)" != "$locked" ]; then
    check_machine
    say "making .venv with $("$python" --version) (the first time Proton is compiled: 1 to 2 minutes)"
    [ -e .venv/bin/python ] || "$python" -m venv .venv
    run .venv/setup.log .venv/bin/python -m pip install --require-hashes -r requirements-build.lock
    fresh=yes
fi

say "compiling the twins"
drop_stale_twins
.venv/bin/python setup.py -q build_ext --inplace >.venv/twins.log 2>&1 &
twins=$!

if [ "${fresh:-}" = yes ]; then
    # The build requirements are in place and pinned, so that nothing else is fetched to build Proton.
    run .venv/setup.log .venv/bin/python -m pip install --no-build-isolation --require-hashes -r requirements.lock
    printf '%s\n' "$locked" >.venv/.locked
fi
AMQPBROKER_PURE_PYTHON=1 run .venv/setup.log .venv/bin/python -m pip install --no-build-isolation --no-deps -e .

if ! wait "$twins"; then
    tail -n 40 .venv/twins.log >&2
    stop "the compiled twins do not build"
fi
find amqpbroker -name '_*.pyx' | while read -r source; do
    ls "${source%.pyx}".*.so >/dev/null 2>&1 || say "$source did not build (see .venv/twins.log): the pure module does its work, more slowly"
done
touch .venv/.stamp
say "done: .venv/bin/amqpbroker"
