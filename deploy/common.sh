# Shared by the scripts of deploy/ and tests/; sourced, never run.

MUSTER_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
MUSTER_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/muster

# Progress goes to standard error, so that standard output stays free for results.
say() { printf '==> %s\n' "$*" >&2; }

die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# run_quietly LOG COMMAND...: shows the end of the log only when the command fails.
run_quietly() {
  local log=$1
  shift
  if ! "$@" >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    die "failed: $* (the whole log: $log)"
  fi
}

# configure_preset PRESET: configures build/PRESET, with LibTorch where the user pointed to it.
configure_preset() {
  local args=()
  if [[ -n ${MUSTER_LIBTORCH_DIR:-} ]]; then
    args+=("-DMUSTER_LIBTORCH_DIR=$MUSTER_LIBTORCH_DIR")
  fi
  mkdir -p "$MUSTER_ROOT/build"
  (cd "$MUSTER_ROOT" &&
    run_quietly "$MUSTER_ROOT/build/configure-$1.log" cmake --preset "$1" "${args[@]}")
}
