#!/usr/bin/env bash
# Lints the messages in proto/ and generates their Go code. Needs npm, for buf, and the network the first time.
#
# The generated code is checked in; a test of its package fails if it is not that of the .proto file, so that only who
# changes messages has to run this.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

buf_version=1.74.0
grpc_version=v1.6.2
# The generator of messages and the library that it generates for are one module.
go_version=$(go list -m -f '{{.Version}}' google.golang.org/protobuf)

cache=${XDG_CACHE_HOME:-$HOME/.cache}/headgate-tools
mkdir -p "$cache"
scratch=$(mktemp -d "$cache/.build.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

buf=$cache/buf-$buf_version
if [[ ! -d $buf ]]; then
	command -v npm >/dev/null || {
		echo "proto: npm is missing: install Node.js, which brings it" >&2
		exit 1
	}
	echo "proto: fetching buf $buf_version, once for this machine"
	npm install --silent --ignore-scripts --no-save --no-package-lock --prefix "$scratch/buf" "@bufbuild/buf@$buf_version"
	mv "$scratch/buf" "$buf"
fi
tools/deps.sh tool protoc-gen-go "$go_version" google.golang.org/protobuf/cmd/protoc-gen-go
tools/deps.sh tool protoc-gen-go-grpc "$grpc_version" google.golang.org/grpc/cmd/protoc-gen-go-grpc

# buf looks for generators under their plain names.
mkdir "$scratch/bin"
ln -s "$PWD/.bin/protoc-gen-go-$go_version" "$scratch/bin/protoc-gen-go"
ln -s "$PWD/.bin/protoc-gen-go-grpc-$grpc_version" "$scratch/bin/protoc-gen-go-grpc"
export PATH=$scratch/bin:$buf/node_modules/.bin:$PATH

cd proto
buf lint
buf format --diff --exit-code
buf generate
