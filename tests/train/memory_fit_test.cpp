#include "orthant/train/memory_fit.h"

#include <gtest/gtest.h>

#include "orthant/train/run_estimate.h"
#include "train/training_ranks.h"

namespace orthant {
namespace memory_fit_test {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// Two stages, the second of which has a head that is much larger than all layers.
RunConfig lopsided() {
  auto config = small_config(
      ORTHANT_SOURCE_DIR "/configs/llama_tiny.json",
      {"model.num_hidden_layers=2", "model.vocab_size=50000", "data.sequence_length=8", "train.global_batch_size=8",
       "model.tie_word_embeddings=false", R"(parallel.split=[["embed", "layers.0", "layers.1"], ["head", "loss"]])",
       "parallel.microbatches=2"},
      {"dp=2"});
  config.mesh = Mesh::parse("pp=2,dp=2");
  return config;
}

std::int64_t predicted(const RunConfig& config, int pp) {
  const auto plan = estimate_run(config, find_hardware("cpu"));
  const auto& memory = plan.memory.at(static_cast<std::size_t>(pp));
  return memory.total() - memory.reserve;
}

TEST(MemoryFit, JudgesAHostByTheRanksThatAreThere) {
  const auto config = lopsided();  // ranks 0 and 1 have the first stage, 2 and 3 the second
  const auto first = predicted(config, 0);
  const auto second = predicted(config, 1);
  ASSERT_NE(first, second);
  const auto on = [&](const std::vector<const char*>& hosts) {
    std::vector<RankPlace> places;
    for (int rank = 0; rank < 4; ++rank) {
      places.push_back({.rank = rank, .host = hosts[static_cast<std::size_t>(rank)], .card = "", .free_bytes = 1});
    }
    return memory_needs(config, places);
  };
  const auto block = on({"a", "a", "b", "b"});
  ASSERT_EQ(block.size(), 2U);
  EXPECT_EQ(block[0].needed_bytes, 2 * first + 32 * kMiB);
  EXPECT_EQ(block[1].needed_bytes, 2 * second + 32 * kMiB);
  const auto cyclic = on({"a", "b", "a", "b"});
  ASSERT_EQ(cyclic.size(), 2U);
  EXPECT_EQ(cyclic[0].ranks, (std::vector<int>{0, 2}));
  for (const auto& need : cyclic) EXPECT_EQ(need.needed_bytes, first + second + 32 * kMiB);
}

TEST(MemoryFit, AddsUpTheRanksThatShareACard) {
  const auto config = lopsided();
  const auto first = predicted(config, 0);
  const auto second = predicted(config, 1);
  const std::int64_t context = 512 * kMiB;
  std::vector<RankPlace> places;
  for (int rank = 0; rank < 4; ++rank) {
    places.push_back({.rank = rank,
                      .host = "a",
                      .card = std::to_string(rank % 2),
                      .free_bytes = first + second + 2 * context - (rank == 3 ? 1 : 0)});
  }
  const auto needs = memory_needs(config, places);
  ASSERT_EQ(needs.size(), 2U);
  EXPECT_TRUE(needs[0].fits());
  const auto shortage = worst_shortage(needs);
  ASSERT_TRUE(shortage);  // by the least that one of its ranks saw
  EXPECT_EQ(shortage->card, "1");
  EXPECT_EQ(shortage->missing_bytes(), 1);
  EXPECT_TRUE(shortage->text().starts_with("the ranks 1, 3 of this run on card 1 need ")) << shortage->text();
  EXPECT_TRUE(shortage->text().ends_with(" of memory are free there")) << shortage->text();
}

TEST(MemoryFit, SaysNothingOfMemoryThatNobodyKnows) {
  const auto config = tiny_llama({"dp=1"});
  EXPECT_TRUE(memory_needs(config, {{.rank = 0, .host = "a", .card = "0"}}).empty());
  EXPECT_FALSE(worst_shortage({}));
}

TEST(MemoryFit, NamesTheHostInAFewWords) {
  MemoryNeed need{.ranks = {0}, .host = "a", .card = "", .needed_bytes = 3 * kMiB, .free_bytes = kMiB};
  EXPECT_EQ(need.text(), "the rank of this run on this host needs 3 MiB, and 1 MiB of memory are free here");
  need.ranks = {0, 2};
  EXPECT_EQ(need.text(), "the 2 ranks of this run on this host need 3 MiB, and 1 MiB of memory are free here");
  need.ranks = {5};
  need.card = "GPU-a";
  EXPECT_EQ(need.text(), "rank 5 of this run on card GPU-a needs 3 MiB, and 1 MiB of memory are free there");
}

TEST(MemoryFit, TravelsAsText) {
  const RankPlace place{.rank = 2, .host = "a \"b\"", .card = "GPU-1", .free_bytes = 5};
  const auto back = RankPlace::from_text(place.to_text(), 2);
  EXPECT_EQ(back.host, place.host);
  EXPECT_EQ(back.card, place.card);
  EXPECT_EQ(back.free_bytes, place.free_bytes);
  EXPECT_FALSE(RankPlace::from_text(RankPlace{.rank = 0, .host = "", .card = ""}.to_text(), 0).free_bytes);
}

}  // namespace memory_fit_test
}  // namespace orthant
