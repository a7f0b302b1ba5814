// What runs side by side on a device, on one that takes its work in any order that it may: copies beside steps, and
// branches of a graph on lanes.
#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>

#include "orthant/nn/staged_copy.h"
#include "orthant/runtime/lanes.h"
#include "orthant/schedule/generators.h"
#include "orthant/schedule/lowering.h"
#include "runtime/lazy_device.h"
#include "runtime/toy_graph.h"

namespace orthant::side_by_side_test {

using test::LazyDevice;

const at::TensorOptions kLazy = at::TensorOptions().device(LazyDevice::device);

// What steps read that get their numbers one after the other.
std::vector<double> read_by_steps(unsigned seed, const std::vector<std::int64_t>& sizes) {
  nn::StagedCopy copies(LazyDevice::device);
  std::vector<double> found;
  const auto place = at::empty({64}, kLazy.dtype(at::kDouble));
  for (std::size_t step = 0; step < sizes.size(); ++step) {
    const auto part = place.narrow(0, 0, sizes[step]);
    copies.bring(at::full({sizes[step]}, static_cast<double>(step), at::kDouble), part);
    // Other work on the same memory's stream, and the step.
    LazyDevice::get().enqueue([&found, read = test::on_cpu_memory(part)] {
      const auto least = read.min().item<double>(), most = read.max().item<double>();
      found.push_back(least == most ? least : std::nan(""));
    });
  }
  LazyDevice::get().run(seed);
  return found;
}

TEST(StagedCopy, BringsEachStepItsOwnNumbers) {
  const std::vector<std::int64_t> sizes = {8, 8, 8, 8, 64, 64, 64, 8, 64, 16, 8, 32};
  for (unsigned seed = 0; seed < 300; ++seed) {
    const auto found = read_by_steps(seed, sizes);
    ASSERT_EQ(found.size(), sizes.size());
    for (std::size_t step = 0; step < sizes.size(); ++step) ASSERT_EQ(found[step], step) << "seed " << seed;
  }
}

TEST(StagedCopy, IsAPlainCopyOnTheCpu) {
  nn::StagedCopy copies(at::kCPU);
  const auto place = at::zeros({3});
  copies.bring(at::ones({3}), place);
  EXPECT_EQ(place.sum().item<float>(), 3);
}

// Without the tied table, which would keep all units in one lane; and units d and f have nothing to do with the others.
GraphSpec branches() {
  auto graph = test::toy_spec();
  graph.units[3] = test::toy_unit("d", {"x"}, {"hd"});
  graph.units[3].body = test::toy_body(graph.units[3]);
  graph.units[5].inputs = {"hd", "labels"};
  graph.units[5].body = test::toy_body(graph.units[5]);
  graph.units[4].borrowed.clear();
  graph.units[4].body = test::toy_body(graph.units[4]);
  return graph;
}

enum class Lane { none, all };

struct Trained {
  std::vector<at::Tensor> losses;
  std::vector<at::Tensor> gradients;
};

// Two steps, so that memory of the first is there for the second.
Trained train(Lane lane, unsigned seed) {
  const auto graph = branches();
  test::Toy toy(graph, DType::float64, LazyDevice::device);
  Executor executor(toy.graph, toy.units, Recompute::none);
  Lanes lanes(toy.graph, LazyDevice::device);
  EXPECT_EQ(lanes.count(), 3U);
  constexpr int kMicrobatches = 2;
  const auto map = on_one_pp_coordinate(even_stages(toy.graph, 1));
  const auto actions = lower(one_stage(kMicrobatches), map, toy.graph, 0);
  Trained trained;
  for (int step = 1; step <= 2; ++step) {
    toy.store.begin_step(std::vector<bool>(toy.graph.units.size(), false));
    auto rows = test::toy_rows(kMicrobatches);
    for (auto& one : rows) {
      for (auto& [name, field] : one.fields) field = field.to(LazyDevice::device);
    }
    const auto losses =
        executor.train(actions, rows, {.seed = 3, .step = step, .lanes = lane == Lane::all ? &lanes : nullptr});
    EXPECT_TRUE(toy.store.complete_gradients().empty());
    for (const auto& [name, loss] : losses) trained.losses.push_back(loss);
    for (const auto& buffer : toy.store.buffers()) trained.gradients.push_back(buffer->gradient().clone());
  }
  LazyDevice::get().run(seed);
  for (auto* tensors : {&trained.losses, &trained.gradients}) {
    for (auto& tensor : *tensors) tensor = test::on_cpu_memory(tensor).clone();
  }
  return trained;
}

TEST(Lanes, HaveTheBitsOfOneStreamInWhateverOrderTheyRun) {
  const auto expected = train(Lane::none, 0);
  ASSERT_TRUE(expected.losses.front().isfinite().all().item<bool>());
  for (unsigned seed = 0; seed < 10; ++seed) {
    const auto found = train(Lane::all, seed);
    ASSERT_EQ(found.gradients.size(), expected.gradients.size());
    for (std::size_t i = 0; i < expected.losses.size(); ++i) {
      EXPECT_TRUE(at::equal(found.losses[i], expected.losses[i])) << "seed " << seed << ", loss " << i;
    }
    for (std::size_t i = 0; i < expected.gradients.size(); ++i) {
      EXPECT_TRUE(at::equal(found.gradients[i], expected.gradients[i])) << "seed " << seed << ", gradient " << i;
    }
  }
}

}  // namespace orthant::side_by_side_test
