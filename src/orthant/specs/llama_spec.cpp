#include <fmt/format.h>

#include <utility>

#include "orthant/specs/llama.h"
#include "orthant/specs/parameter_kinds.h"
#include "orthant/specs/unit_cost.h"

namespace orthant {
namespace {

class LlamaBuilder {
 public:
  LlamaBuilder(const LlamaConfig& config, const WorkSize& work)
      : config_(config), work_(work), kept_(work.compute), tokens_({work.rows, work.sequence}) {}

  GraphSpec build() {
    spec_.name = "llama";
    spec_.batch_fields = {batch_field("input_ids", tokens_, DType::int64),
                          batch_field("labels", tokens_, DType::int64)};
    add_embed();
    for (std::int64_t i = 0; i < config_.num_hidden_layers; ++i) add_layer(i);
    add_head();
    append_cross_entropy(spec_, work_);
    spec_.check();
    return std::move(spec_);
  }

 private:
  Shape per_token(std::int64_t channels) const { return {work_.rows, work_.sequence, channels}; }
  double num_tokens() const { return static_cast<double>(num_elements(tokens_)); }
  double weight_flops(const UnitSpec& unit) const;  // products of all its own matrices with every token

  void add_embed();
  void add_layer(std::int64_t index);
  void add_head();
  void add(UnitSpec unit, ValueSpec output);
  ValueSpec hidden(std::int64_t index) const;
  std::vector<ParameterSpec> layer_parameters(const std::string& layer) const;
  UnitCost layer_cost(double products) const;

  const LlamaConfig& config_;
  const WorkSize& work_;
  KeptBytes kept_;
  Shape tokens_;
  GraphSpec spec_;
};

double LlamaBuilder::weight_flops(const UnitSpec& unit) const {
  double flops = 0;
  for (const auto& parameter : unit.parameters) {
    if (parameter.shape.size() != 2) continue;
    flops +=
        product_flops(num_tokens(), static_cast<double>(parameter.shape[0]), static_cast<double>(parameter.shape[1]));
  }
  return flops;
}

ValueSpec LlamaBuilder::hidden(std::int64_t index) const {
  ValueSpec value = activation_value(fmt::format("hidden.{}", index), per_token(config_.hidden_size), work_.compute);
  value.sequence_sharded = true;
  return value;
}

void LlamaBuilder::add(UnitSpec unit, ValueSpec output) {
  unit.cost.output_bytes = kept_.activation(output.shape);
  spec_.values.push_back(std::move(output));
  spec_.units.push_back(std::move(unit));
}

void LlamaBuilder::add_embed() {
  UnitSpec unit = make_unit("embed", "llama.embed", {"input_ids"}, {"hidden.0"});
  unit.parameters = {
      matrix("embed.weight", config_.vocab_size, config_.hidden_size, config_.initializer_range, split_dim(0))};
  add(std::move(unit), hidden(0));
}

std::vector<ParameterSpec> LlamaBuilder::layer_parameters(const std::string& layer) const {
  const std::int64_t h = config_.hidden_size;
  const std::int64_t d = config_.head_size();
  const std::int64_t query = config_.num_attention_heads * d;
  const std::int64_t key = config_.kv_heads() * d;
  const std::int64_t f = config_.intermediate_size;
  const double stddev = config_.initializer_range;
  return {matrix(layer + ".attention.wq.weight", query, h, stddev, split_dim(0, d), "qkv"),
          matrix(layer + ".attention.wk.weight", key, h, stddev, split_dim(0, d), "qkv"),
          matrix(layer + ".attention.wv.weight", key, h, stddev, split_dim(0, d), "qkv"),
          matrix(layer + ".attention.wo.weight", h, query, stddev, split_dim(1, d)),
          matrix(layer + ".mlp.w1.weight", f, h, stddev, split_dim(0), "gate_up"),
          matrix(layer + ".mlp.w3.weight", f, h, stddev, split_dim(0), "gate_up"),
          matrix(layer + ".mlp.w2.weight", h, f, stddev, split_dim(1)),
          along_sequence(norm_weight(layer + ".norm1.weight", h)),
          along_sequence(norm_weight(layer + ".norm2.weight", h))};
}

UnitCost LlamaBuilder::layer_cost(double products) const {
  const std::int64_t a = config_.num_attention_heads;
  const std::int64_t d = config_.head_size();
  const double attention =
      attention_flops(static_cast<double>(work_.rows), static_cast<double>(a), static_cast<double>(work_.sequence),
                      static_cast<double>(d), /*causal=*/true);
  UnitCost cost = product_cost(products);
  cost.forward_flops += attention;
  cost.input_flops += 2 * attention;

  const std::int64_t hidden_bytes = kept_.activation(per_token(config_.hidden_size));
  // The heads' output and its statistic, which selective recompute makes again.
  const std::int64_t heads = kept_.activation(per_token(a * d)) + kept_.statistics(per_token(a));
  const std::int64_t others = 4 * hidden_bytes  // input, sum after attention, and both normed
                              + kept_.activation(per_token((a + 2 * config_.kv_heads()) * d)) +
                              kept_.activation(per_token(2 * config_.intermediate_size)) +
                              kept_.statistics(per_token(2));
  cost.kept_bytes = {others + heads, others, hidden_bytes};
  return cost;
}

void LlamaBuilder::add_layer(std::int64_t index) {
  const std::string name = fmt::format("layers.{}", index);
  UnitSpec unit =
      make_unit(name, "llama.layer", {fmt::format("hidden.{}", index)}, {fmt::format("hidden.{}", index + 1)});
  unit.parameters = layer_parameters(name);
  unit.recomputable = true;
  unit.cost = layer_cost(weight_flops(unit));
  add(std::move(unit), hidden(index + 1));
}

void LlamaBuilder::add_head() {
  UnitSpec unit = make_unit("head", "llama.head", {fmt::format("hidden.{}", config_.num_hidden_layers)}, {"logits"});
  if (config_.tie_word_embeddings) {
    unit.borrowed = {"embed.weight"};
  } else {
    unit.parameters = {
        matrix("head.weight", config_.vocab_size, config_.hidden_size, config_.initializer_range, split_dim(0))};
  }
  unit.parameters.push_back(along_sequence(norm_weight("head.norm.weight", config_.hidden_size)));
  unit.cost = product_cost(
      product_flops(num_tokens(), static_cast<double>(config_.vocab_size), static_cast<double>(config_.hidden_size)));
  keep_always(unit.cost, 2 * kept_.activation(per_token(config_.hidden_size)) + kept_.statistics(tokens_));
  ValueSpec logits = activation_value("logits", per_token(config_.vocab_size), work_.compute);
  logits.tp = split_dim(2);
  add(std::move(unit), std::move(logits));
}

}  // namespace

GraphSpec llama_spec(const LlamaConfig& config, const WorkSize& work) {
  refuse(find_problem(config), "llama");
  refuse(check_work(work, config.max_position_embeddings), "work");
  return LlamaBuilder(config, work).build();
}

}  // namespace orthant
