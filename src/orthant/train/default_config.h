// The embedded default run: a small trimodal classifier on generated data that reaches its best accuracy within about a
// minute on two cores.
#pragma once

namespace orthant {

inline constexpr const char* kDefaultConfig = R"({
 "name": "trimodal-demo", "seed": 0,
 "model": {"kind": "trimodal",
           "primary": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128,
                       "vocab_size": 512, "max_position_embeddings": 64, "hidden_dropout_prob": 0.0,
                       "attention_probs_dropout_prob": 0.0},
           "secondary": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128,
                         "vocab_size": 512, "max_position_embeddings": 64, "hidden_dropout_prob": 0.0,
                         "attention_probs_dropout_prob": 0.0},
           "tabular": {"input_dim": 8, "hidden_dim": 32},
           "fusion": {"hidden_size": 64, "dropout": 0.1},
           "pooling": "pooler", "projection": 32, "num_labels": 2},
 "data": {"kind": "trimodal_demo", "sequence_length": 32, "secondary_length": 24, "samples": 8192, "eval_fraction": 0.25},
 "optimizer": {"kind": "adamw", "lr": 1e-3, "betas": [0.9, 0.98], "weight_decay": 0.01, "clip": 1.0},
 "lr_schedule": {"kind": "cosine", "warmup_steps": 30, "final_fraction": 0.05},
 "train": {"global_batch_size": 64, "steps": 500, "eval_every": 100},
 "parallel": {"microbatches": 1}
})";

}  // namespace orthant
