#!/bin/sh
# Runs random lifetimes of the compiled driver (tests/amqp/driver/test_lifetime.py) under valgrind; fails on any access to
# memory that was given back or never was ours. Build the twin first.
#   scripts/lifetime-valgrind.sh [ROUNDS [SEED]]     PYTHON=… names the interpreter
set -eu
cd "$(dirname "$0")/.."
rounds=${1:-300}
seed=${2:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "seed $seed, $rounds rounds"
# Python's own allocator would hide what is freed. Undefined values and leaks are not asked for: the interpreter has
# some of both; test_..._leave_no_memory_behind looks for leaks.
PYTHONMALLOC=malloc PYTHONPATH=. valgrind --tool=memcheck --undef-value-errors=no --leak-check=no --error-limit=no \
    --freelist-vol=200000000 --num-callers=25 --log-file="$log" \
    "${PYTHON:-python3}" tests/amqp/driver/test_lifetime.py "$seed" "$rounds" || { tail -50 "$log"; exit 1; }
if grep -qE 'Invalid (read|write|free)|Use after free|Mismatched free|Process terminating' "$log"; then
    cat "$log"
    exit 1
fi
grep 'ERROR SUMMARY: 0 errors' "$log"
