// The compiler for kernels: NVRTC, which every CUDA wheel of torch brings, opened at run time. Needs no card. Local.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "orthant/cuda/shared_library.h"

namespace orthant::cuda {

struct CompiledKernels {
  std::string cubin;
  std::string log;  // with "--ptxas-options=--verbose" among the options: registers and spills of each kernel
};

class Nvrtc {
 public:
  // `path`: of libnvrtc itself; empty: the one that libtorch was built with. ConfigError when there is none.
  explicit Nvrtc(const std::string& path = {});

  std::string version() const;  // "13.0"

  // Machine code of all kernels in `source` for one architecture ("sm_90a"). InternalError with the compiler's own
  // messages when the source is not right. Any thread.
  CompiledKernels compile(std::string_view source, std::string_view name, const std::string& architecture,
                          const std::vector<std::string>& options) const;

 private:
  SharedLibrary library_;
};

}  // namespace orthant::cuda
