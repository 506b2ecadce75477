#!/usr/bin/env bash
# The other clients of tests/interop and their tool chains, from their registries; quick when all is there.
# Afterwards `make interop` needs no network.
set -euo pipefail
cd "$(dirname "$0")/../tests/interop"

GO_TOOLCHAIN=go1.25.11 # Debian's own Go is too old for go-amqp; the proxy has newer ones as a module.

say() { printf 'interop-setup: %s\n' "$*"; }
have() { command -v "$1" >/dev/null; }

# Tools that are here already, from Debian or elsewhere, are not installed again.
packages() {
    local wanted=()
    have g++ || wanted+=(g++)
    have make || wanted+=(make)
    have javac || wanted+=(openjdk-17-jdk-headless)
    have mvn || wanted+=(maven)
    have node || wanted+=(nodejs)
    have npm || wanted+=(npm)
    have go || wanted+=(golang-go)
    [ -e /usr/include/proton/container.hpp ] || wanted+=(libqpid-proton-cpp12-dev)
    [ ${#wanted[@]} -eq 0 ] && return
    say "installing ${wanted[*]}"
    apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${wanted[@]}" >/dev/null
}

# A Go before 1.21 does not fetch the version that a go.mod asks for; then it is done here, and put first in its place.
go_toolchain() {
    local wanted have_version folder
    wanted=$(awk '$1 == "go" { print $2 }' goamqp/go.mod)
    have_version=$(go env GOVERSION | sed 's/^go//')
    printf '%s\n1.21\n' "$have_version" | sort -V -C || return 0 # 1.21 or later: fetches by itself.
    say "go $have_version is too old for go-amqp, which wants $wanted: taking $GO_TOOLCHAIN"
    folder=$(cd "$(mktemp -d)" && go mod download -json "golang.org/toolchain@v0.0.1-$GO_TOOLCHAIN.linux-$(go env GOARCH)" |
        sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')
    chmod -R u+w "$folder"
    chmod +x "$folder"/bin/* "$folder"/pkg/tool/*/*
    ln -sf "$folder/bin/go" /usr/local/bin/go
}

packages

go_toolchain
say "go-amqp"
(cd goamqp && go mod download && go vet ./... && go test -count=1 -run '^$' github.com/Azure/go-amqp >/dev/null)

say "rhea"
[ rhea/node_modules/.package-lock.json -nt rhea/package-lock.json ] ||
    (cd rhea && npm ci --silent --no-audit --no-fund)

# One test runs, and fails for want of a broker: surefire fetches what it runs tests with only when it runs one.
try_jms() { (cd jms && mvn -q -B "$@" test -Dtest=MessageTest#aPersistentMessageSaysSo -Dmaven.test.failure.ignore >/dev/null 2>&1); }
say "Qpid JMS"
if ! try_jms -o; then try_jms || (cd jms && mvn -B -ntp test-compile); fi

say "Proton C++"
make --silent -C cpp

say "done"
