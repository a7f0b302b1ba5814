// A parameter that stages share is one parameter: its copies stay equal, it is counted once and saved once, and any
// mesh goes on from what stages wrote.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>

#include "orthant/checkpoint/checkpoint.h"
#include "orthant/comm/faulty.h"
#include "orthant/layout/rows.h"
#include "train/branching_model.h"
#include "train/trainers_on_ranks.h"
#include "train/training_ranks.h"

namespace orthant {
namespace pipeline_checkpoint_test {

using State = std::map<std::string, at::Tensor>;

constexpr int kUsers = 3;
constexpr int kMicrobatches = 3;

TrainerOptions stage_options(const Mesh& mesh) {
  auto options = test::branching_options(kMicrobatches);
  options.pad_to_longest = false;
  if (mesh.degree(Axis::pp) > 1) options.stages.split = test::branching_split(mesh.degree(Axis::pp));
  return options;
}

void on_mesh(const char* text, const test::TrainerBody& body) {
  const auto mesh = Mesh::parse(text);
  test::on_trainers(test::branching_spec(kUsers), test::branching_units, mesh, stage_options(mesh), body);
}

// This rank's copy of a parameter; undefined when it has none.
at::Tensor copy_of(const Trainer& trainer, const std::string& name) {
  for (const auto& buffer : trainer.parameters().buffers()) {
    if (const auto* entry = buffer->layout().find(name)) return buffer->master_view(*entry).clone();
  }
  return {};
}

TEST(SharedParameters, HaveTheSameBitsOnEveryStageAfterSteps) {
  std::vector<at::Tensor> copies(4);
  std::vector<int> answers(4);
  double counted = 0;
  std::mutex mutex;
  on_mesh("pp=4", [&](Trainer& trainer) {
    const auto before = copy_of(trainer, "embed.weight");
    test::train_steps(trainer, test::branching_batch(), 5);
    const auto rank = static_cast<std::size_t>(trainer.rank());
    copies[rank] = copy_of(trainer, "embed.weight");
    EXPECT_TRUE(whole_weights(trainer).copies_equal);
    if (before.defined()) {
      EXPECT_FALSE(at::equal(copies[rank], before)) << "it does not learn";
    }
    const auto& buffers = trainer.parameters().buffers();
    const std::lock_guard lock(mutex);
    for (std::size_t b = 0; b < buffers.size(); ++b) {
      if (trainer.parameters().answers(b) && buffers[b]->layout().find("embed.weight") != nullptr) ++answers[rank];
      for (const auto& range : trainer.parameters().answered(b)) {
        counted += static_cast<double>(
            (buffers[b]->owned_gradient().narrow(0, range.begin, range.size()) != 0).sum().item<std::int64_t>());
      }
    }
  });
  EXPECT_FALSE(copies[2].defined()) << "stage 2 has no use for it";
  for (const std::size_t rank : {1U, 3U}) EXPECT_TRUE(at::equal(copies[rank], copies[0])) << rank;
  EXPECT_EQ(answers, (std::vector<int>{1, 0, 0, 0}));
  // Every element of every gradient is in the norm once: none of this model's is zero.
  EXPECT_EQ(counted, static_cast<double>(test::branching_spec(kUsers).num_parameters()));
}

// The stages' shares are needed: without the sum over them copies drift apart.
TEST(SharedParameters, DifferWithoutTheSumOverStages) {
  const auto mesh = Mesh::parse("pp=2");
  auto comm = test::quick_comm();
  comm.wrap = comm::leave_out_sums(mesh, {.axis = Axis::pp});
  const auto train = [](Trainer& trainer) {
    test::train_steps(trainer, test::branching_batch(), 2);
    const auto found = whole_weights(trainer);
    if (trainer.rank() == 1) {
      EXPECT_FALSE(found.copies_equal);
    }
  };
  test::on_trainers(test::branching_spec(kUsers), test::branching_units, mesh, stage_options(mesh), train, comm);
}

std::set<std::string> saved_names(const Manifest& manifest) {
  std::set<std::string> names;
  for (const auto& tensor : manifest.tensors) {
    EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name << " is listed twice";
    EXPECT_EQ(tensor.pieces.size(), 1U) << tensor.name;
  }
  return names;
}

void expect_equal(const State& found, const State& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(at::equal(found.at(name), tensor)) << name;
}

struct Saved {
  State state;
  test::Outcome after;  // of two steps more
  int replicas = 1;
};

Saved save_on(const char* mesh, const std::string& folder) {
  Saved saved;
  std::mutex mutex;
  on_mesh(mesh, [&](Trainer& trainer) {
    test::train_steps(trainer, test::branching_batch(), 2);
    trainer.save(folder);
    const auto state = test::whole_state(trainer);
    const auto after = test::train_steps(trainer, test::branching_batch(), 2);
    const std::lock_guard lock(mutex);
    saved = {state, after, num_replicas(trainer.mesh())};
  });
  return saved;
}

// Bits go on where no replica regroups sums.
void load_on(const char* mesh, const std::string& folder, const Saved& saved) {
  SCOPED_TRACE(mesh);
  on_mesh(mesh, [&](Trainer& trainer) {
    trainer.load(folder);
    EXPECT_EQ(trainer.steps_done(), 2);
    expect_equal(test::whole_state(trainer), saved.state);
    const auto after = test::train_steps(trainer, test::branching_batch(), 2);
    if (num_replicas(trainer.mesh()) == 1 && saved.replicas == 1) {
      EXPECT_EQ(after, saved.after);
    }
  });
}

TEST(StageCheckpoints, AreReadByEveryMeshAndListEachTensorOnce) {
  const TestFolder folder("orthant-stage-checkpoints");
  std::set<std::string> expected;
  for (const char* writer : {"dp=1", "pp=2", "pp=3", "dp=2", "pp=2,dp=2"}) {
    SCOPED_TRACE(std::string("written by ") + writer);
    const auto path = (folder.path / writer).string();
    const auto saved = save_on(writer, path);
    const auto manifest = verify_checkpoint(path);
    EXPECT_EQ(manifest.mesh, Mesh::parse(writer).to_string());
    if (Mesh::parse(writer).degree(Axis::dp) == 1) {
      const auto names = saved_names(manifest);
      if (expected.empty()) expected = names;
      EXPECT_EQ(names, expected);
    }
    for (const char* reader : {"dp=1", "pp=2", "pp=3", "dp=2", "pp=2,dp=2"}) load_on(reader, path, saved);
  }
}

// The loss alone on the last stage: that rank has nothing to update and nothing to save.
TEST(StageCheckpoints, AStageWithoutParametersTrainsAndSaves) {
  const TestFolder folder("orthant-bare-stage");
  const auto path = (folder.path / "saved").string();
  const auto one_stage = save_on("dp=1", (folder.path / "one").string());
  const auto mesh = Mesh::parse("pp=2");
  auto options = stage_options(mesh);
  options.stages.split = {{"embed", "code", "first", "left", "middle", "side", "right", "deep", "mix", "head"},
                          {"loss"}};
  for (const char* schedule : {"1f1b", "zbh1"}) {
    options.stages.schedule = schedule;
    test::on_trainers(test::branching_spec(kUsers), test::branching_units, mesh, options, [&](Trainer& trainer) {
      EXPECT_EQ(trainer.parameters().buffers().empty(), trainer.rank() == 1);
      test::train_steps(trainer, test::branching_batch(), 2);
      trainer.save(path);
      expect_equal(test::whole_state(trainer), one_stage.state);
      EXPECT_EQ(test::train_steps(trainer, test::branching_batch(), 2), one_stage.after) << schedule;
      trainer.load(path);
      EXPECT_EQ(test::train_steps(trainer, test::branching_batch(), 2), one_stage.after) << schedule;
    });
    saved_names(verify_checkpoint(path));
    load_on("dp=1", path, one_stage);
  }
}

}  // namespace pipeline_checkpoint_test
}  // namespace orthant
