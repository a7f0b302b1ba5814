// Runs a test body on several ranks: as threads of the test process, or, over NCCL, as this process and those beside it
// that a launcher started, which all run the same tests.
#pragma once

#include <ATen/core/Tensor.h>

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "orthant/comm/communicator.h"
#include "orthant/comm/thread_ranks.h"
#include "orthant/launch/environment.h"
#include "orthant/launch/meeting.h"

namespace orthant::comm::test {

// Where the tensors of these tests live; the same tests are built a second time for CUDA.
#ifdef ORTHANT_TEST_CUDA
inline const at::Device kDevice(at::kCUDA, 0);
#else
inline const at::Device kDevice(at::kCPU);
#endif

inline at::TensorOptions like(at::ScalarType dtype) {
  return at::TensorOptions().dtype(dtype).device(kDevice);
}

inline CommOptions quick(bool check = false, BackendKind backend = BackendKind::gloo) {
  CommOptions options;
  options.backend = backend;
  options.device = kDevice;
  options.timeout_seconds = 20;
  options.check = check;
  return options;
}

// The backends that ranks of one host have for these tensors.
inline std::vector<BackendKind> backends() {
  if (kDevice.is_cuda()) return {BackendKind::gloo};
  return {BackendKind::gloo, BackendKind::shm};
}

inline std::string backend_test_name(const testing::TestParamInfo<BackendKind>& info) {
  return name_of(info.param);
}

using Body = std::function<void(Communicator&)>;

#ifdef ORTHANT_TEST_NCCL
// This process' place among those of `orthant launch`.
inline const launch::Job& job_of_process() {
  static const launch::Job job = launch::join_launcher(launch::process_environment(), {}, 60).value_or(launch::Job{});
  return job;
}

// A communicator over NCCL for all tests that check alike: to connect one on a card that ranks share takes longer than
// most tests' calls. Tests count what they add.
class SharedCommunicators : public testing::Environment {
 public:
  Communicator& get(const Mesh& mesh, const CommOptions& options) {
    auto& made = made_[options.check];
    if (!made) {
      made = std::make_unique<Communicator>(mesh, job_of_process().rank,
                                            store_of(options.check ? "checked" : "unchecked"), options);
    }
    return *made;
  }

  // Of a communicator that a test makes for itself.
  Store store_of(const std::string& name) {
    if (!store_) store_ = connect(job_of_process(), 60);
    return store_->below(name);
  }

  void TearDown() override {
    for (auto& [checked, communicator] : made_) communicator->close();
    made_.clear();
  }

 private:
  std::optional<Store> store_;
  std::map<bool, std::unique_ptr<Communicator>> made_;
};
inline SharedCommunicators* const kSharedCommunicators =
    static_cast<SharedCommunicators*>(testing::AddGlobalTestEnvironment(new SharedCommunicators));
#endif

// Errors of all ranks as text, "" where a rank ended well.
inline std::vector<std::string> errors_of_ranks(const Mesh& mesh, const CommOptions& options,
                                                const std::vector<GroupRequest>& groups, const Body& body) {
  const auto errors = try_thread_ranks(mesh.world_size(), [&](int rank, Store store) {
    Communicator communicator(mesh, rank, store, options, groups);
    body(communicator);
    communicator.close();
  });
  std::vector<std::string> texts;
  for (const auto& error : errors) {
    texts.emplace_back();
    try {
      if (error) std::rethrow_exception(error);
    } catch (const std::exception& thrown) {
      texts.back() = thrown.what();
    }
  }
  return texts;
}

inline void on_ranks(const Mesh& mesh, const CommOptions& options, const std::vector<GroupRequest>& groups,
                     const Body& body) {
#ifdef ORTHANT_TEST_NCCL
  ASSERT_TRUE(groups.empty()) << "the communicator that tests share has none";
  body(kSharedCommunicators->get(mesh, options));
#else
  run_thread_ranks(mesh.world_size(), [&](int rank, Store store) {
    Communicator communicator(mesh, rank, store, options, groups);
    body(communicator);
    communicator.close();
  });
#endif
}

inline void on_ranks(int world_size, const CommOptions& options, const Body& body) {
  on_ranks(Mesh(Degrees{{Axis::dp, world_size}}), options, {}, body);
}

}  // namespace orthant::comm::test
