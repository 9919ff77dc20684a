#!/usr/bin/env bash
# Build llama.cpp (bundled by llama-cpp-python) in an environment of its own, as the baseline to measure against.
#   benchmarks/build_llamacpp.sh [FOLDER]      default: ~/.cache/octavo-baseline; left alone where it works already
# It is built for the instruction sets that this processor names, but never with AMX: in virtual machines its tile
# instructions have been seen to fail. Needs a C++ compiler and some ten minutes on two cores.
set -euo pipefail

folder="${1:-$HOME/.cache/octavo-baseline}"
version=0.3.36

if [ -x "$folder/bin/python" ] && "$folder/bin/python" -c 'import llama_cpp' 2>/dev/null; then
    echo "$folder"
    exit 0
fi

# name in /proc/cpuinfo : name in llama.cpp's build
sets="sse4_2:SSE42 avx:AVX avx2:AVX2 fma:FMA f16c:F16C bmi2:BMI2 avx_vnni:AVX_VNNI
      avx512f:AVX512 avx512_vbmi:AVX512_VBMI avx512_vnni:AVX512_VNNI avx512_bf16:AVX512_BF16"
if [ "$(uname -m)" = x86_64 ]; then
    flags="-DGGML_NATIVE=OFF"
    for pair in $sets; do
        if grep --quiet --word-regexp --max-count=1 "${pair%%:*}" /proc/cpuinfo; then
            flags="$flags -DGGML_${pair##*:}=ON"
        else
            flags="$flags -DGGML_${pair##*:}=OFF"
        fi
    done
else
    flags="-DGGML_NATIVE=ON"
fi

python3 -m venv "$folder"
"$folder/bin/pip" --quiet install --upgrade pip cmake ninja
CMAKE_ARGS="$flags" CMAKE_BUILD_PARALLEL_LEVEL="$(nproc)" \
    "$folder/bin/pip" --quiet install --no-binary llama-cpp-python "llama-cpp-python==$version"
echo "$folder"
