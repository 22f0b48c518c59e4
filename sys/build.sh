#!/bin/sh
# Builds the C program: build.sh OUT, build.sh --sanitize OUT, build.sh --fuzz OUT (sanitized, parses everything, does nothing).
set -eu
here=$(dirname "$0")
flags='-O2 -static -s'
case $1 in
--sanitize) flags='-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer' && shift ;;
--fuzz) flags='-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -DSYS_DRY_RUN' && shift ;;
esac
out=$1
mkdir -p "$(dirname "$out")"
# shellcheck disable=SC2086
${CC:-cc} -std=gnu17 $flags -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Werror -o "$out.new$$" "$here"/*.c
mv "$out.new$$" "$out"
