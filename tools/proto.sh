#!/usr/bin/env bash
# Lints the .proto files and generates their Go code. Requires npm for buf, and network access the first time.
#
# The generated code is checked in, and a test of its package fails if it is out of date. Run this after changing a .proto
# file.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

buf_version=1.74.0
grpc_version=v1.6.2
# The message generator and its runtime library are the same module, so they have the same version.
go_version=$(go list -m -f '{{.Version}}' google.golang.org/protobuf)

cache=${XDG_CACHE_HOME:-$HOME/.cache}/headgate-tools
mkdir -p "$cache"
scratch=$(mktemp -d "$cache/.build.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

buf=$cache/buf-$buf_version
if [[ ! -d $buf ]]; then
	command -v npm >/dev/null || {
		echo "proto: npm not found: install Node.js" >&2
		exit 1
	}
	echo "proto: fetching buf $buf_version, once per machine"
	npm install --silent --ignore-scripts --no-save --no-package-lock --prefix "$scratch/buf" "@bufbuild/buf@$buf_version"
	mv "$scratch/buf" "$buf"
fi
tools/deps.sh tool protoc-gen-go "$go_version" google.golang.org/protobuf/cmd/protoc-gen-go
tools/deps.sh tool protoc-gen-go-grpc "$grpc_version" google.golang.org/grpc/cmd/protoc-gen-go-grpc

# buf finds generators by their names without version.
mkdir "$scratch/bin"
ln -s "$PWD/.bin/protoc-gen-go-$go_version" "$scratch/bin/protoc-gen-go"
ln -s "$PWD/.bin/protoc-gen-go-grpc-$grpc_version" "$scratch/bin/protoc-gen-go-grpc"
export PATH=$scratch/bin:$buf/node_modules/.bin:$PATH

cd proto
buf lint
buf format --diff --exit-code
buf generate
