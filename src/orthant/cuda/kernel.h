// Kernels of a CUDA device, by source, function and variant: compiled on first use, kept on disk, started on a stream.
//
// Note [Device kernels]: a source is a `.cu` file beside the functions it serves, embedded in the program as text
// (cmake/OrthantKernels.cmake) behind prelude.cu, which all share. It includes parts (.inc) beside it or in cuda/.
// Macros choose a variant: the element type, sizes that are worth a specialisation. A variant is compiled by NVRTC for
// the card at hand, so building orthant needs no CUDA toolkit. The first lines of a source name its worst variants with
// the registers they may take, and all that there are; a test compiles the worst for several architectures on machines
// without a card, and with ORTHANT_EXHAUSTIVE=1 all:
//   // variant ELEMENT=0 VECTORS=8: at most 96 registers
//   // all ELEMENT=0,1,2 VECTORS=1,2,4,8
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "orthant/cuda/driver.h"

namespace orthant::cuda {

// Values of the macro ELEMENT: the type of a kernel's data.
enum class Element : int { bfloat16 = 0, float16 = 1, float32 = 2 };

// A source and the names of the macros that choose its variant.
struct Source {
  std::string_view name;
  std::string_view text;
  std::vector<std::string_view> macros;
};

// Values of a source's macros, in their order.
inline constexpr std::size_t kMaxMacros = 7;
using Values = std::array<int, kMaxMacros>;

class Kernel {
 public:
  Kernel(const Driver& driver, Function function) : driver_(driver), function_(function) {}

  // Arguments have the types of the kernel's parameters, or more members behind theirs. Returns before the kernel runs.
  template <class... Arguments>
  void operator()(const LaunchShape& shape, Arguments... arguments) const {
    void* pointers[] = {static_cast<void*>(&arguments)...};
    start(shape, pointers);
  }

  std::uint64_t num_launches() const { return launches_.load(std::memory_order_relaxed); }

 private:
  void start(const LaunchShape& shape, void** arguments) const;

  const Driver& driver_;
  Function function_;
  mutable std::atomic<std::uint64_t> launches_ = 0;
  mutable std::atomic<std::uint32_t> shared_bytes_ = 48 << 10;  // allowed so far
};

// Who makes kernels and where they are kept: one for a process, as CUDA's own contexts are. Any thread.
class KernelLibrary {
 public:
  static KernelLibrary& of_process();
  KernelLibrary();
  ~KernelLibrary();

  struct Options {
    std::filesystem::path cache_folder;                // empty: nothing is kept
    std::function<void(const std::string&)> say = {};  // progress and fallbacks, for people; empty: nobody listens
    bool on_host = false;  // for tests: the driver emulates a card that computes on the host's memory
  };
  void configure(Options options);
  // Whether kernels take the host's memory, not a device's.
  bool on_host() const { return on_host_.load(std::memory_order_relaxed); }

  // Whether kernels can be made here at all: there is a driver and a compiler. Says once why not.
  bool available();

  // That a kernel may have for each block of threads. available() is true.
  std::int64_t most_shared_bytes();
  // Blocks of threads that surely run at a time. available() is true.
  int multiprocessors();
  // What kernels are compiled for: "sm_90a". available() is true.
  const std::string& architecture();

  // Makes the variant when it is the first time. InternalError when the source is not right.
  const Kernel& get(const Source& source, const char* function, const Values& values);

  // Compiles these variants side by side, with a progress line; get() then only loads them.
  struct Variant {
    const Source* source;
    Values values;
  };
  void prepare(const std::vector<Variant>& variants);

  // "... takes plain formulas: WHY", once for each text.
  void say_once(const std::string& text);

  // Starts of all kernels of that name so far; of all names when empty.
  std::uint64_t num_launches(std::string_view function = {}) const;
  // Variants that were compiled by this process, not found on disk.
  std::uint64_t num_compiled() const { return compiled_; }

 private:
  struct Tools;
  using CodeKey = std::tuple<const Source*, Values>;
  std::string code(const Tools& tools, const CodeKey& key);
  Tools& tools();

  mutable std::mutex mutex_;
  Options options_;
  std::atomic<bool> on_host_ = false;
  bool tried_ = false;
  std::unique_ptr<Tools> tools_;  // null: not available
  std::map<CodeKey, std::string> codes_;
  std::map<CodeKey, Module> modules_;
  std::map<std::tuple<const Source*, std::string_view, Values>, std::unique_ptr<Kernel>> kernels_;
  std::vector<std::string> said_;
  std::atomic<std::uint64_t> compiled_ = 0;
};

// The kernel of this process's library.
const Kernel& kernel(const Source& source, const char* function, std::initializer_list<int> values);

// What a variant is compiled from: the shared prelude, then the source; and its options.
std::string full_text(const Source& source);
std::vector<std::string> compile_options(const Source& source, const Values& values);

}  // namespace orthant::cuda
