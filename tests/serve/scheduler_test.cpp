#include "orthant/serve/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "orthant/base/cache_block.h"
#include "orthant/base/random.h"

namespace orthant {
namespace scheduler_test {

std::vector<std::int64_t> prompt(std::int64_t tokens) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < tokens; ++i) ids.push_back(i);
  return ids;
}

// Plays the ranks: checks that every step's blocks are its sequence's own and that nothing is skipped, and answers
// with the number of tokens that the sequence has.
class Ranks {
 public:
  explicit Ranks(Scheduler& scheduler) : scheduler_(scheduler) {}

  std::vector<StepPart> step() {
    auto parts = scheduler_.next();
    std::map<std::int32_t, std::uint64_t> holders;
    for (const auto& part : parts) {
      auto& known = known_[part.sequence];
      EXPECT_TRUE(part.past == static_cast<std::int64_t>(known.size()) || part.past == 0);
      known.resize(static_cast<std::size_t>(part.past));
      known.insert(known.end(), part.tokens.begin(), part.tokens.end());
      const auto blocks = (static_cast<std::int64_t>(known.size()) + kCacheBlock - 1) / kCacheBlock;
      EXPECT_EQ(static_cast<std::int64_t>(part.blocks.size()), blocks);
      for (const auto block : part.blocks) {
        if (block < 0) continue;
        EXPECT_TRUE(holders.emplace(block, part.sequence).second) << "block " << block << " has two holders";
      }
    }
    return parts;
  }

  void answer(const std::vector<StepPart>& parts) {
    for (const auto& part : parts) {
      if (part.answer >= 0) scheduler_.took(part.sequence, 1000 + part.answer);
    }
  }

  const std::vector<std::int64_t>& known(std::uint64_t sequence) { return known_[sequence]; }

 private:
  Scheduler& scheduler_;
  std::map<std::uint64_t, std::vector<std::int64_t>> known_;
};

TEST(Scheduler, ReadsPromptsInChunksAndDecodesSideBySide) {
  Scheduler scheduler({.blocks = 10, .most_running = 4, .step_tokens = 20});
  const auto first = scheduler.add(prompt(30)), second = scheduler.add(prompt(5));
  Ranks ranks(scheduler);
  auto step = ranks.step();
  ASSERT_EQ(step.size(), 1U);
  EXPECT_EQ(step[0].tokens.size(), 20U);
  EXPECT_EQ(step[0].answer, -1) << "the rest of the prompt follows";
  EXPECT_TRUE(step[0].first);
  ranks.answer(step);
  step = ranks.step();
  ASSERT_EQ(step.size(), 2U);
  EXPECT_EQ(step[0].tokens.size(), 10U);
  EXPECT_EQ(step[0].past, 20);
  EXPECT_EQ(step[0].answer, 0);
  EXPECT_FALSE(step[0].first);
  EXPECT_EQ(step[1].sequence, second);
  EXPECT_TRUE(scheduler.next().empty()) << "both wait for their tokens";
  ranks.answer(step);
  step = ranks.step();
  ASSERT_EQ(step.size(), 2U);
  EXPECT_EQ(step[0].tokens, std::vector<std::int64_t>{1000});
  EXPECT_EQ(step[0].answer, 1);
  EXPECT_EQ(scheduler.used_blocks(), 3);
  scheduler.remove(first);
  EXPECT_EQ(scheduler.used_blocks(), 1) << "at once";
  EXPECT_FALSE(scheduler.took(first, 7));
}

TEST(Scheduler, AdmitsInOrderWhatFits) {
  Scheduler scheduler({.blocks = 4, .most_running = 4, .step_tokens = 64});
  scheduler.add(prompt(40));
  const auto large = scheduler.add(prompt(30)), small = scheduler.add(prompt(3));
  EXPECT_EQ(scheduler.next().size(), 1U);
  EXPECT_EQ(scheduler.running(), 1);
  EXPECT_EQ(scheduler.waiting(), 2) << "the small one does not overtake the large one";
  scheduler.remove(large);
  const auto step = scheduler.next();
  ASSERT_EQ(step.size(), 1U);
  EXPECT_EQ(step[0].sequence, small);
}

TEST(Scheduler, PreemptsTheLastAdmittedAndLosesNothing) {
  Scheduler scheduler({.blocks = 4, .most_running = 4, .step_tokens = 64});
  const auto first = scheduler.add(prompt(30)), second = scheduler.add(prompt(20));
  Ranks ranks(scheduler);
  for (int i = 0; i < 4; ++i) ranks.answer(ranks.step());
  EXPECT_EQ(scheduler.preempted(), 1) << "the first one's third block was the last";
  EXPECT_EQ(scheduler.running(), 1);
  scheduler.remove(first);
  const auto step = ranks.step();
  ASSERT_EQ(step.size(), 1U);
  EXPECT_EQ(step[0].sequence, second);
  EXPECT_EQ(step[0].past, 0);
  EXPECT_GT(step[0].tokens.size(), 20U) << "prompt and answer so far";
  EXPECT_EQ(step[0].tokens.back(), 1000 + static_cast<std::int64_t>(step[0].tokens.size()) - 21);
  EXPECT_FALSE(step[0].first);
}

TEST(Scheduler, GivesBlocksBehindAWindowBack) {
  Scheduler scheduler({.blocks = 5, .most_running = 1, .step_tokens = 16, .window = 20});
  EXPECT_GT(scheduler.holds(), 1 << 20) << "answers do not end with the cache";
  scheduler.add(prompt(30));
  Ranks ranks(scheduler);
  for (int i = 0; i < 300; ++i) {
    const auto step = ranks.step();
    ASSERT_EQ(step.size(), 1U);
    const auto& blocks = step[0].blocks;
    for (std::int64_t key = std::max<std::int64_t>(step[0].past - 19, 0); key <= step[0].past; ++key) {
      EXPECT_GE(blocks[static_cast<std::size_t>(key / kCacheBlock)], 0) << "key " << key << " is still met";
    }
    ranks.answer(step);
  }
  EXPECT_EQ(scheduler.preempted(), 0);
}

TEST(Scheduler, SharesRunningSequencesAmongStepsUnderWay) {
  Scheduler scheduler({.blocks = 16, .most_running = 8, .step_tokens = 64, .steps_under_way = 2});
  for (int i = 0; i < 6; ++i) scheduler.add(prompt(4));
  const auto one = scheduler.next(), two = scheduler.next();
  EXPECT_EQ(one.size(), 3U);
  EXPECT_EQ(two.size(), 3U);
  EXPECT_TRUE(scheduler.next().empty());
  for (const auto& part : one) scheduler.took(part.sequence, 1);
  EXPECT_EQ(scheduler.next().size(), 3U);
}

// Random loads: every sequence gets all its tokens, in order, whatever is preempted and cancelled.
TEST(Scheduler, FinishesRandomLoads) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const RandomStream random(seed, "scheduler");
    std::uint64_t drawn = 0;
    const auto draw = [&](std::int64_t most) {
      return static_cast<std::int64_t>(random.uniform(drawn++) * static_cast<double>(most));
    };
    const SchedulerOptions options{.blocks = 5 + draw(20),
                                   .most_running = 1 + draw(8),
                                   .step_tokens = 1 + draw(40),
                                   .window = draw(3) == 0 ? 1 + draw(40) : 0,
                                   .steps_under_way = 1 + static_cast<int>(draw(3))};
    Scheduler scheduler(options);
    Ranks ranks(scheduler);
    std::map<std::uint64_t, std::int64_t> left;
    std::deque<std::vector<StepPart>> under_way;
    std::int64_t added = 0, steps = 0;
    while (added < 30 || !left.empty()) {
      ASSERT_LT(++steps, 20000);
      if (added < 30 && draw(3) > 0) {
        ++added;
        left[scheduler.add(prompt(1 + draw(40)))] = 1 + draw(30);
      }
      if (!left.empty() && draw(60) == 0) {
        scheduler.remove(left.begin()->first);
        left.erase(left.begin());
      }
      auto parts = ranks.step();
      if (!parts.empty()) under_way.push_back(std::move(parts));
      if (static_cast<int>(under_way.size()) < options.steps_under_way && draw(2) == 0) continue;
      if (under_way.empty()) continue;
      for (const auto& part : under_way.front()) {
        if (part.answer < 0 || !scheduler.took(part.sequence, 1000 + part.answer)) continue;
        if (--left.at(part.sequence) > 0) continue;
        scheduler.remove(part.sequence);
        left.erase(part.sequence);
      }
      under_way.pop_front();
    }
    EXPECT_TRUE(scheduler.idle());
    EXPECT_EQ(scheduler.used_blocks(), 0);
  }
}

}  // namespace scheduler_test
}  // namespace orthant
