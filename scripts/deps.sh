#!/usr/bin/env bash
# Builds the pinned llama.cpp tree (ggml, libllama, its common library) once per machine and prints the
# directory that holds it as the last line of stdout. Everything else goes to stderr.
#
# usage: scripts/deps.sh [--portable]
#   --portable   no -march=native; ggml gets an x86-64-v3 (AVX2, FMA, F16C) baseline
#
# The result is keyed by the archive's hash, the build options, the compiler and the ISA, and lives in
# ${XDG_CACHE_HOME:-~/.cache}/varve/deps, outside any checkout, so that a fresh clone finds it.
set -euo pipefail

package=llama-cpp-python
version=0.3.36
sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
targets=(llama llama-common cpp-httplib)

portable=0
for arg in "$@"; do
  case "$arg" in
    --portable) portable=1 ;;
    *) echo "deps.sh: unknown option '$arg' (known: --portable)" >&2; exit 2 ;;
  esac
done

cache="${XDG_CACHE_HOME:-$HOME/.cache}/varve"
options=(
  -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DCMAKE_POSITION_INDEPENDENT_CODE=ON
  -DGGML_OPENMP=OFF -DGGML_CCACHE=OFF -DGGML_LLAMAFILE=ON
  -DLLAMA_BUILD_COMMON=ON -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TOOLS=OFF
  -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF
  -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_IS_DEV=OFF
)
if [ "$portable" = 1 ]; then
  options+=(-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON)
  isa=portable
else
  options+=(-DGGML_NATIVE=ON)
  isa=$(c++ -march=native -Q --help=target 2>/dev/null | sha256sum | cut -c1-16)
fi

shopt -s nullglob
patches=("$(dirname "$0")"/../cmake/patches/*.patch)
patch_hash=$(cat /dev/null "${patches[@]}" | sha256sum | cut -c1-16)
key=$(printf '%s\n' "$sha256" "$patch_hash" "${targets[*]}" "${options[*]}" "$isa" "$(c++ --version | head -1)" | sha256sum | cut -c1-16)
dir="$cache/deps/llama.cpp-$key"

mkdir -p "$cache/deps" "$cache/downloads"
exec 9>"$cache/deps/.lock"
flock 9
if [ -e "$dir/complete" ]; then echo "$dir"; exit 0; fi

archive="$cache/downloads/${package//-/_}-$version.tar.gz"
matches() { [ -e "$archive" ] && [ "$(sha256sum "$archive" | cut -d' ' -f1)" = "$sha256" ]; }
if ! matches; then
  echo "deps: downloading $package==$version (the llama.cpp source archive, 73 MiB)" >&2
  rm -f "$archive"
  # pip runs a source archive's build backend to read its metadata: with the hash in the requirement it checks first.
  requirement="$cache/downloads/requirement.txt"
  echo "$package==$version --hash=sha256:$sha256" >"$requirement"
  quiet=()
  [ -t 2 ] || quiet=(--quiet)
  python3 -m pip download "${quiet[@]}" --no-deps --no-binary "$package" --dest "$cache/downloads" \
    --require-hashes --requirement "$requirement" >&2
  if ! matches; then
    echo "deps: $archive has SHA-256 $(sha256sum "$archive" | cut -d' ' -f1), expected $sha256" >&2
    rm -f "$archive"
    exit 1
  fi
fi

echo "deps: building llama.cpp (${targets[*]}) in $dir; about 8 minutes on two cores, once per machine" >&2
rm -rf "$dir"
mkdir -p "$dir/src"
tar xzf "$archive" -C "$dir/src" --strip-components=3 "${package//-/_}-$version/vendor/llama.cpp"
for p in "${patches[@]}"; do
  patch -d "$dir/src" -p1 --quiet <"$p" >&2
done
cmake -S "$dir/src" -B "$dir/build" -G Ninja "${options[@]}" >"$dir/configure.log" 2>&1 ||
  { tail -30 "$dir/configure.log" >&2; exit 1; }
cmake --build "$dir/build" --target "${targets[@]}" >&2
touch "$dir/complete"
echo "$dir"
