// Checked mode: calls that do not match are errors that name both ranks and both places, soon and always; calls that do
// match, in any legal order, are left alone.
#include "orthant/comm/checked.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <random>
#include <thread>

#include "base/error_text.h"
#include "comm/ranks.h"
#include "orthant/base/error.h"
#include "orthant/comm/identity.h"

namespace orthant::comm {
namespace checked_test {

using test::errors_of_ranks;
using test::quick;

constexpr int kTrials = 20;
constexpr int kAtOnce = 5;

// A run of matching calls in which one rank does something else at one place. Returns every rank's error.
struct Trial {
  int world_size;
  int odd_rank;
  int at_call;
  std::vector<std::string> errors;
  double seconds = 0;
};

// Of a device whose calls return before they have run.
TEST(CheckedStreams, AreRefusedBeyondThoseThatTheDeviceKeepsApart) {
  auto store = make_process_store();
  const auto watch = std::make_shared<CallWatch>(std::make_shared<NoticedFailure>(), nullptr);
  std::vector<int> queues;
  for (int i = 0; i < CallWatch::kMostQueues; ++i) {
    queues.push_back(watch->add_queue({.name = "pp", .ranks = {0}}, std::nullopt, [] {}));
  }
  const auto checked = make_checked_transport(make_identity_transport(1), {"tp", {0}, 0, 1, watch}, store,
                                              std::make_shared<Board>(store, 0, 1));
  const auto error = error_text<ConfigError>([&] {
    checked->start({.op = Op::all_reduce, .outputs = {at::empty({2}, at::TensorOptions().device(at::kMeta))}})->wait();
  });
  EXPECT_NE(error.find("group tp of ranks [0] needs one more stream of the device than the 32"), std::string::npos)
      << error;
  EXPECT_NE(error.find("--check-collectives"), std::string::npos) << error;
  for (const int queue : queues) EXPECT_TRUE(watch->remove_queue(queue));
}

class Checked : public testing::TestWithParam<BackendKind> {
 protected:
  Trial run_trial(int number, const std::function<void(Group&)>& odd_call);

  // Twenty trials, five at a time: they mostly wait.
  void expect_always_reported(const std::function<void(Group&)>& odd_call, const std::vector<std::string>& parts);
};

Trial Checked::run_trial(int number, const std::function<void(Group&)>& odd_call) {
  std::mt19937 random(static_cast<unsigned>(number));
  Trial trial;
  trial.world_size = 2 + static_cast<int>(random() % 3);
  trial.odd_rank = static_cast<int>(random() % static_cast<unsigned>(trial.world_size));
  trial.at_call = static_cast<int>(random() % 5);
  const auto began = std::chrono::steady_clock::now();
  trial.errors = errors_of_ranks(Mesh(Degrees{{Axis::dp, trial.world_size}}), quick(true, GetParam()), {},
                                 [&](Communicator& communicator) {
                                   auto group = communicator.world();
                                   for (int i = 0; i < 5; ++i) {
                                     if (i == trial.at_call && communicator.rank() == trial.odd_rank) {
                                       odd_call(group);
                                     } else {
                                       group.all_reduce(at::ones({64})).wait();
                                     }
                                   }
                                 });
  trial.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return trial;
}

// Every rank but possibly the odd one must be told, within two seconds and a little for starting and ending.
void expect_reported(const Trial& trial, const std::vector<std::string>& parts) {
  EXPECT_LT(trial.seconds, 4.0);
  for (int rank = 0; rank < trial.world_size; ++rank) {
    if (rank == trial.odd_rank) continue;
    const auto& text = trial.errors[static_cast<size_t>(rank)];
    EXPECT_NE(text.find("rank " + std::to_string(trial.odd_rank)), std::string::npos) << text;
    EXPECT_NE(text.find("checked_test.cpp:"), std::string::npos) << text;
    for (const auto& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " not in: " << text;
  }
}

void Checked::expect_always_reported(const std::function<void(Group&)>& odd_call,
                                     const std::vector<std::string>& parts) {
  for (int first = 0; first < kTrials; first += kAtOnce) {
    std::vector<std::future<Trial>> trials;
    for (int i = first; i < first + kAtOnce; ++i) {
      trials.push_back(std::async(std::launch::async, [this, i, &odd_call] { return run_trial(i, odd_call); }));
    }
    for (auto& trial : trials) expect_reported(trial.get(), parts);
  }
}

TEST_P(Checked, ReportsAnotherOperation) {
  expect_always_reported([](Group& group) { group.broadcast(at::ones({64}), 0).wait(); },
                         {"operation all_reduce here, broadcast there"});
}

TEST_P(Checked, ReportsAnotherDtype) {
  expect_always_reported([](Group& group) { group.all_reduce(at::ones({64}, at::kDouble)).wait(); },
                         {"dtype float32 here, float64 there"});
}

TEST_P(Checked, ReportsAnotherShape) {
  expect_always_reported([](Group& group) { group.all_reduce(at::ones({65})).wait(); },
                         {"shape [64] here, [65] there"});
}

TEST_P(Checked, ReportsAMissingCall) {
  expect_always_reported([](Group&) {}, {"left without making the call"});
}

TEST_P(Checked, ReportsAnotherReductionRootOrNumberOfTensors) {
  expect_reported(run_trial(1, [](Group& group) { group.all_reduce(at::ones({64}), Reduction::max).wait(); }),
                  {"reduction"});
  expect_reported(
      run_trial(2,
                [](Group& group) { group.all_reduce(std::vector<at::Tensor>{at::ones({32}), at::ones({32})}).wait(); }),
      {"number of tensors 1 here, 2 there"});
  const auto errors = errors_of_ranks(Mesh::parse("dp=2"), quick(true, GetParam()), {}, [](Communicator& communicator) {
    communicator.world().broadcast(at::ones({4}), communicator.rank()).wait();
  });
  EXPECT_NE(errors[0].find("root 0 here, 1 there"), std::string::npos) << errors[0];
}

TEST_P(Checked, ReportsCountsThatDoNotPair) {
  const auto errors = errors_of_ranks(Mesh::parse("dp=2"), quick(true, GetParam()), {}, [](Communicator& communicator) {
    auto group = communicator.world();
    const std::vector<int64_t> received =
        communicator.rank() == 0 ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{1, 1};
    group.all_to_all(at::empty({received[0] + received[1]}), at::ones({2}), received, {1, 1}).wait();
  });
  EXPECT_NE(errors[0].find("2 elements expected here, 1 sent there"), std::string::npos) << errors[0];
  EXPECT_NE(errors[1].find("1 elements sent here, 2 expected there"), std::string::npos) << errors[1];
}

TEST_P(Checked, ReportsMessagesOfDifferentSize) {
  const auto errors = errors_of_ranks(Mesh::parse("dp=2"), quick(true, GetParam()), {}, [](Communicator& communicator) {
    auto group = communicator.world();
    if (communicator.rank() == 0) group.send(at::ones({4}), 1).wait();
    if (communicator.rank() == 1) group.receive(at::ones({5}), 0).wait();
  });
  EXPECT_NE(errors[0].find("shape [4] here, [5] there"), std::string::npos) << errors[0];
  EXPECT_NE(errors[1].find("shape [5] here, [4] there"), std::string::npos) << errors[1];
}

TEST_P(Checked, ReportsTwoGroupsUsedInOppositeOrderAsADeadlock) {
  const auto mesh = Mesh::parse("dp=2");
  const auto began = std::chrono::steady_clock::now();
  const auto errors =
      errors_of_ranks(mesh, quick(true, GetParam()), {{Axis::dp, Purpose::gradients}, {Axis::dp, Purpose::activations}},
                      [](Communicator& communicator) {
                        auto first = communicator.group(Axis::dp, Purpose::gradients);
                        auto second = communicator.group(Axis::dp, Purpose::activations);
                        if (communicator.rank() == 1) std::swap(first, second);
                        first.all_reduce(at::ones({8})).wait();
                        second.all_reduce(at::ones({8})).wait();
                      });
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(), 4.0);
  const bool found = errors[0].find("deadlock") != std::string::npos || errors[1].find("deadlock") != std::string::npos;
  EXPECT_TRUE(found) << errors[0] << "\n" << errors[1];
  const auto& text = errors[0].find("deadlock") != std::string::npos ? errors[0] : errors[1];
  for (const auto& part :
       {"rank 0 waits in", "rank 1 waits in", "dp/gradients", "dp/activations", "checked_test.cpp:"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " not in: " << text;
  }
}

TEST_P(Checked, ReportsTagsThatNeverMeetAsADeadlock) {
  const auto began = std::chrono::steady_clock::now();
  const auto errors = errors_of_ranks(Mesh::parse("dp=2"), quick(true, GetParam()), {}, [](Communicator& communicator) {
    auto group = communicator.world();
    if (communicator.rank() == 0) group.send(at::ones({4}), 1, 3).wait();
    if (communicator.rank() == 1) group.receive(at::ones({4}), 0, 5).wait();
  });
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(), 4.0);
  EXPECT_NE((errors[0] + errors[1]).find("deadlock"), std::string::npos) << errors[0] << errors[1];
  EXPECT_NE((errors[0] + errors[1]).find("tag 3"), std::string::npos) << errors[0] << errors[1];
  EXPECT_NE((errors[0] + errors[1]).find("tag 5"), std::string::npos) << errors[0] << errors[1];
}

TEST_P(Checked, ThreadsThatWaitForOtherThreadsAreNoDeadlock) {
  // On each rank one thread uses one channel and another thread another; each waits for a thread that is only late.
  const auto mesh = Mesh::parse("dp=2");
  const auto errors =
      errors_of_ranks(mesh, quick(true, GetParam()), {{Axis::dp, Purpose::gradients}, {Axis::dp, Purpose::activations}},
                      [](Communicator& communicator) {
                        const auto call = [&](Purpose purpose, int late_rank) {
                          auto group = communicator.group(Axis::dp, purpose);
                          group.barrier().wait();
                          if (communicator.rank() == late_rank)
                            std::this_thread::sleep_for(std::chrono::milliseconds(1000));  // computes
                          group.all_reduce(at::ones({8})).wait();
                        };
                        std::thread other([&] { call(Purpose::activations, 1); });
                        call(Purpose::gradients, 0);
                        other.join();
                      });
  EXPECT_EQ(errors[0], "");
  EXPECT_EQ(errors[1], "");
}

TEST_P(Checked, ASlowRankIsNoError) {
  const auto errors = errors_of_ranks(Mesh::parse("dp=2"), quick(true, GetParam()), {}, [](Communicator& communicator) {
    if (communicator.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1000));  // works hard elsewhere
    communicator.world().all_reduce(at::ones({8})).wait();
  });
  EXPECT_EQ(errors[0], "");
  EXPECT_EQ(errors[1], "");
}

TEST_P(Checked, ARankThatNeverCallsIsNamedAfterTheTimeout) {
  auto options = quick(true, GetParam());
  options.timeout_seconds = 1;
  const auto errors = errors_of_ranks(Mesh::parse("dp=2"), options, {}, [](Communicator& communicator) {
    if (communicator.rank() == 0) communicator.world().all_reduce(at::ones({8})).wait();
    if (communicator.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  });
  EXPECT_NE(errors[0].find("rank 1 did not make the call that rank 0 waits in within 1 s"), std::string::npos)
      << errors[0];
}

INSTANTIATE_TEST_SUITE_P(Backends, Checked, testing::ValuesIn(test::backends()), test::backend_test_name);

}  // namespace checked_test
}  // namespace orthant::comm
