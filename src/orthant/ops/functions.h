// The operations as a family records them. Each takes values of one recorder and gives values of it. Pure.
#pragma once

#include <string>
#include <vector>

#include "orthant/graph/heads.h"
#include "orthant/graph/recorder.h"
#include "orthant/graph/spec.h"

namespace orthant::ops {

// x * rsqrt(mean(x^2) + eps) * weight, per token. `remade`: backward makes it again, whatever else it keeps.
Value rms_norm(Recorder& r, Value x, const std::string& weight, double eps, bool remade = false);
// (x - mean) * rsqrt(variance + eps) * weight + bias.
Value layer_norm(Recorder& r, Value x, const std::string& weight, const std::string& bias, double eps);

// A weight [out, in] of the unit, and its bias. `joined`: the names are labels of parameters that lie side by side.
struct LinearParameters {
  std::string weight;
  std::string bias = {};  // empty: none
  std::int64_t out = 0;
  bool joined = false;
};
Value linear(Recorder& r, Value x, const LinearParameters& parameters);

using orthant::Heads;

// RMSNorm of every head of queries by one weight and of every head of keys by another, [head_size] each; values stay.
struct HeadNorm {
  std::string query;
  std::string key;
  double eps = 0;
};
Value head_norm(Recorder& r, Value qkv, const Heads& heads, const HeadNorm& norm);

// How queries and keys are turned by their positions. `scaling`: as_numbers() of models/rope.h; none when empty.
struct Rotary {
  double theta = 10000;
  std::int64_t max_positions = 0;
  std::vector<double> scaling = {};
};
// `documents` per token: the position in its row where its document begins, from which positions count; id -1: the
// row's first.
Value rotary(Recorder& r, Value qkv, const Heads& heads, const Rotary& rotary, Value documents = {});

struct AttentionKind {
  bool causal = false;
  double dropout = 0;  // of the probabilities
  std::string site = {};
  std::int64_t window = 0;  // of a causal one: a token sees so many, itself and those before it; 0: all
};
// `mask` per token, true = attend; id -1: none. `documents` as for rotary: tokens see their own one.
Value attention(Recorder& r, Value qkv, Value mask, const Heads& heads, const AttentionKind& kind,
                Value documents = {});

// Of activations by name (swiglu, gelu, gelu_tanh, relu, silu, tanh), with a dropout of the result where p > 0. swiglu
// takes gates, then ups.
Value activation(Recorder& r, Value x, const std::string& kind, double p = 0, const std::string& site = {});

// What routers are trained by besides: see ops/experts/router_loss.h. Of the tokens whose label counts.
struct RouterLoss {
  double balance = 0;
  double z = 0;
};

// A mixture of experts, each an MLP with swiglu; see Note [Routed rows] in ops/experts/rule.cpp. The weights of experts
// are joined parameters: gates and ups of expert 0, then of expert 1, [count x 2 inner, channels]; likewise what leads
// back, [count x channels, inner].
struct Experts {
  std::string router;  // a weight [count, channels]: the softmax of its products are the experts' scores
  std::string inputs;
  std::string outputs;
  std::int64_t count = 1;
  std::int64_t per_token = 1;  // experts that take a token: those with the highest scores, of equal ones the first
  std::int64_t inner = 1;
  bool normalised = true;  // scores of those that take a token are divided by their sum
  bool sigmoid = false;    // scores are sigmoids instead
  // Experts lie in `groups` of neighbours; only those of groups_taken may take a token: those whose two best scores
  // have the largest sum.
  std::int64_t groups = 1;
  std::int64_t groups_taken = 1;
  double scaling = 1;  // of the scores of those that take a token
  // Slots of one row that an expert has room for; 0: for all. See Note [Capacity] in ops/experts/capacity.h.
  std::int64_t capacity = 0;
  std::string bias = {};  // a parameter [count], added to scores to choose experts by, and to nothing else; or none
  RouterLoss loss = {};
};
struct RoutedTokens {
  Value y;
  Value loss;  // a scalar; id -1: none
};
// With `labels` there is a loss, and what experts take of the tokens whose label counts is told (Pass::expert_loads).
RoutedTokens experts(Recorder& r, Value x, const Experts& kind, Value labels = {});
// The same in three parts: what is recorded between them runs while tokens travel to experts, and back.
struct SentTokens {
  std::vector<Dim> tokens = {};
  Value rows = {};
  Value weights = {};
  Value places = {}, slots = {}, counts = {}, held = {};
  Value loss = {};
  bool drops = false;
};
SentTokens send_to_experts(Recorder& r, Value x, const Experts& kind, Value labels = {});
SentTokens run_experts(Recorder& r, SentTokens sent, const Experts& kind);
RoutedTokens combine(Recorder& r, const SentTokens& sent);
// Every token times the sigmoid of its gate, one number per token.
Value token_gate(Recorder& r, Value x, Value gate);

Value add(Recorder& r, Value a, Value b);
// x itself where p is 0.
Value dropout(Recorder& r, Value x, double p, const std::string& site);

// One table of an embedding: ids per token, or the token's position in its row or in its document.
struct Lookup {
  enum class By { ids, positions, document_positions, counted_positions, zeros };
  Value ids = {};  // of By::ids and counted_positions; of document_positions where documents begin, as for rotary
  By by = By::ids;
  std::string table;
  std::int64_t entries = 0;
  std::int64_t padding = 0;  // counted_positions: the id that is not counted
  std::int64_t first = 0;    // counted_positions: of the first counted token
};
Value embedding(Recorder& r, const std::vector<Lookup>& lookups, std::int64_t channels);

// x * scale + sines and cosines of the token's position.
Value add_waves(Recorder& r, Value x, double scale);

// Position 0 of every row.
Value first_token(Recorder& r, Value x);
Value concat(Recorder& r, const std::vector<Value>& values);
// To the dtype of the computation.
Value convert(Recorder& r, Value x);

struct LossKind {
  std::int64_t classes = 0;
  std::vector<double> class_weights = {};
};
// The weighted sum over labels of -log softmax(logits).
Value cross_entropy(Recorder& r, Value logits, Value labels, const LossKind& kind);

// A user's own code with all of the unit's parameters, see nn/module_code.h. `splits_backward`: it has a part of its
// backward that makes gradients of weights alone.
Body module_body(const UnitSpec& unit, bool splits_backward = false);

}  // namespace orthant::ops
