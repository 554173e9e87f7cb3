#!/usr/bin/env bash
# Installs what building, testing and the demo need on a Debian 12, and only what is missing.
#
# usage: scripts/setup.sh [--check]
#   --check   install nothing; list what is missing and exit with 1 if anything is
#
# Debian packages only. Models and the llama.cpp sources come from the Python package index later (scripts/deps.sh,
# varve pull) with `pip download`, which installs nothing and so works beside a Debian-managed Python.
set -euo pipefail

check_only=0
for arg in "$@"; do
  case "$arg" in
    --check) check_only=1 ;;
    *) echo "setup.sh: unknown option '$arg' (known: --check)" >&2; exit 2 ;;
  esac
done

# package | why
packages=(
  "make|runs the README's commands"
  "g++|compiles llama.cpp and varve (C++20)"
  "cmake|configures the build"
  "ninja-build|runs the build"
  "patch|applies our patches to the pinned llama.cpp sources"
  "python3|unpacks downloads, runs the demo's table and some tests"
  "python3-pip|downloads models and the pinned llama.cpp sources"
  "ca-certificates|lets downloads check whom they talk to"
  "libssl-dev|SHA-256"
  "libxxhash-dev|fast hashes"
  "libutf8proc-dev|letters and digits of all scripts"
  "libhwy-dev|portable SIMD"
  "libeigen3-dev|small dense algebra (low-rank pages)"
  "libcli11-dev|command line parsing"
  "libgtest-dev|unit tests"
  "librapidcheck-dev|property tests"
  "libbenchmark-dev|micro-benchmarks"
)

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  echo "set-up: this is not a Debian system. Needed, under whatever names it uses:" >&2
  printf '%s\n' "${packages[@]}" | sed 's/^\([^|]*\)|\(.*\)/  \1: \2/' >&2
  exit 0
fi

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
present() {
  installed "$1" && return 0
  # A Python that Debian did not install brings its own pip.
  [ "$1" = python3-pip ] && python3 -c 'import pip' 2>/dev/null
}

missing=()
for entry in "${packages[@]}"; do
  present "${entry%%|*}" || missing+=("$entry")
done
# Texts are taken from Debian packages without installing them; a bare system has no package lists yet.
lists_missing=0
apt-cache show jargon-text >/dev/null 2>&1 || lists_missing=1

if [ "${#missing[@]}" = 0 ] && [ "$lists_missing" = 0 ]; then
  echo "set-up: nothing to install (${#packages[@]} Debian packages are there)"
  exit 0
fi
if [ "${#missing[@]}" -gt 0 ]; then
  echo "set-up: missing Debian packages:"
  for entry in "${missing[@]}"; do printf '  %-18s %s\n' "${entry%%|*}" "${entry#*|}"; done
fi
if [ "$check_only" = 1 ]; then
  [ "${#missing[@]}" = 0 ] || exit 1
  exit 0
fi

as_root=()
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "set-up: not root and no sudo. As root: apt-get update && apt-get install ${missing[*]%%|*}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
echo "set-up: updating the package lists"
"${as_root[@]}" apt-get update -qq
if [ "${#missing[@]}" -gt 0 ]; then
  echo "set-up: installing ${#missing[@]} packages"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]%%|*}" >/dev/null
fi
echo "set-up: done"
