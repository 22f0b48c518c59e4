#!/bin/sh
# nodelet @VERSION@ for linux-@ARCH@: one file. What stands behind this text is unpacked once, beside other releases, and run from there.
set -eu
sum=@SUM@
self=$(readlink -f "$0")
if [ -n "${NODELET_RELEASES:-}" ]; then releases=$NODELET_RELEASES
elif [ "$(id -u)" = 0 ]; then releases=/var/lib/nodelet/releases
else releases=${XDG_CACHE_HOME:-${HOME:?}/.cache}/nodelet/releases; fi
root=$releases/$sum
unpack() {
  mkdir -p "$releases" 2>/dev/null || return 1
  new=$(mktemp -d "$releases/.new-XXXXXXXX" 2>/dev/null) || return 1
  trap 'rm -rf "$new"' EXIT INT TERM
  tail -c +@OFFSET@ "$self" >"$new/payload" 2>/dev/null || return 1
  [ "$(sha256sum "$new/payload" | cut -c 1-64)" = "$sum" ] || { echo "nodelet: $self is damaged: it is not whole, or was changed; copy it again" >&2; exit 1; }
  mkdir -m 0755 "$new/root" || return 1
  gzip -dc "$new/payload" 2>/dev/null | tar -xf - --no-same-owner -C "$new/root" 2>/dev/null || return 1
  # Another start may have been faster: then its copy is as good.
  mv -T "$new/root" "$root" 2>/dev/null || [ -x "$root/bin/node" ] || return 1
  rm -rf "$new"
  trap - EXIT INT TERM
}
# Of those that were here before, the newest stays, for the way back, and each that something still runs from.
collect() {
  cd "$releases" || return 0
  running=$(ls -l /proc/[0-9]*/exe 2>/dev/null) || true
  kept=
  for name in $(ls -1t); do
    case $name in *[!0-9a-f]* | "$sum") continue ;; esac
    if [ -z "$kept" ]; then kept=$name; continue; fi
    case $running in *"/$name/bin/node"*) continue ;; esac
    mv -T "$name" ".new-$name" && rm -rf ".new-$name"
  done
  find . -maxdepth 1 -name '.new-*' -mmin +60 -exec rm -rf {} +
}
if [ ! -x "$root/bin/node" ]; then
  unpack || { echo "nodelet: unpacking into $releases failed; it needs 170 MB there: make room, or name another folder with NODELET_RELEASES" >&2; exit 1; }
  (collect) 2>/dev/null || true
fi
# What these change is for programs that people write, not for a node's root daemons.
unset NODE_OPTIONS NODE_TLS_REJECT_UNAUTHORIZED NODE_PATH NODE_EXTRA_CA_CERTS || true
NODELET_ROOT=$root
NODELET_SYS=$root/dist/sys
NODE_COMPILE_CACHE=$root/cache
MALLOC_ARENA_MAX=2
export NODELET_ROOT NODELET_SYS NODE_COMPILE_CACHE MALLOC_ARENA_MAX
case ${0##*/} in
  kubelet) set -- agent "$@" ;;
  kube-proxy) set -- netfilter "$@" ;;
esac
case ${1:-} in
  agent) heap=--max-old-space-size=512 ;;
  netfilter)
    # The proxy alone, with the flags of node/core/services.ts.
    NODE_COMPILE_CACHE=$root/cache/netfilter
    exec "$root/bin/node" --max-semi-space-size=2 --optimize-for-size --no-turbofan --no-maglev --max-old-space-size=512 --disable-warning=ExperimentalWarning "$root/dist/netfilter.cjs" "$@" ;;
  *) heap= ;;
esac
exec "$root/bin/node" --max-semi-space-size=2 $heap --disable-warning=ExperimentalWarning "$root/dist/nodelet.mjs" "$@"
