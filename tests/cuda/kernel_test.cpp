// The library of kernels with NVRTC and a driver that runs nothing.
#include "orthant/cuda/kernel.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "files/temporary_folder.h"
#include "orthant/base/error.h"

namespace orthant::cuda::kernel_test {

const Source kScale{"scale.cu",
                    "extern \"C\" __global__ void scale(float* x, float by) { x[threadIdx.x] *= by + SHIFT; }\n"
                    "extern \"C\" __global__ void clear(float* x) { x[threadIdx.x] = 0; }\n",
                    {"SHIFT"}};
const Source kWrong{"wrong.cu", "extern \"C\" __global__ void wrong() { no_such_thing(); }\n", {}};

std::uint64_t ask_stub(const char* name) {
  const auto function = reinterpret_cast<std::uint64_t (*)()>(dlsym(RTLD_DEFAULT, name));
  return function == nullptr ? 0 : function();
}

TEST(KernelLibrary, CompilesOnFirstUseAndCountsLaunches) {
  KernelLibrary library;
  ASSERT_TRUE(library.available());
  const Kernel& scale = library.get(kScale, "scale", {1});
  EXPECT_EQ(&scale, &library.get(kScale, "scale", {1}));
  EXPECT_NE(&scale, &library.get(kScale, "scale", {2}));
  library.get(kScale, "clear", {1});
  EXPECT_EQ(library.num_compiled(), 2U);
  float value = 1;
  scale({.blocks = 1, .threads = 1}, &value, 2.0F);
  scale({.blocks = 1, .threads = 1, .shared_bytes = 100000}, &value, 2.0F);
  EXPECT_EQ(library.num_launches("scale"), 2U);
  EXPECT_EQ(library.num_launches("clear"), 0U);
  EXPECT_EQ(library.num_launches(), 2U);
  EXPECT_GE(ask_stub("stub_launches"), 2U);
  EXPECT_EQ(library.most_shared_bytes(), 232448);
}

TEST(KernelLibrary, PreparesSideBySideAndKeepsCodeOnDisk) {
  const test::TemporaryFolder folder;
  std::vector<std::string> said;
  const KernelLibrary::Options options{folder.path() / "kernels",
                                       [&](const std::string& text) { said.push_back(text); }};
  const std::vector<KernelLibrary::Variant> variants = {{&kScale, {1}}, {&kScale, {2}}, {&kScale, {3}}, {&kScale, {1}}};
  KernelLibrary first;
  first.configure(options);
  first.prepare(variants);
  EXPECT_EQ(first.num_compiled(), 3U);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_TRUE(said[0].starts_with("compiled 3 kernels for sm_90a in ")) << said[0];
  first.get(kScale, "scale", {2});
  EXPECT_EQ(first.num_compiled(), 3U);
  KernelLibrary second;
  second.configure(options);
  second.prepare(variants);
  second.get(kScale, "scale", {3});
  EXPECT_EQ(second.num_compiled(), 0U);
  EXPECT_EQ(said.size(), 1U);
}

TEST(KernelLibrary, ManyThreadsGetOneKernel) {
  KernelLibrary library;
  ASSERT_TRUE(library.available());  // in a thread that has a context
  std::vector<const Kernel*> got(8);
  {
    std::vector<std::jthread> threads;
    for (auto& kernel : got) threads.emplace_back([&] { kernel = &library.get(kScale, "scale", {4}); });
  }
  for (const auto* kernel : got) EXPECT_EQ(kernel, got.front());
  EXPECT_EQ(library.num_compiled(), 1U);
}

// A thread of autograd may start a kernel before anything of libtorch has given it a context.
TEST(KernelLibrary, ThreadsWithoutAContextGetOne) {
  KernelLibrary library;
  ASSERT_TRUE(library.available());
  std::thread([&] {
    float value = 1;
    library.get(kScale, "scale", {5})({.blocks = 1, .threads = 1}, &value, 2.0F);
  }).join();
  EXPECT_EQ(library.num_launches("scale"), 1U);
}

TEST(KernelLibrary, ShowsWhatTheCompilerSays) {
  KernelLibrary library;
  try {
    library.get(kWrong, "wrong", {});
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("no_such_thing"), std::string::npos) << error.what();
  }
  EXPECT_THROW(library.prepare({{&kWrong, {}}}), InternalError);
}

TEST(KernelLibrary, SaysEachFallbackOnce) {
  std::vector<std::string> said;
  KernelLibrary library;
  library.configure({{}, [&](const std::string& text) { said.push_back(text); }});
  library.say_once("a takes plain formulas");
  library.say_once("a takes plain formulas");
  library.say_once("b takes plain formulas");
  EXPECT_EQ(said.size(), 2U);
}

}  // namespace orthant::cuda::kernel_test
