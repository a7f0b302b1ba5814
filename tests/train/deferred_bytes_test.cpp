// What an automatic cut reckons with where a schedule makes gradients of weights apart from those of inputs. That the
// bytes are those of the runtime is shown in kept_bytes_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>

#include "orthant/layout/tensor_policy.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/model_config.h"
#include "orthant/models/presets.h"
#include "orthant/schedule/named_schedules.h"
#include "orthant/train/pipeline_config.h"
#include "schedule/schedule_file.h"

namespace orthant {
namespace deferred_bytes_test {

GraphSpec tiny() {
  return resolved_graph(build_spec(llama_preset("llama-tiny"), {.rows = 1, .sequence = 8}), {}, 1);
}

std::vector<std::int64_t> bytes_in_flight(const std::string& schedule, Recompute recompute) {
  PipelineSettings settings;
  settings.schedule = schedule;
  settings.memory.rank_bytes = 1;
  set_memory_bound(settings, tiny(), Precision{}, 2, recompute);
  return settings.memory.kept_bytes;
}

std::vector<std::int64_t> kept(Recompute recompute) {
  std::vector<std::int64_t> bytes;
  for (const auto& unit : tiny().units) bytes.push_back(unit.cost.kept_bytes[static_cast<std::size_t>(recompute)]);
  return bytes;
}

std::vector<std::int64_t> kept_or_deferred(Recompute recompute) {
  auto bytes = kept(recompute);
  const auto graph = tiny();
  for (std::size_t u = 0; u < bytes.size(); ++u) bytes[u] = std::max(bytes[u], graph.units[u].cost.deferred_bytes);
  return bytes;
}

TEST(DeferredBytes, ASplitBackwardIsBoundByTheLargerOfWhatItKeepsAndDefers) {
  for (const auto recompute : kRecomputeModes) {
    ASSERT_NE(kept(recompute), kept_or_deferred(recompute)) << recompute_name(recompute);
    for (const auto* schedule : {"gpipe", "1f1b", "interleaved"}) {
      EXPECT_EQ(bytes_in_flight(schedule, recompute), kept(recompute)) << schedule;
    }
    for (const auto* schedule : {"zbh1", "zbv"}) {
      EXPECT_EQ(bytes_in_flight(schedule, recompute), kept_or_deferred(recompute)) << schedule;
    }
  }
}

TEST(DeferredBytes, AScheduleFileIsTakenAsWhatIsInIt) {
  const test::ScheduleFile whole(to_text(make_schedule("1f1b", 2, 0, 4).table), "whole");
  const test::ScheduleFile split(to_text(make_schedule("zbh1", 2, 0, 4).table), "split");
  EXPECT_EQ(bytes_in_flight(whole.path(), Recompute::full), kept(Recompute::full));
  EXPECT_EQ(bytes_in_flight(split.path(), Recompute::full), kept_or_deferred(Recompute::full));
  EXPECT_EQ(bytes_in_flight("no/such/file.txt", Recompute::full), kept(Recompute::full)) << "refused elsewhere";
}

}  // namespace deferred_bytes_test
}  // namespace orthant
