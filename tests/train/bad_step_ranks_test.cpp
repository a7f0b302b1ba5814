// A step with a value that is not finite changes nothing on any rank and is explained: the rank, the unit and the
// parameter where it arose, on meshes of every kind.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "orthant/data/loader.h"
#include "orthant/runtime/finite_watch.h"
#include "orthant/train/datasets.h"
#include "orthant/train/whole_tensors.h"
#include "train/training_ranks.h"

namespace orthant {
namespace bad_step_ranks_test {

struct Fault {
  std::string poison;  // without step and value
  std::string expected;
  bool lasting = false;
};

std::vector<Fault> usual_faults(int rank, const std::string& layer) {
  return {{fmt::format("activation:rank={},unit={}", rank, layer),
           fmt::format("rank {}, unit {}: its output is not finite", rank, layer)},
          {fmt::format("gradient:rank={},unit={},parameter={}.attention.wo.weight", rank, layer, layer),
           fmt::format("rank {0}, unit {1}: the gradient of {1}.attention.wo.weight is not finite", rank, layer)},
          {fmt::format("gradient:rank={},unit={},parameter={}.norm2.weight", rank, layer, layer),
           fmt::format("rank {0}, unit {1}: the gradient of {1}.norm2.weight is not finite", rank, layer)},
          {fmt::format("parameter:rank={},unit={}", rank, layer),
           fmt::format("rank {}, unit {}: parameter {}.", rank, layer, layer), true}};
}

struct Case {
  MeshCase mesh;
  std::vector<Fault> faults;
  std::vector<std::string> settings = {};
};

std::ostream& operator<<(std::ostream& out, const Case& one) {
  out << case_name(one.mesh);
  for (const auto& setting : one.settings) out << ' ' << setting;
  return out;
}

// A lasting one stays the last.
std::vector<Fault> with(std::vector<Fault> faults, const std::vector<Fault>& more) {
  faults.insert(faults.end() - 1, more.begin(), more.end());
  return faults;
}

const std::vector<Case> kCases = {
    {{"dp=1", 0}, with(usual_faults(0, "layers.1"), {{"loss:rank=0", "rank 0, unit loss: its loss is not finite"}})},
    {{"dp=1", 0},
     {{"gradient:rank=0,unit=head,parameter=embed.weight",
       "rank 0, unit head: the gradient of embed.weight is not finite"},
      {"gradient:rank=0,unit=embed", "rank 0, unit embed: the gradient of embed.weight is not finite"}},
     {"model.tie_word_embeddings=true"}},
    {{"dp=2", 0}, with(usual_faults(1, "layers.0"), {{"loss:rank=1", "rank 1, unit loss: its loss is not finite"}})},
    {{"fsdp=2", 1}, usual_faults(1, "layers.1")},
    {{"fsdp=2", 3}, with(usual_faults(1, "layers.1"), {{"loss:rank=0", "rank 0, unit loss: its loss is not finite"}})},
    {{"fsdp=2", 2}, usual_faults(1, "layers.0"), {"parallel.microbatches=2", "parallel.accumulate=sharded"}},
    {{"tp=2", 0}, with(usual_faults(1, "layers.1"), {{"loss:rank=1", "rank 1, unit loss: its loss is not finite"}})},
    {{"tp=2", 0}, usual_faults(1, "layers.0"), {"parallel.sequence_parallel=true", "parallel.loss_parallel=true"}},
    {{"pp=2", 0},
     with(usual_faults(1, "layers.1"),
          {{"loss:rank=1", "rank 1, unit loss: its loss is not finite"},
           {"gradient:rank=1,unit=head,parameter=embed.weight",
            "rank 1, unit head: the gradient of embed.weight is not finite"},
           {"gradient:rank=0,unit=embed", "rank 0, unit embed: the gradient of embed.weight is not finite"},
           {"activation:rank=0,unit=layers.0,microbatch=1", "rank 0, unit layers.0: its output is not finite"}}),
     {"parallel.microbatches=2", "model.tie_word_embeddings=true",
      "parallel.split=[[\"embed\",\"layers.0\"],[\"layers.1\",\"head\",\"loss\"]]"}},
    // A stage that has no backward.
    {{"pp=2", 0},
     {{"activation:rank=0,unit=layers.0", "rank 0, unit layers.0: its output is not finite"},
      {"activation:rank=0,unit=embed,microbatch=1", "rank 0, unit embed: its output is not finite"},
      {"activation:rank=0,unit=layers.0", "rank 0, unit layers.0: its output is not finite"}},
     {"parallel.microbatches=2", "model.freeze=[\"embed.*\",\"layers.0.*\"]",
      "parallel.split=[[\"embed\",\"layers.0\"],[\"layers.1\",\"head\",\"loss\"]]"}},
    {{"pp=2,fsdp=2,tp=2", 3},
     with(usual_faults(7, "layers.1"),
          {{"activation:rank=2,unit=embed", "rank 2, unit embed: its output is not finite"}}),
     {"parallel.microbatches=2", "parallel.split=[[\"embed\",\"layers.0\"],[\"layers.1\",\"head\",\"loss\"]]"}},
};

// Every other step has a fault, the first and the last included.
std::int64_t step_of(std::size_t fault) {
  return static_cast<std::int64_t>(2 * fault + 1);
}

RunConfig config_of(const Case& one) {
  std::vector<std::string> settings = {
      "model.num_hidden_layers=2",   "model.hidden_size=16", "model.intermediate_size=24",
      "model.num_attention_heads=2", "model.vocab_size=53",  "model.num_key_value_heads=1",
      "data.sequence_length=8",      "data.samples=320",     "data.eval_fraction=0",
      "train.global_batch_size=16",  "train.eval_every=0",   "model.tie_word_embeddings=false"};
  settings.push_back("mesh.pp=" + std::to_string(Mesh::parse(one.mesh.mesh).degree(Axis::pp)));
  settings.insert(settings.end(), one.settings.begin(), one.settings.end());
  std::vector<std::string> poison;
  for (std::size_t i = 0; i < one.faults.size(); ++i) {
    poison.push_back(
        fmt::format("\"{},step={},value={}\"", one.faults[i].poison, step_of(i), i % 2 == 0 ? "nan" : "inf"));
  }
  settings.push_back(fmt::format("train.poison=[{}]", fmt::join(poison, ",")));
  settings.push_back(fmt::format("train.steps={}", step_of(one.faults.size() - 1)));
  return small_config(ORTHANT_SOURCE_DIR "/configs/llama_tiny.json", settings, one.mesh);
}

// Everything that a good step changes, by copies.
std::vector<at::Tensor> state_of(const Trainer& trainer) {
  std::vector<at::Tensor> all;
  const auto& buffers = trainer.parameters().buffers();
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    all.push_back(buffers[b]->master().values().clone());
    for (std::size_t s = 0; s < trainer.optimizer().state_names().size(); ++s) {
      if (buffers[b]->trainable()) all.push_back(trainer.optimizer().state(s, b).clone());
    }
  }
  return all;
}

bool same_bits(const std::vector<at::Tensor>& left, const std::vector<at::Tensor>& right) {
  const auto equal = [](const at::Tensor& a, const at::Tensor& b) {
    return at::equal(a.view(at::kLong), b.view(at::kLong));
  };
  return std::ranges::equal(left, right, equal);
}

// Numbers are read as a run does: when the next step has been made, or at the end.
class FaultyTraining {
 public:
  FaultyTraining(const RunConfig& config, const std::vector<Fault>& faults) : config_(config), faults_(faults) {}

  void check() {
    const auto data = make_run_data(config_);
    trainer_ = make_trainer(config_);
    const auto loader = make_loader(config_, data, 0);
    std::optional<PendingStep> pending;
    for (std::int64_t step = 1; step <= config_.steps; ++step) {
      const auto before = state_of(*trainer_);
      auto now = trainer_->step(loader->next());
      if (pending) read(*pending, step - 1);
      pending = std::move(now);
      const auto* fault = fault_of(step);
      if (fault != nullptr && fault->lasting) break;
      const bool learns =
          std::ranges::any_of(trainer_->parameters().buffers(), [](const auto& b) { return b->trainable(); });
      EXPECT_EQ(same_bits(state_of(*trainer_), before), fault != nullptr || !learns) << "step " << step;
      for (const auto& tensor : state_of(*trainer_)) EXPECT_TRUE(all_finite(tensor)) << "step " << step;
      if (fault != nullptr) continue;
      EXPECT_TRUE(whole_weights(*trainer_).copies_equal) << "step " << step;
    }
    read(*pending, config_.steps);
  }

 private:
  const Fault* fault_of(std::int64_t step) const {
    return step % 2 == 0 ? nullptr : &faults_[static_cast<std::size_t>(step / 2)];
  }

  void read(const PendingStep& pending, std::int64_t step) {
    const auto* fault = fault_of(step);
    ASSERT_EQ(pending.get().bad(), fault != nullptr) << "step " << step;
    if (fault == nullptr) return;
    const auto bad = trainer_->explain_bad_step();
    EXPECT_TRUE(bad.text.starts_with(fault->expected)) << bad.text << "\n  expected " << fault->expected;
    EXPECT_EQ(bad.lasting, fault->lasting);
    const bool named = fault->expected.find("gradient") != std::string::npos || fault->lasting;
    EXPECT_EQ(bad.parameter.empty(), !named) << bad.text;
    EXPECT_TRUE(bad.text.ends_with(" not finite")) << bad.text;
  }

  RunConfig config_;
  const std::vector<Fault>& faults_;
  std::unique_ptr<Trainer> trainer_;
};

class BadSteps : public testing::TestWithParam<Case> {};

TEST_P(BadSteps, ChangeNothingAndAreExplained) {
  const auto& one = GetParam();
  on_ranks(config_of(one), [&](const RunConfig& config) { FaultyTraining(config, one.faults).check(); });
}

INSTANTIATE_TEST_SUITE_P(Meshes, BadSteps, testing::ValuesIn(kCases));

}  // namespace bad_step_ranks_test
}  // namespace orthant
