// What an implementation keeps, moves and hides, as data: `orthant` is priced from the model's own spec and the lists
// its runtime executes; the others (megatron, nanotron, torchtitan) describe the programs behind published figures by
// bytes per element. Presets by name, or a JSON file with the same keys; formula_work() turns them into a unit's work.
#pragma once

#include <string>
#include <vector>

namespace orthant {

struct Stack {
  std::string name;
  std::string description;
  bool runs_here = false;  // orthant: what follows serves only shapes that exist on paper

  // Bytes per parameter that a rank has. Of gradients --grads says one copy; these are others.
  double parameter_bytes = 2;
  double extra_gradient_bytes = 0;  // a 16-bit copy beside the one that is summed
  double optimizer_bytes = 12;      // master, two moments

  // Units, all as large as the largest, whose parameters, and whose gradients, are whole at one time with zero 3.
  double whole_units = 2;
  double whole_gradients = 2;
  bool keeps_gathered = false;  // with several stages they all stay whole through a step, gradients too

  // Bytes that a layer keeps from forward to backward, per element.
  double norm_input = 2;       // per hidden channel and norm: its input, and copies of it in other dtypes
  double norm_statistic = 0;   // per token and number that a norm keeps: one, two where it has biases
  double column_input = 2;     // per hidden channel and column product (query, key, value; the first of the MLP)
  double dropout_mask = 1;     // per hidden channel and residual branch, where the model has dropout
  double projection = 2;       // per channel of query, key, value and the heads' output
  double score = 2;            // per head and pair of positions; none with fused attention or selective recompute
  double score_dropout = 3;    // likewise, where the model has dropout: mask and what it leaves
  double score_statistic = 0;  // per head and position, with fused attention
  double plain_channel = 4;    // per inner channel of an MLP without gate
  double gated_channel = 8;    // likewise of one with a gate
  double routed_token = 4;     // per hidden channel of each token that experts take: their input and output
  bool regathers = true;       // under sequence parallelism column inputs are kept cut and gathered again
  bool selective_keeps_heads = true;  // selective recompute makes scores again, not the heads' output
  bool recomputes_ops = false;        // has recompute `op`: the layer's input and every second product are kept

  // Outside of layers.
  double embedding_mask = 1;     // per hidden channel, where the model has dropout
  double head_input = 2;         // per hidden channel of the norm's input, and of the product's
  double logit = 4;              // per token and word, from forward to backward
  double logit_working = 0;      // likewise, besides, while the loss runs
  double cut_logit_working = 0;  // and more of it where words are cut over tp
  bool cuts_loss = true;         // the loss works on cut words whatever the settings say
  double padded_words = 1;       // the vocabulary is rounded up to a multiple of this on each tp rank

  // Bytes that kernels without products move in a forward, per element as above.
  double moved_hidden = 22;     // norms, dropout, residual sums
  double moved_projection = 0;  // rotation, transposing
  double moved_score = 4;       // without fused attention
  double moved_score_dropout = 5;
  double moved_plain_channel = 4;
  double moved_gated_channel = 6;
  double moved_logit = 20;
  double moved_in_backward = 2;  // times what a forward moves
  double accumulate_moved = 0;   // per parameter and microbatch, by a kernel that adds gradients; 0: within the product

  double reserve_bytes = 0;  // instead of the card's where published figures count tensors alone
  double reserve_share = 0;

  bool causal_flops = false;        // model FLOPs count the half of attention that a causal mask leaves
  bool scatters_messages = false;   // each tp rank sends its part of what travels between stages
  bool overlaps_gradients = false;  // sums of gradients travel beside the last backward
  bool overlaps_messages = false;   // of stages
  bool overlaps_exchanges = false;  // in backward, of column products: beside the products of weights' gradients
  double gathers_per_unit = 1;      // calls per unit with zero 3
  double gather_share = 1;          // of what collectives reach of a link, with zero 3
  double optimizer_moved = 30;      // bytes per parameter in an update
  friend bool operator==(const Stack&, const Stack&) = default;
};

std::vector<std::string> stack_names();

// A preset by name, or a JSON file where the text has a '/' or ends in ".json"; one that says `preset` gives only what
// differs. ConfigError with the nearest name.
Stack find_stack(const std::string& name_or_path);

}  // namespace orthant
