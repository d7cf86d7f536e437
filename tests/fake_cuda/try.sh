#!/usr/bin/env bash
# Builds the stand-in driver and NVRTC, and runs the kernels of `kernels/` by them. The libraries and
# compiled kernels stay in FOLDER (a temporary one by default).
# usage: tests/fake_cuda/try.sh [FOLDER]
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
if [ $# -gt 0 ]; then
    mkdir -p "$1"
    folder="$(cd "$1" && pwd)"
else
    folder="$(mktemp -d)"
    trap 'rm -rf "$folder"' EXIT
fi
cc=(cc -O1 -Wall -Wextra -pthread)
"${cc[@]}" -shared -fPIC "$here/cuda.c" -o "$folder/libcuda.so.1" -Wl,-soname,libcuda.so.1
"${cc[@]}" -shared -fPIC "$here/nvrtc.c" "$here/fibers.c" -o "$folder/libnvrtc.so" -Wl,-soname,libnvrtc.so
cp "$here/device.h" "$here/fibers.h" "$folder/"
"${cc[@]}" "$here/try.c" -o "$folder/try" -L"$folder" -l:libcuda.so.1 -lnvrtc -lm
export LD_LIBRARY_PATH="$folder" FAKE_CUDA_SM=75 FAKE_CUDA_NAME="NVIDIA GeForce GTX 1660 of the tests" FAKE_CUDA_SMS=1
export FAKE_CUDA_DRIVER=12080 FAKE_CUDA_FILL=255 FAKE_CUDA_CACHE="$folder/kernels" FAKE_CUDA_LOG="$folder/log"
"$folder/try" "$here/kernels"
