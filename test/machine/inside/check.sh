# Sourced by the scripts beside it: one line a finding, "ok …" or "FAIL …"; finish ends with 1 if there was a FAIL.
failed=0
step() { echo "== $(cut -d' ' -f1 /proc/uptime) s: $*"; }
check() { # check WHAT FOUND WANTED
  case $2 in
    $3) echo "ok   $1: $2" ;;
    *) failed=$((failed + 1)); echo "FAIL $1: $2 (wanted: $3)" ;;
  esac
}
eventually() { # eventually SECONDS COMMAND…: until it succeeds
  until=$(($(date +%s) + $1)); shift
  while ! "$@"; do [ "$(date +%s)" -lt "$until" ] || return 1; sleep 1; done
}
finish() {
  step end
  echo "machine: $failed failed"
  [ "$failed" = 0 ]
  exit
}
