// Units of all models on one rank, whole and in all ways over tp, in an executor whose memory is read between actions:
// for tests of what specs and the planner state about the runtime.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "orthant/layout/context_policy.h"
#include "orthant/layout/tensor_policy.h"
#include "orthant/models/bert/config.h"
#include "orthant/models/bert/tower.h"
#include "orthant/models/encoder_lm/config.h"
#include "orthant/models/gpt2/config.h"
#include "orthant/models/head_loss.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/mistral/config.h"
#include "orthant/models/model_config.h"
#include "orthant/models/presets.h"
#include "orthant/models/qwen3/config.h"
#include "orthant/models/trimodal/config.h"
#include "orthant/parallel/context/group_context.h"
#include "orthant/parallel/tensor/group_axis.h"
#include "orthant/program/cost.h"
#include "orthant/runtime/executor.h"
#include "orthant/runtime/unit.h"
#include "orthant/train/memory.h"
#include "orthant/train/memory_use.h"

namespace orthant::test {

// Reads the live bytes at every reduce action of a list, and the most since the one before.
class LiveBytes : public ParameterKeeper {
 public:
  void reduce(int, int) override {
    auto& allocator = install_counting_allocator();
    bytes.push_back(allocator.live_bytes());
    peaks.push_back(allocator.peak_bytes());
    allocator.reset_peak();
  }
  std::vector<std::int64_t> bytes;
  std::vector<std::int64_t> peaks;
};

struct Model {
  std::string name;
  ModelConfig config;
  WorkSize work;
  int tp_degree = 1;  // that its heads allow
  int cp_degree = 1;
  ContextPolicy context = {};   // of cp
  int cp_coordinate = 0;        // of the rank that is looked at
  std::int64_t chunk_rows = 0;  // head and loss are one unit, of chunks of so many tokens; 0: they are two
};

template <typename Config>
Config sized(std::int64_t layers, std::int64_t heads) {
  Config config;
  config.hidden_size = 96;
  config.num_hidden_layers = layers;
  config.num_attention_heads = heads;
  config.intermediate_size = 200;
  config.vocab_size = 100;
  config.max_position_embeddings = 64;
  return config;
}

inline BertConfig tower(std::int64_t layers, double attention_dropout) {
  auto config = sized<BertConfig>(layers, 3);
  config.attention_probs_dropout_prob = attention_dropout;
  return config;
}

inline LlamaConfig llama(bool tied) {
  auto config = sized<LlamaConfig>(3, 6);
  config.num_key_value_heads = 2;
  config.tie_word_embeddings = tied;
  return config;
}

inline TrimodalConfig trimodal(double attention_dropout, bool shared, bool tabular) {
  TrimodalConfig config;
  config.primary = tower(2, attention_dropout);
  config.secondary = tower(shared ? 2 : 3, attention_dropout);
  config.shared_towers = shared;
  if (tabular) config.tabular = TabularConfig{8, 16};
  config.projection = 24;
  return config;
}

inline TrimodalConfig trimodal_without_dropout(Pooling pooling, bool projected) {
  TrimodalConfig config = trimodal(0.0, false, true);
  config.primary.hidden_dropout_prob = config.secondary.hidden_dropout_prob = config.fusion.dropout = 0;
  config.pooling = pooling;
  if (!projected) config.projection = std::nullopt;
  return config;
}

inline BertModelConfig bert(ActivationFunction activation) {
  BertModelConfig config;
  config.encoder = tower(3, 0.1);
  config.encoder.hidden_act = activation;
  return config;
}

inline Gpt2Config gpt2(bool tied, double dropout) {
  auto config = sized<Gpt2Config>(3, 3);
  config.tie_word_embeddings = tied;
  config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = dropout;
  return config;
}

inline EncoderLmConfig encoder_lm(double dropout) {
  auto config = sized<EncoderLmConfig>(3, 3);
  config.dropout = dropout;
  return config;
}

inline LlamaConfig llama_with_biases() {
  LlamaConfig config = llama(false);
  config.attention_bias = config.mlp_bias = true;
  return config;
}

inline LlamaConfig qwen3(bool biases) {
  LlamaConfig config = llama(false);
  config.variant = &kQwen3;
  config.head_dim = 10;
  config.attention_bias = biases;
  return config;
}

inline LlamaConfig mistral(double dropout) {
  LlamaConfig config = llama(false);
  config.variant = &kMistral;
  config.sliding_window = 24;
  config.attention_dropout = dropout;
  return config;
}

// Of `rows` rows: few are quick, many make parameters small beside activations.
inline std::vector<Model> models(std::int64_t rows) {
  const WorkSize work{.rows = rows, .sequence = 64};
  const WorkSize wide{.rows = std::max<std::int64_t>(2, rows / 2), .sequence = 64, .compute = DType::float64};
  const WorkSize narrow{.rows = rows, .sequence = 64, .compute = DType::bfloat16};
  return {{"Llama", llama(false), work, 2},
          {"LlamaTied", llama(true), work, 6},
          {"LlamaFloat64", llama(false), wide},
          {"LlamaBfloat16", llama(false), narrow, 2},
          {"LlamaWithBiases", llama_with_biases(), work, 2},
          {"Qwen3", qwen3(false), work, 2},
          {"Qwen3CopiedKeys", qwen3(true), work, 6},
          {"Qwen3Bfloat16", qwen3(false), narrow, 2},
          {"Mistral", mistral(0.1), work, 2},
          {"MistralBfloat16", mistral(0), narrow, 2},
          {"Bert", bert(ActivationFunction::gelu), work, 3},
          {"BertRelu", bert(ActivationFunction::relu), wide},
          {"BertBfloat16", bert(ActivationFunction::gelu), narrow, 3},
          {"Gpt2", gpt2(true, 0.1), work, 3},
          {"Gpt2Untied", gpt2(false, 0.1), wide},
          {"Gpt2WithoutDropout", gpt2(true, 0.0), work},
          {"Gpt2Bfloat16", gpt2(true, 0.1), narrow, 3},
          {"EncoderLm", encoder_lm(0.2), work, 3},
          {"EncoderLmWithoutDropout", encoder_lm(0.0), wide},
          {"EncoderLmBfloat16", encoder_lm(0.2), narrow, 3},
          {"Trimodal", trimodal(0.0, false, true), work, 3},
          {"TrimodalAttentionDropout", trimodal(0.1, false, true), work},
          {"TrimodalSharedTowers", trimodal(0.0, true, true), work, 3},
          {"TrimodalWithoutTable", trimodal(0.0, false, false), work},
          {"TrimodalBfloat16", trimodal(0.1, false, true), narrow, 3},
          {"TrimodalFirstPositions", trimodal_without_dropout(Pooling::cls, false), work, 3},
          {"TrimodalProjectedFirstPositions", trimodal_without_dropout(Pooling::cls, true), work},
          {"TrimodalWithoutProjection", trimodal_without_dropout(Pooling::pooler, false), wide}};
}

// Each kind of head over a vocabulary once, as one unit with the loss. 8 or 4 rows of 64 tokens are no multiple of
// chunks.
inline std::vector<Model> joined_models(std::int64_t rows) {
  const std::set<std::string> kept = {"Llama", "LlamaTied", "LlamaBfloat16", "Bert", "Gpt2Untied", "EncoderLm"};
  std::vector<Model> joined;
  for (auto& model : models(rows)) {
    if (!kept.contains(model.name)) continue;
    model.name += "Joined";
    model.chunk_rows = 100;
    joined.push_back(model);
  }
  return joined;
}

// Each model alone, and in all ways over tp that it allows.
inline std::vector<Model> models_over_tp(std::int64_t rows) {
  std::vector<Model> all;
  auto each = models(rows);
  for (auto& model : joined_models(rows)) each.push_back(std::move(model));
  for (const auto& model : each) {
    all.push_back(model);
    if (model.tp_degree == 1) continue;
    const auto add = [&](const char* name, bool sequence_parallel, bool regather, bool loss_parallel) {
      all.push_back(model);
      all.back().name += name;
      all.back().work.tensor = {model.tp_degree, sequence_parallel, regather, loss_parallel};
    };
    add("OverTp", false, false, false);
    add("OverTpLoss", false, false, true);
    add("OverTpSequence", true, false, false);
    add("OverTpSequenceLoss", true, false, true);
    add("OverTpSequenceRegather", true, true, true);
  }
  return all;
}

inline GraphSpec joined_graph(const Model& model, GraphSpec graph) {
  if (model.chunk_rows == 0) return graph;
  return join_head_and_loss(std::move(graph), {.join = JoinHeadAndLoss::on, .chunk_rows = model.chunk_rows});
}

inline TensorPolicy policy_of(const WorkSize& work) {
  return {.sequence_parallel = work.tensor.sequence_parallel,
          .loss_parallel = work.tensor.loss_parallel,
          .regather = work.tensor.regather};
}

// The last rank of the tensor axis, which has the largest parts, at a coordinate of cp; its peers answer nothing: what
// it keeps is what it would keep among them.
struct LoneRank {
  LoneRank(const GraphSpec& graph, const Model& model) {
    const int tp = model.work.tensor.degree;
    rank = model.cp_coordinate * tp + tp - 1;
    if (tp * model.cp_degree == 1) return;
    mesh = Mesh({{Axis::cp, model.cp_degree}, {Axis::tp, tp}});
    comm::CommOptions options;
    options.backend = comm::BackendKind::fake;
    std::vector<comm::GroupRequest> groups;
    for (const Axis shared : {Axis::cp, Axis::tp}) {
      groups.push_back({shared, comm::Purpose::gradients});
      groups.push_back({shared, comm::Purpose::activations});
    }
    communicator =
        std::make_unique<comm::Communicator>(mesh, rank, std::nullopt, options, groups, copy_groups(graph, mesh));
    if (tp > 1) {
      axis = std::make_unique<GroupAxis>(communicator->group(Axis::tp, comm::Purpose::activations), *graph.tensor);
    }
    if (model.cp_degree == 1) return;
    context = std::make_unique<GroupContext>(communicator->group(Axis::cp, comm::Purpose::activations), graph.context);
  }

  int rank;
  Mesh mesh;
  std::unique_ptr<comm::Communicator> communicator;
  std::unique_ptr<GroupAxis> axis;
  std::unique_ptr<GroupContext> context;
};

// So that a unit which computes with a field makes a tensor of its own, to be counted.
inline at::ScalarType other_type(DType dtype) {
  return dtype == DType::float32 ? at::kDouble : at::kFloat;
}

inline Microbatch rows_for(const GraphSpec& graph) {
  Microbatch rows;
  for (const auto& field : graph.batch_fields) {
    rows.fields[field.name] = field.dtype == DType::boolean ? at::ones(field.shape, at::kBool)
                              : field.dtype == DType::int64 ? at::zeros(field.shape, at::kLong)
                                                            : at::ones(field.shape, other_type(field.dtype));
  }
  return rows;
}

inline StoreOptions unsharded(const comm::Communicator* communicator) {
  StoreOptions options;
  options.policy.zero = 0;
  options.communicator = communicator;
  return options;
}

// As a trainer has it.
inline GraphSpec trained_graph_of(const Model& model) {
  GraphSpec graph = joined_graph(
      model, resolved_graph(build_spec(model.config, model.work), policy_of(model.work), model.work.tensor.degree));
  if (model.cp_degree == 1) return graph;
  graph = with_shared_rows(std::move(graph), model.context, model.cp_degree);
  add_costs(graph);
  return graph;
}

class SpecAgainstRuntime : public testing::TestWithParam<Model> {
 protected:
  // oneDNN, where a CPU has the instructions it asks for, takes scratch memory per thread that is no tensor of a step.
  static void SetUpTestSuite() {
    install_counting_allocator();
    at::globalContext().setUserEnabledMkldnn(false);
  }
  static void TearDownTestSuite() { at::globalContext().setUserEnabledMkldnn(true); }

  SpecAgainstRuntime()
      : graph(trained_graph_of(GetParam())),
        lone(graph, GetParam()),
        store(
            graph, lone.mesh, lone.rank, {GetParam().work.compute, GetParam().work.compute, GetParam().work.compute},
            [](std::int64_t n, at::ScalarType type) { return at::zeros({n}, at::TensorOptions().dtype(type)); },
            unsharded(lone.communicator.get())),
        units(build_units(store, tables)) {
    store.initialise(0);
  }

  // More than before the list, at each of its reduce actions.
  std::vector<std::int64_t> measured(Recompute mode, const std::vector<Action>& actions) {
    const std::vector<Microbatch> rows = {rows_for(graph)};
    LiveBytes live;
    if (!warm) {  // tables and other things that are made once
      Executor(graph, units, mode, Peers{.tensor = lone.axis.get(), .context = lone.context.get()})
          .train(actions, rows, {}, &live);
    }
    warm = true;
    live.bytes.clear();
    Executor executor(graph, units, mode, Peers{.tensor = lone.axis.get(), .context = lone.context.get()});
    const auto before = live_memory_bytes();
    executor.train(actions, rows, {}, &live);
    for (auto& bytes : live.bytes) bytes -= before;
    return live.bytes;
  }

  // Beside what there was before it: the most that each action of a list takes.
  std::vector<std::int64_t> taken(Recompute mode, const std::vector<Action>& actions) {
    std::vector<Action> marked;
    for (const auto& action : actions) {
      marked.push_back({.kind = ActionKind::reduce, .unit = 0});
      marked.push_back(action);
    }
    marked.push_back({.kind = ActionKind::reduce, .unit = 0});
    Executor executor(graph, units, mode, Peers{.tensor = lone.axis.get(), .context = lone.context.get()});
    const std::vector<Microbatch> rows = {rows_for(graph)};
    LiveBytes live;
    if (!warm) executor.train(marked, rows, {}, &live);
    warm = true;
    live = {};
    executor.train(marked, rows, {}, &live);
    std::vector<std::int64_t> most;
    for (std::size_t i = 0; i < actions.size(); ++i) most.push_back(live.peaks[i + 1] - live.bytes[i]);
    return most;
  }

  // The most of what a spec leaves out: own ids of each table, and rotary tables in the float32 that narrow types
  // compute in, which hang on the graph of a layer that cuts its tokens.
  std::int64_t uncounted(const UnitSpec& unit) const {
    constexpr std::int64_t kTables = 3;
    const WorkSize& work = GetParam().work;
    // A host has its number per token in float64; and there is the loss's own gradient.
    if (unit.logits) return work.rows * work.sequence * bytes_of(DType::float64);
    if (!work.tensor.sequence_parallel) return 0;
    if (unit.kind.ends_with(".embed")) return kTables * work.rows * work.sequence * bytes_of(DType::int64);
    if (unit.kind != "llama.layer" || work.compute != DType::bfloat16) return 0;
    return work.sequence * get<LlamaConfig>(GetParam().config).head_size() * bytes_of(DType::float32);
  }

  int num_units() const { return static_cast<int>(graph.units.size()); }
  std::vector<Action> forwards() const {
    std::vector<Action> actions;
    for (int u = 0; u < num_units(); ++u) actions.push_back({.kind = ActionKind::forward, .unit = u, .microbatch = 0});
    return actions;
  }

  GraphSpec graph;
  LoneRank lone;
  Tables tables;
  ParameterStore store;
  std::vector<std::unique_ptr<Unit>> units;
  bool warm = false;
};

}  // namespace orthant::test
