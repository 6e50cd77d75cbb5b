#!/usr/bin/env bash
# Runs every fuzz target in turn and prints a table of results. Fails if a target fails.
#
# FUZZ_RUNS     inputs per target (200,000)
# FUZZ_SECONDS  maximum seconds per target (0: no limit)
# FUZZ_TARGETS  targets to run (all)
#
# Coverage-guided; stable Rust can build coverage instrumentation alone, without a sanitizer. Inputs that reach new code
# go to fuzz/found, failing inputs to fuzz/artifacts. Neither folder is committed.
set -euo pipefail
cd "$(dirname "$0")"

runs=${FUZZ_RUNS:-200000}
seconds=${FUZZ_SECONDS:-0}
read -ra targets <<<"${FUZZ_TARGETS:-$(cd fuzz_targets && echo *.rs | sed 's/\.rs//g')}"

triple=$(rustc -vV | sed -n 's/^host: //p')
flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
flags+=" -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing"
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target} RUST_BACKTRACE=${RUST_BACKTRACE:-0}
# With --target, cargo does not apply RUSTFLAGS to build scripts and proc macros.
RUSTFLAGS="$flags" cargo build --release --locked --target "$triple" --bins

figure() { sed -n "s/^stat::$2: *//p" "$1" | tail -1; }

log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=() total=0
row='%-12s %12s %10s %6s %14s %9s\n'
# shellcheck disable=SC2059
printf "$row" target executions per-second new slowest-second peak-MB
for target in "${targets[@]}"; do
    mkdir -p "found/$target" "artifacts/$target"
    dictionary=()
    [ -f "dictionaries/$target.dict" ] && dictionary=("-dict=dictionaries/$target.dict")
    ok=1
    nice "$CARGO_TARGET_DIR/$triple/release/$target" -runs="$runs" -max_total_time="$seconds" -timeout=60 \
        -rss_limit_mb=4096 -print_final_stats=1 -verbosity=1 -artifact_prefix="artifacts/$target/" "${dictionary[@]}" \
        "found/$target" "corpus/$target" >"$log" 2>&1 || ok=0
    if [ "$ok" = 1 ]; then
        # shellcheck disable=SC2059
        printf "$row" "$target" "$(figure "$log" number_of_executed_units)" "$(figure "$log" average_exec_per_sec)" \
            "$(figure "$log" new_units_added)" "$(figure "$log" slowest_unit_time_sec)" "$(figure "$log" peak_rss_mb)"
        total=$((total + $(figure "$log" number_of_executed_units)))
    else
        failed+=("$target")
        grep -vE '^#[0-9]+|^(NEW_FUNC|INFO:|	)' "$log" | tail -25
        echo "$target: FAILED; the input is $(sed -n 's/.*Test unit written to \(.*\)/fuzz\/\1/p' "$log" | tail -1)"
    fi
done
echo "$total executions"
[ ${#failed[@]} = 0 ] || { echo "failed: ${failed[*]}" >&2; exit 1; }
