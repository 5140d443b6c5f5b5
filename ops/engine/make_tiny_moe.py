"""Writes a tiny mixture of experts with random weights and a real tokenizer, for a CPU.

    python make_tiny_moe.py TOKENIZER_FOLDER OUT_FOLDER

It has Qwen3-MoE's architecture with 3 layers of 8 experts, 2 of them active: 19.7 million
parameters, 39 MB, made in 5 s. Weights are the same in every run. Needs torch and transformers.

Spec: docs/engines.md#a-real-engine
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
END_OF_TURN = 151645
END_OF_TEXT = 151643


def main() -> None:
    """Write the model."""
    tokenizer, out = map(Path, sys.argv[1:3])
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=151936,
        hidden_size=64,
        intermediate_size=128,
        moe_intermediate_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        num_experts=8,
        num_experts_per_tok=2,
        decoder_sparse_step=1,
        norm_topk_prob=True,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
        # Ten times the usual: experts and tokens then differ clearly in what they are given.
        initializer_range=0.2,
        bos_token_id=END_OF_TEXT,
        eos_token_id=END_OF_TURN,
    )
    model = Qwen3MoeForCausalLM(config).to(torch.bfloat16)
    model.generation_config.eos_token_id = [END_OF_TURN, END_OF_TEXT]
    model.save_pretrained(out)
    for name in TOKENIZER_FILES:
        shutil.copy(tokenizer / name, out)


if __name__ == "__main__":
    main()
