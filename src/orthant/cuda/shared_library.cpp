#include "orthant/cuda/shared_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "orthant/base/error.h"

namespace orthant::cuda {

SharedLibrary::SharedLibrary(const std::vector<std::string>& names) {
  std::string tried;
  for (const auto& name : names) {
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (handle_ != nullptr) {
      name_ = name;
      return;
    }
    const char* const reason = dlerror();
    tried += fmt::format("{}{}", tried.empty() ? "" : "; ", reason == nullptr ? name : reason);
  }
  throw ConfigError(fmt::format("a library for CUDA devices does not open: {}", tried),
                    {.remedy = "install a CUDA wheel of torch and a driver, or set --device cpu"});
}

void* SharedLibrary::symbol(const char* name) const {
  void* const found = dlsym(handle_, name);
  if (found != nullptr) return found;
  throw ConfigError(fmt::format("{} has no function {}", name_, name),
                    {.remedy = "install a CUDA wheel of torch of version 2.11 or newer"});
}

}  // namespace orthant::cuda
