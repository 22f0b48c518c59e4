#!/bin/sh
# Builds the C program: build.sh OUT, build.sh --sanitize OUT, build.sh --fuzz OUT (sanitized, parses everything, does nothing).
# build.sh --front OUT builds the CNI plugin's executable, which needs no C library.
set -eu
here=$(dirname "$0")
flags='-O2 -static -s'
front=
case $1 in
--sanitize) flags='-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer' && shift ;;
--fuzz) flags='-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -DSYS_DRY_RUN' && shift ;;
--front)
  flags='-Os -static -s -nostdlib -ffreestanding -fno-stack-protector -fno-asynchronous-unwind-tables -fno-pie -no-pie -fno-tree-loop-distribute-patterns -Wl,--build-id=none'
  front=yes
  shift
  ;;
esac
out=$1
if [ -n "$front" ]; then set -- "$here/front/cni.c"; else set -- "$here"/*.c; fi
mkdir -p "$(dirname "$out")"
# shellcheck disable=SC2086
${CC:-cc} -std=gnu17 $flags -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Werror -o "$out.new$$" "$@"
mv "$out.new$$" "$out"
