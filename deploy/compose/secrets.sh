#!/bin/sh
# Creates random secrets for compose.yaml in deploy/compose/secrets, or in the directory given. Existing ones are kept.
#
# Containers run as several users and get the files by bind mounts. So all users may read the files, but on the host only
# their owner may enter the directory.
set -eu
dir=${1:-$(dirname "$0")/secrets}
umask 022
mkdir -p "$dir"
chmod 700 "$dir"
cd "$dir"

random() { od -An -tx1 -N32 /dev/urandom | tr -d ' \n'; }

# macOS may have only the second command.
hash() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi | cut -d ' ' -f 1; }

# token FILE NAME ROLE writes a token to FILE, and the line with its hash, for the server, to FILEs.
token() {
	if [ ! -e "$1" ]; then
		secret=hgt_$(random)
		echo "$secret" >"$1"
		echo "$(printf %s "$secret" | hash) $2 $3" >"$1s"
	fi
}

for name in redis_password postgres_password headgate_secret grafana_password; do
	[ -e "$name" ] || random >"$name"
done
echo "requirepass $(cat redis_password)" >redis_conf
token admin_token operator admin
token caller_token envoy caller
