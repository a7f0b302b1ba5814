// The CUDA driver of the emulated card: what the library of kernels asks of one. A launch has run when it returns.
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/emulated_card/block.h"
#include "cuda/emulated_card/shared_memory.h"

namespace {

constexpr int kBadCode = 200;
constexpr int kNotFound = 500;
constexpr int kBadValue = 1;
constexpr int kBadLaunch = 719;

struct Function {
  std::string name;
  void (*run)(void** arguments);
  unsigned most_threads;
  unsigned launches = 0;
};

// Code that was loaded, until the process ends: debuggers and sanitizers read lines from there.
class ModuleFiles {
 public:
  ~ModuleFiles() {
    std::error_code ignored;
    for (const auto& file : files_) std::filesystem::remove(file, ignored);
  }
  const std::filesystem::path& next() {
    return files_.emplace_back(std::filesystem::temp_directory_path() /
                               fmt::format("emulated_card_{}_{}.so", getpid(), files_.size()));
  }

 private:
  std::vector<std::filesystem::path> files_;
};

std::mutex mutex;
ModuleFiles modules;
std::deque<Function> functions;  // that were asked for; they stay where they are
thread_local std::string error = "no error";
int context = 0;

int failed(int result, const std::string& text) {
  error = text;
  return result;
}

// Forth, back, back, forth, back, forth, forth, back, and so on: a test that runs one to eight launches twice has each
// of them, or some, in both orders.
bool next_runs_backwards(Function& function) {
  return std::popcount(function.launches++) % 2 == 1;
}

int run_grid(Function& function, const emulated_card::Index& blocks, unsigned threads, unsigned shared_bytes,
             void** arguments) {
  const bool backwards = next_runs_backwards(function);
  emulated_card::Block& block = emulated_card::Block::running();
  block.enter_launch();
  gridDim = blocks;
  blockDim = {threads, 1, 1};
  const std::uint64_t count = std::uint64_t{blocks.x} * blocks.y * blocks.z;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t place = backwards ? count - 1 - i : i;
    blockIdx = {static_cast<unsigned>(place % blocks.x), static_cast<unsigned>(place / blocks.x % blocks.y),
                static_cast<unsigned>(place / blocks.x / blocks.y)};
    emulated_card::clear_shared(shared_bytes);
    const auto problem = block.run(function.run, arguments, static_cast<int>(threads), backwards);
    if (!problem.empty()) {
      return failed(kBadLaunch, fmt::format("{}, block ({}, {}, {}), {}", function.name, blockIdx.x, blockIdx.y,
                                            blockIdx.z, problem));
    }
  }
  return 0;
}

}  // namespace

extern "C" {

int cuGetErrorString(int /*result*/, const char** text) {
  *text = error.c_str();
  return 0;
}
int cuCtxGetCurrent(void** current) {
  *current = &context;
  return 0;
}
int cuCtxSetCurrent(void* /*current*/) {
  return 0;
}
int cuCtxGetDevice(int* device) {
  *device = 0;
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int /*device*/) {
  constexpr int kMultiprocessors = 16, kCapabilityMajor = 75, kMostSharedBytes = 97;
  *value = attribute == kCapabilityMajor   ? 9
           : attribute == kMostSharedBytes ? static_cast<int>(emulated_card::kDynamicBytes)
           : attribute == kMultiprocessors ? 1
                                           : 0;
  return 0;
}
int cuDeviceGetName(char* name, int bytes, int /*device*/) {
  std::strncpy(name, "emulated card", static_cast<std::size_t>(bytes));
  return 0;
}

// `code` is what the emulated compiler wrote: eight bytes that count, and a shared object. The loader knows objects by
// name, so that each needs its own.
int cuModuleLoadData(void** module, const void* code) {
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, code, sizeof bytes);
  const std::lock_guard lock(mutex);
  const auto file = modules.next();
  std::ofstream(file, std::ios::binary)
      .write(static_cast<const char*>(code) + sizeof bytes, static_cast<std::streamsize>(bytes));
  *module = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  return *module != nullptr ? 0 : failed(kBadCode, dlerror());
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  void* const run = dlsym(module, fmt::format("emulated_run_{}", name).c_str());
  void* const most = dlsym(module, fmt::format("emulated_most_threads_{}", name).c_str());
  if (run == nullptr || most == nullptr) return failed(kNotFound, fmt::format("no kernel {}", name));
  const std::lock_guard lock(mutex);
  *function = &functions.emplace_back(
      Function{name, reinterpret_cast<void (*)(void**)>(run), reinterpret_cast<unsigned (*)()>(most)()});
  return 0;
}
int cuFuncSetAttribute(void* /*function*/, int attribute, int value) {
  constexpr int kMaxDynamicSharedBytes = 8;
  const bool fits = attribute == kMaxDynamicSharedBytes && value <= static_cast<int>(emulated_card::kDynamicBytes);
  return fits ? 0 : failed(kBadValue, fmt::format("attribute {} cannot be {}", attribute, value));
}
int cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned threads_y,
                   unsigned threads_z, unsigned shared_bytes, void* /*stream*/, void** arguments, void** /*extra*/) {
  auto& kernel = *static_cast<Function*>(function);
  const bool valid = x > 0 && y > 0 && z > 0 && y < 65536 && z < 65536 && threads > 0 &&
                     threads <= kernel.most_threads && threads_y == 1 && threads_z == 1 &&
                     shared_bytes <= emulated_card::kDynamicBytes;
  if (!valid) {
    return failed(kBadValue, fmt::format("{} cannot have {} x {} x {} blocks of {} threads (at most {}) and {} bytes",
                                         kernel.name, x, y, z, threads, kernel.most_threads, shared_bytes));
  }
  const std::lock_guard lock(mutex);
  return run_grid(kernel, {x, y, z}, threads, shared_bytes, arguments);
}
// Blocks run one after the other: a kernel that may begin early begins after the one before.
int cuLaunchKernelEx(const void* config, void* function, void** arguments, void** extra) {
  struct {
    unsigned x, y, z, threads, threads_y, threads_z, shared_bytes;
    void* stream;
  } shape;
  std::memcpy(&shape, config, sizeof shape);
  return cuLaunchKernel(function, shape.x, shape.y, shape.z, shape.threads, shape.threads_y, shape.threads_z,
                        shape.shared_bytes, shape.stream, arguments, extra);
}
}
