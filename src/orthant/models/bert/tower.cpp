#include <fmt/format.h>

#include <utility>

#include "orthant/models/bert/tower.h"
#include "orthant/models/graph_parts.h"
#include "orthant/models/parameter_kinds.h"
#include "orthant/models/post_norm_body.h"
#include "orthant/ops/functions.h"

namespace orthant {
namespace {

// The name of something of a tower.
std::string under(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

class TowerBuilder {
 public:
  TowerBuilder(GraphSpec& spec, const BertTower& tower, const WorkSize& work)
      : spec_(spec),
        tower_(tower),
        config_(tower.config),
        work_(work),
        owner_(tower.borrow_from.empty() ? tower.prefix : tower.borrow_from) {}

  void build_encoder() {
    const Shape tokens = {work_.rows, work_.sequence};
    spec_.batch_fields.push_back(batch_field(tower_.ids(), tokens, DType::int64));
    spec_.batch_fields.push_back(batch_field(tower_.mask(), tokens, DType::boolean));
    if (has_token_types()) spec_.batch_fields.push_back(batch_field("token_type_ids", tokens, DType::int64));
    add_embed();
    for (std::int64_t i = 0; i < config_.num_hidden_layers; ++i) add_layer(i);
  }

  void build_pooler();

 private:
  Shape per_token(std::int64_t channels) const { return {work_.rows, work_.sequence, channels}; }
  bool has_token_types() const { return tower_.prefix.empty(); }
  std::string hidden_name(std::int64_t index) const;
  ValueSpec hidden(std::int64_t index) const;
  void add(UnitSpec unit, std::vector<ParameterSpec> parameters, ValueSpec output);

  void add_embed();
  void add_layer(std::int64_t index);
  Body embed_body() const;
  PostNormLayer layer() const;
  Body pooler_body() const;

  GraphSpec& spec_;
  const BertTower& tower_;
  const BertConfig& config_;
  const WorkSize& work_;
  std::string owner_;  // prefix of the parameters' names
  const SharedBody layer_body_ = post_norm_body(layer());
};

// BERT counts positions from 0. RoBERTa counts the ids that are not padding, whatever the mask says, from the padding's
// id + 1 on, and gives padding that id. Without token types all tokens are of type 0.
Body TowerBuilder::embed_body() const {
  Recorder r;
  const Value ids = r.field("input_ids", Sym::tokens, Number::index);
  ops::Lookup positions{.by = ops::Lookup::By::positions, .table = "position.weight"};
  if (config_.counts_tokens()) {
    positions.by = ops::Lookup::By::counted_positions;
    positions.ids = ids;
    positions.padding = config_.pad_token_id;
    positions.first = config_.position_offset;
  }
  ops::Lookup types{.by = ops::Lookup::By::zeros, .table = "token_type.weight"};
  if (has_token_types()) {
    types.by = ops::Lookup::By::ids;
    types.ids = r.field("token_type_ids", Sym::tokens, Number::index);
  }
  const Value sum = ops::embedding(
      r, {{.ids = ids, .table = "word.weight", .entries = config_.vocab_size}, positions, types}, config_.hidden_size);
  const Value normed = ops::layer_norm(r, sum, "norm.weight", "norm.bias", config_.layer_norm_eps);
  r.output(ops::dropout(r, normed, config_.hidden_dropout_prob, "dropout"));
  return r.finish();
}

PostNormLayer TowerBuilder::layer() const {
  return {.hidden = config_.hidden_size,
          .heads = config_.num_attention_heads,
          .inner = config_.intermediate_size,
          .mask = true,
          .eps = config_.layer_norm_eps,
          .activation = operation_name(config_.hidden_act),
          .attention_dropout = config_.attention_probs_dropout_prob,
          .dropout = config_.hidden_dropout_prob};
}

Body TowerBuilder::pooler_body() const {
  Recorder r;
  const std::int64_t h = config_.hidden_size;
  Value first = ops::first_token(r, r.tokens("hidden", h));
  if (tower_.pooling == Pooling::pooler) {
    first =
        ops::activation(r, ops::linear(r, first, {.weight = "dense.weight", .bias = "dense.bias", .out = h}), "tanh");
  }
  if (tower_.projection) {
    first =
        ops::linear(r, first, {.weight = "projection.weight", .bias = "projection.bias", .out = tower_.pooled_size()});
  }
  r.output(first);
  return r.finish();
}

std::string TowerBuilder::hidden_name(std::int64_t index) const {
  if (index == config_.num_hidden_layers) return tower_.last_hidden();
  return under(tower_.prefix, fmt::format("hidden.{}", index));
}

ValueSpec TowerBuilder::hidden(std::int64_t index) const {
  ValueSpec value = activation_value(hidden_name(index), per_token(config_.hidden_size), work_.compute);
  value.tokens_of = tower_.ids();
  value.sequence_sharded = true;
  return value;
}

void TowerBuilder::add(UnitSpec unit, std::vector<ParameterSpec> parameters, ValueSpec output) {
  if (tower_.borrow_from.empty()) {
    unit.parameters = std::move(parameters);
  } else {
    for (auto& parameter : parameters) unit.borrowed.push_back(std::move(parameter.name));
  }
  spec_.values.push_back(std::move(output));
  spec_.units.push_back(std::move(unit));
}

void TowerBuilder::add_embed() {
  const std::int64_t h = config_.hidden_size;
  const double stddev = config_.initializer_range;
  const std::string name = under(owner_, "embed");
  UnitSpec unit = make_unit(under(tower_.prefix, "embed"), "bert.embed", {tower_.ids()}, {hidden_name(0)});
  if (has_token_types()) unit.inputs.emplace_back("token_type_ids");
  unit.body = embed_body();
  // Only the words are cut; see Note [Cut tables] in ops/embedding/embedding_table.h.
  add(std::move(unit),
      {table(name + ".word.weight", config_.vocab_size, h, stddev, split_dim(0)),
       along_sequence(table(name + ".position.weight", config_.max_position_embeddings, h, stddev)),
       along_sequence(table(name + ".token_type.weight", config_.type_vocab_size, h, stddev)),
       along_sequence(norm_weight(name + ".norm.weight", h)), along_sequence(bias(name + ".norm.bias", h))},
      hidden(0));
}

void TowerBuilder::add_layer(std::int64_t index) {
  UnitSpec unit = make_unit(under(tower_.prefix, fmt::format("layers.{}", index)), "bert.layer",
                            {hidden_name(index), tower_.mask()}, {hidden_name(index + 1)});
  unit.recomputable = true;
  unit.body = layer_body_;
  add(std::move(unit),
      post_norm_parameters(layer(), under(owner_, fmt::format("layers.{}", index)), config_.initializer_range),
      hidden(index + 1));
}

void TowerBuilder::build_pooler() {
  const std::int64_t h = config_.hidden_size;
  const std::int64_t width = tower_.pooled_size();
  const bool dense = tower_.pooling == Pooling::pooler;
  const std::string name = under(owner_, "pooler");
  std::vector<ParameterSpec> matrices;
  std::vector<ParameterSpec> biases;
  if (dense) {
    matrices.push_back(matrix(name + ".dense.weight", h, h, config_.initializer_range));
    biases.push_back(bias(name + ".dense.bias", h));
  }
  if (tower_.projection) {
    matrices.push_back(matrix(name + ".projection.weight", width, h, config_.initializer_range));
    biases.push_back(bias(name + ".projection.bias", width));
  }
  matrices.insert(matrices.end(), biases.begin(), biases.end());
  UnitSpec unit = make_unit(under(tower_.prefix, "pooler"), "bert.pooler", {tower_.last_hidden()}, {tower_.pooled()});
  unit.body = pooler_body();
  add(std::move(unit), std::move(matrices), activation_value(tower_.pooled(), {work_.rows, width}, work_.compute));
}

}  // namespace

std::string_view pooling_name(Pooling pooling) {
  return pooling == Pooling::pooler ? "pooler" : "cls";
}

std::string BertTower::last_hidden() const {
  return prefix.empty() ? "last_hidden_state" : fmt::format("{}.hidden.{}", prefix, config.num_hidden_layers);
}

void append_bert_encoder(GraphSpec& spec, const BertTower& tower, const WorkSize& work) {
  const std::string owner = tower.prefix.empty() ? "bert" : tower.prefix;
  refuse(find_problem(tower.config), owner);
  refuse_work(work, tower.config.max_sequence(), tower.prefix);
  TowerBuilder(spec, tower, work).build_encoder();
}

void append_bert_pooler(GraphSpec& spec, const BertTower& tower, const WorkSize& work) {
  if (tower.projection) refuse(check_width("projection", *tower.projection), tower.prefix);
  TowerBuilder(spec, tower, work).build_pooler();
}

void append_bert_tower(GraphSpec& spec, const BertTower& tower, const WorkSize& work) {
  append_bert_encoder(spec, tower, work);
  append_bert_pooler(spec, tower, work);
}

}  // namespace orthant
