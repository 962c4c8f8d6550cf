#!/usr/bin/env bash
# Put `consul`, `prometheus` and `promtool` into a git-ignored folder, without root and without
# starting anything. A program that is already on the PATH is used as it is.
#
# Consul left Debian after bullseye, so its source is the machine's own Debian source with the suite
# replaced; a private apt state keeps the machine's package lists untouched.
set -euo pipefail

target=${1:?usage: fetch.sh TARGET_FOLDER}
consul_suite=bullseye
mkdir -p "$target/bin"
target=$(cd "$target" && pwd)

say() { printf 'servers: %s\n' "$*" >&2; }

use_installed() { # NAME: link the machine's own program, if it has one
  local found
  found=$(type -P "$1" || true)
  case "$found" in
    "" | "$target"/*) return 1 ;;
    *) ln -sf "$found" "$target/bin/$1" && say "using the installed $found" ;;
  esac
}

machine_source() { # print the URI of the machine's own Debian archive
  local suite
  suite=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
  {
    cat /etc/apt/sources.list 2>/dev/null |
      awk -v suite="$suite" '$1 == "deb" { sub(/\[[^]]*\] */, ""); if ($3 == suite) print $2 }'
    cat /etc/apt/sources.list.d/*.sources 2>/dev/null |
      awk -v suite="$suite" '
        /^URIs:/ { uri = $2 }
        /^Suites:/ { for (i = 2; i <= NF; i++) if ($i == suite) print uri }'
  } | head -n 1
}

apt_private() { # run apt-get with every path inside the target folder
  apt-get -q -q \
    -o Dir::Etc::SourceList="$target/apt/sources.list" \
    -o Dir::Etc::SourceParts=/dev/null \
    -o Dir::State="$target/apt/state" \
    -o Dir::State::status="$target/apt/status" \
    -o Dir::Cache="$target/apt/cache" \
    -o APT::Sandbox::User="$(id -un)" \
    -o Acquire::Retries=3 \
    "$@"
}

unpack() { # NAME SUITE: download one package and unpack it
  say "fetching $1 from Debian $2"
  mkdir -p "$target/$1"
  (cd "$target/$1" && apt_private download "$1/$2" && dpkg-deb -x ./"$1"_*.deb . && rm -f ./"$1"_*.deb)
}

need_consul=1 need_prometheus=1
for name in consul prometheus promtool; do
  [ -x "$target/bin/$name" ] || use_installed "$name" || true
done
[ -x "$target/bin/consul" ] && need_consul=0
[ -x "$target/bin/prometheus" ] && [ -x "$target/bin/promtool" ] && need_prometheus=0
[ "$need_consul$need_prometheus" = 00 ] && exit 0

for program in apt-get dpkg-deb; do
  type -P "$program" >/dev/null || {
    say "no \`$program\` here: install \`consul\` and \`prometheus\` yourself and put them on the PATH"
    exit 1
  }
done
uri=$(machine_source)
[ -n "$uri" ] || { say "no Debian archive among this machine's apt sources: install \`consul\` and \`prometheus\` yourself"; exit 1; }
suite=$(. /etc/os-release && printf '%s' "$VERSION_CODENAME")
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
mkdir -p "$target/apt/state/lists/partial" "$target/apt/cache/archives/partial"
: >"$target/apt/status"
{
  printf 'deb [signed-by=%s] %s %s main\n' "$keyring" "$uri" "$suite"
  [ "$suite" = "$consul_suite" ] || printf 'deb [signed-by=%s] %s %s main\n' "$keyring" "$uri" "$consul_suite"
} >"$target/apt/sources.list"
apt_private update

if [ "$need_consul" = 1 ]; then
  unpack consul "$consul_suite"
  ln -sf ../consul/usr/bin/consul "$target/bin/consul"
fi
if [ "$need_prometheus" = 1 ]; then
  unpack prometheus "$suite"
  ln -sf ../prometheus/usr/bin/prometheus "$target/bin/prometheus"
  ln -sf ../prometheus/usr/bin/promtool "$target/bin/promtool"
fi
rm -rf "$target/apt"
