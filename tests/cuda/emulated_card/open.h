// Opens the emulated card (Note [Emulated card]) where ORTHANT_EMULATED_CARD names its folder: the product opens a
// driver and a compiler by name alone, and finds these open already.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>

namespace emulated_card {

inline const char* folder() {
  return std::getenv("ORTHANT_EMULATED_CARD");
}

inline void open() {
  for (const char* const name : {"libcuda.so.1", "libcaffe2_nvrtc.so"}) {
    if (dlopen((std::filesystem::path(folder()) / name).c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
      throw std::runtime_error(dlerror());
    }
  }
}

}  // namespace emulated_card
