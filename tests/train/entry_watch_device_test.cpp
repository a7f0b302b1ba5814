// The notes that a kernel takes of a bad step, against a look at the buffers themselves.
#include "orthant/train/entry_watch.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ops/card.h"
#include "runtime/toy_graph.h"

namespace orthant::entry_watch_device_test {

using Names = std::vector<std::string>;

struct Problem {
  explicit Problem(MasterKind master)
      : graph(test::toy_spec()),
        store(graph, Mesh(), 0, {DType::float32, DType::bfloat16, DType::bfloat16, master}, make) {
    store.initialise(5);
    for (const auto& buffer : store.buffers()) {
      if (buffer->trainable()) buffer->gradient().fill_(1);
    }
  }
  static at::Tensor make(std::int64_t elements, at::ScalarType type) {
    return at::zeros({elements}, test::on_card(type));
  }

  // One element of a parameter or a gradient, where the buffer has one.
  void spoil(std::mt19937_64& engine) {
    const auto draw = [&](std::int64_t below) {
      return static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(below));
    };
    const auto& buffers = store.buffers();
    const auto& buffer = *buffers[static_cast<std::size_t>(draw(static_cast<std::int64_t>(buffers.size())))];
    const auto place = draw(buffer.layout().size);
    const double values[] = {NAN, INFINITY, -INFINITY};
    const double value = values[draw(3)];
    if (buffer.trainable() && draw(2) == 0) {
      buffer.gradient()[place] = value;
    } else {
      buffer.master().narrow(place, 1).change([&](const at::Tensor& one) { one.fill_(value); });
    }
  }

  // Parameters, then gradients, of all buffers.
  std::vector<Names> names(const EntryWatch& watch, int steps_ago) const {
    std::vector<Names> all;
    for (std::size_t b = 0; b < store.buffers().size(); ++b) {
      all.push_back(watch.parameters(b, steps_ago));
      all.push_back(watch.gradients(b, steps_ago));
    }
    return all;
  }
  std::vector<Names> seen_by_the_host() const {
    std::vector<Names> all;
    test::on_cpu([&] { all = names(EntryWatch(store, at::kCPU), 0); });
    return all;
  }

  GraphSpec graph;
  ParameterStore store;
};

at::Tensor numbers(double loss, double norm, double mends) {
  return at::tensor({loss, norm, mends}, at::kDouble).to(test::card());
}

TEST(EntryWatchOnDevice, NotesWhatTheHostWouldFind) {
  std::mt19937_64 engine(7);
  const int rounds = test::num_shapes(40, 20);
  for (int round = 0; round < rounds; ++round) {
    Problem problem(round % 2 == 0 ? MasterKind::whole : MasterKind::bf16_remainder);
    EntryWatch watch(problem.store, test::card());
    ASSERT_TRUE(watch.takes_notes());
    for (int i = 0; i <= round % 4; ++i) problem.spoil(engine);
    watch.begin_on_device();
    watch.note(round % 3 == 0 ? numbers(1, INFINITY, 0) : numbers(NAN, 1, 0));
    const auto expected = problem.seen_by_the_host();
    EXPECT_EQ(problem.names(watch, 0), expected) << round;
    watch.begin_on_device();
    EXPECT_EQ(problem.names(watch, 1), expected) << round;
  }
}

TEST(EntryWatchOnDevice, NotesNothingOfAGoodStepOrOneThatALossScaleMends) {
  std::mt19937_64 engine(8);
  Problem problem(MasterKind::whole);
  EntryWatch watch(problem.store, test::card());
  const auto before = problem.names(watch, 0);
  for (int i = 0; i < 5; ++i) problem.spoil(engine);
  EXPECT_NE(problem.seen_by_the_host(), before);
  watch.note(numbers(1, 1, 0));
  watch.note(numbers(1, NAN, 1));
  EXPECT_EQ(problem.names(watch, 0), before);
}

}  // namespace orthant::entry_watch_device_test
