#!/usr/bin/env bash
# Writes what packages contain in addition to the program to out/: manual pages and shell completions.
#
#   deploy/packaging/generate.sh [HEADGATE]    made by this binary; by one that it builds, if none is given
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

headgate=${1:-}
if [[ -z $headgate ]]; then
	headgate=$PWD/out/headgate
	go build -o "$headgate" ./cmd/headgate
fi
rm -rf out/man out/completions
mkdir -p out/completions
"$headgate" man out/man
gzip -9n out/man/*
for shell in bash zsh fish; do
	"$headgate" completion "$shell" >"out/completions/headgate.$shell"
done
