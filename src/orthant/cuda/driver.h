// The CUDA driver, opened at run time: loading machine code and starting kernels, nothing else. Contexts, streams and
// memory are libtorch's. Local.
#pragma once

#include <cstdint>
#include <string>

#include "orthant/cuda/shared_library.h"

namespace orthant::cuda {

using Module = void*;
using Function = void*;
using StreamHandle = void*;  // as libtorch gives it: c10::Stream::native_handle()

struct LaunchShape {
  std::uint32_t blocks = 1;
  std::uint32_t blocks_y = 1;
  std::uint32_t blocks_z = 1;
  std::uint32_t threads = 1;  // of a block
  std::uint32_t shared_bytes = 0;
  StreamHandle stream = nullptr;
  // Blocks may begin while the last ones of the kernel before it on the stream, which orthant started, still run: it
  // waits itself before it reads what that one wrote. From sm_90 on; elsewhere it begins after that one's end.
  bool early = false;
};

class Driver {
 public:
  // In a thread that has a context: libtorch has made something on the device. ConfigError when this machine has no
  // driver.
  Driver();

  // 9 for "sm_90a".
  int generation() const;
  // "sm_90a" for the device of the calling thread; features that belong to one generation alone are switched on.
  std::string architecture() const;

  // That a block of threads may have on the device of the calling thread.
  std::int64_t most_shared_bytes() const;

  int multiprocessors() const;
  // "NVIDIA H200 with 132 multiprocessors": the device of the calling thread.
  std::string card() const;

  // Where the calling thread has no context, it gets the one that this object was made in.
  void enter_context() const;

  // Into the calling thread's context, or where it has none, such as a thread of autograd that has only been handed
  // memory so far, into the one that this object was made in. InternalError with the driver's words, as of all below.
  Module load(const std::string& cubin) const;
  Function function(Module module, const char* name) const;
  void allow_shared_bytes(Function function, std::uint32_t bytes) const;
  // `arguments[i]` points to the i-th argument. Returns before the kernel runs.
  void launch(Function function, const LaunchShape& shape, void** arguments) const;

 private:
  using Result = int;
  void check(Result result, const char* what) const;

  SharedLibrary library_;
  void* context_ = nullptr;
  Result (*get_error_)(Result, const char**) = nullptr;
  Result (*get_context_)(void**) = nullptr;
  Result (*set_context_)(void*) = nullptr;
  Result (*get_device_)(int*) = nullptr;
  Result (*get_attribute_)(int*, int, int) = nullptr;
  Result (*get_name_)(char*, int, int) = nullptr;
  Result (*load_)(Module*, const void*) = nullptr;
  Result (*get_function_)(Function*, Module, const char*) = nullptr;
  Result (*set_attribute_)(Function, int, int) = nullptr;
  Result (*launch_)(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, StreamHandle,
                    void**, void**) = nullptr;
  Result (*launch_extended_)(const void*, Function, void**, void**) = nullptr;
};

}  // namespace orthant::cuda
