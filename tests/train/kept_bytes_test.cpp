// Spec against runtime: the parameters a model really has, and the activation bytes it really keeps between forward and
// backward, are those its spec states.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "orthant/layout/local_parameter.h"
#include "orthant/layout/tensor_policy.h"
#include "orthant/models/build.h"
#include "orthant/parallel/tensor/group_axis.h"
#include "orthant/runtime/executor.h"
#include "orthant/specs/presets.h"
#include "orthant/train/memory.h"
#include "orthant/train/memory_use.h"

namespace orthant {
namespace {

// Reads the live bytes when the list comes to its reduce action: all forwards done, no backward yet.
class LiveBytes : public ParameterKeeper {
 public:
  void reduce(int, int) override { bytes = live_memory_bytes(); }
  std::int64_t bytes = 0;
};

struct Model {
  std::string name;
  ModelConfig config;
  WorkSize work;
  int tp_degree = 1;  // that its heads allow
};

BertConfig tower(std::int64_t layers, double attention_dropout) {
  BertConfig config;
  config.hidden_size = 96;
  config.num_hidden_layers = layers;
  config.num_attention_heads = 3;
  config.intermediate_size = 200;
  config.vocab_size = 100;
  config.max_position_embeddings = 64;
  config.attention_probs_dropout_prob = attention_dropout;
  return config;
}

LlamaConfig llama(bool tied) {
  LlamaConfig config;
  config.hidden_size = 96;
  config.num_hidden_layers = 3;
  config.num_attention_heads = 6;
  config.num_key_value_heads = 2;
  config.intermediate_size = 200;
  config.vocab_size = 100;
  config.max_position_embeddings = 64;
  config.tie_word_embeddings = tied;
  return config;
}

TrimodalConfig trimodal(double attention_dropout, bool shared, bool tabular) {
  TrimodalConfig config;
  config.primary = tower(2, attention_dropout);
  config.secondary = tower(shared ? 2 : 3, attention_dropout);
  config.shared_towers = shared;
  if (tabular) config.tabular = TabularConfig{8, 16};
  config.projection = 24;
  return config;
}

BertModelConfig bert(Activation activation) {
  BertModelConfig config;
  config.encoder = tower(3, 0.1);
  config.encoder.hidden_act = activation;
  return config;
}

Gpt2Config gpt2(bool tied, double dropout) {
  Gpt2Config config;
  config.hidden_size = 96;
  config.num_hidden_layers = 3;
  config.num_attention_heads = 3;
  config.intermediate_size = 200;
  config.vocab_size = 100;
  config.max_position_embeddings = 64;
  config.tie_word_embeddings = tied;
  config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = dropout;
  return config;
}

EncoderLmConfig encoder_lm(double dropout) {
  EncoderLmConfig config;
  config.hidden_size = 96;
  config.num_hidden_layers = 3;
  config.num_attention_heads = 3;
  config.intermediate_size = 200;
  config.vocab_size = 100;
  config.max_position_embeddings = 64;
  config.dropout = dropout;
  return config;
}

LlamaConfig llama_with_biases() {
  LlamaConfig config = llama(false);
  config.attention_bias = config.mlp_bias = true;
  return config;
}

std::vector<Model> models() {
  const WorkSize work{.rows = 8, .sequence = 64};
  const WorkSize wide{.rows = 4, .sequence = 64, .compute = DType::float64};
  return {{"Llama", llama(false), work, 2},
          {"LlamaTied", llama(true), work, 6},
          {"LlamaFloat64", llama(false), wide},
          {"LlamaWithBiases", llama_with_biases(), work, 2},
          {"Bert", bert(Activation::gelu), work, 3},
          {"BertRelu", bert(Activation::relu), wide},
          {"Gpt2", gpt2(true, 0.1), work, 3},
          {"Gpt2Untied", gpt2(false, 0.1), wide},
          {"Gpt2WithoutDropout", gpt2(true, 0.0), work},
          {"EncoderLm", encoder_lm(0.2), work, 3},
          {"EncoderLmWithoutDropout", encoder_lm(0.0), wide},
          {"Trimodal", trimodal(0.0, false, true), work, 3},
          {"TrimodalAttentionDropout", trimodal(0.1, false, true), work},
          {"TrimodalSharedTowers", trimodal(0.0, true, true), work, 3},
          {"TrimodalWithoutTable", trimodal(0.0, false, false), work}};
}

// Each model alone, and in all ways over tp that it allows.
std::vector<Model> models_over_tp() {
  std::vector<Model> all;
  for (const auto& model : models()) {
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

TensorPolicy policy_of(const WorkSize& work) {
  return {.sequence_parallel = work.tensor.sequence_parallel,
          .loss_parallel = work.tensor.loss_parallel,
          .regather = work.tensor.regather};
}

// A rank of the tensor axis whose peers answer nothing: what it keeps is what it would keep among them.
struct LoneRank {
  LoneRank(const GraphSpec& graph, const WorkSize& work) {
    if (work.tensor.degree == 1) return;
    mesh = Mesh::parse("tp=" + std::to_string(work.tensor.degree));
    comm::CommOptions options;
    options.backend = comm::BackendKind::fake;
    communicator = std::make_unique<comm::Communicator>(
        mesh, 0, std::nullopt, options,
        std::vector<comm::GroupRequest>{{Axis::tp, comm::Purpose::gradients}, {Axis::tp, comm::Purpose::activations}},
        copy_groups(graph, mesh));
    axis = std::make_unique<GroupAxis>(communicator->group(Axis::tp, comm::Purpose::activations), *graph.tensor);
  }

  Mesh mesh;
  std::unique_ptr<comm::Communicator> communicator;
  std::unique_ptr<GroupAxis> axis;
};

Microbatch rows_for(const GraphSpec& graph) {
  Microbatch rows;
  for (const auto& field : graph.batch_fields) {
    rows.fields[field.name] = field.dtype == DType::boolean ? at::ones(field.shape, at::kBool)
                              : field.dtype == DType::int64 ? at::zeros(field.shape, at::kLong)
                                                            : at::ones(field.shape, at::kFloat);
  }
  return rows;
}

class SpecAgainstRuntime : public testing::TestWithParam<Model> {
 protected:
  static void SetUpTestSuite() { install_counting_allocator(); }

  SpecAgainstRuntime()
      : graph(placed_graph(build_spec(GetParam().config, GetParam().work), policy_of(GetParam().work),
                           GetParam().work.tensor.degree)),
        lone(graph, GetParam().work),
        store(graph, lone.mesh, 0, {GetParam().work.compute, GetParam().work.compute, GetParam().work.compute},
              [](std::int64_t n, at::ScalarType type) { return at::zeros({n}, at::TensorOptions().dtype(type)); },
              {.policy = {.zero = 0}, .communicator = lone.communicator.get()}),
        units(build_units(GetParam().config, store, tables)) {
    store.initialise(0);
  }

  std::int64_t measured(Recompute mode) {
    Executor executor(graph, units, mode, lone.axis.get());
    const std::vector<Microbatch> rows = {rows_for(graph)};
    std::vector<Action> actions;
    for (int u = 0; u < static_cast<int>(graph.units.size()); ++u) {
      actions.push_back({.kind = ActionKind::forward, .unit = u, .microbatch = 0});
    }
    actions.push_back({.kind = ActionKind::reduce, .unit = 0});
    LiveBytes live;
    executor.train(actions, rows, {}, &live);  // tables and other things that are made once
    const auto before = live_memory_bytes();
    executor.train(actions, rows, {}, &live);
    return live.bytes - before;
  }

  GraphSpec graph;
  LoneRank lone;
  Tables tables;
  ParameterStore store;
  std::vector<std::unique_ptr<Unit>> units;
};

TEST_P(SpecAgainstRuntime, HasTheSameParameters) {
  std::map<std::string, Shape> held;
  std::int64_t elements = 0;
  for (const auto& buffer : store.buffers()) {
    for (const auto& entry : buffer->layout().entries) {
      EXPECT_TRUE(held.emplace(entry.parameter, entry.shape).second) << entry.parameter;
      elements += buffer->master_view(entry).numel();
    }
  }
  std::int64_t expected = 0;
  for (const auto& unit : graph.units) {
    for (const auto& parameter : unit.parameters) {
      const auto part = local_parameter(parameter, graph.tensor->degree, 0).shape;
      EXPECT_EQ(held.at(parameter.name), part) << parameter.name;
      expected += num_elements(part);
    }
  }
  EXPECT_EQ(elements, expected);
  if (!lone.axis) {
    EXPECT_EQ(elements, graph.num_parameters());
  }
}

TEST_P(SpecAgainstRuntime, KeepsTheBytesItStates) {
  for (const auto mode : kRecomputeModes) {
    double stated = 0;
    for (const auto& unit : graph.units) {
      stated += static_cast<double>(
          unit.cost.kept_bytes[static_cast<std::size_t>(unit.recomputable ? mode : Recompute::none)]);
    }
    const auto found = static_cast<double>(measured(mode));
    EXPECT_NEAR(found / stated, 1.0, 0.05) << recompute_name(mode) << ": kept " << found << " bytes, stated " << stated;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SpecAgainstRuntime, testing::ValuesIn(models_over_tp()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace orthant
