#include "orthant/cli/held_output.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <iostream>

#include "orthant/base/error.h"

namespace orthant::cli {

HeldOutput::HeldOutput() : memory_(memfd_create("orthant-output", MFD_CLOEXEC)) {
  if (!memory_) throw CommError("the system gives no memory to hold the ranks' output back");
}

void HeldOutput::drop() const {
  if (ftruncate(memory_.get(), 0) == 0) lseek(memory_.get(), 0, SEEK_SET);
}

void HeldOutput::tell() const {
  lseek(memory_.get(), 0, SEEK_SET);
  std::array<char, 4096> chunk;
  for (ssize_t count = 0; (count = read(memory_.get(), chunk.data(), chunk.size())) > 0;) {
    std::cout.write(chunk.data(), count);
  }
  std::cout << std::flush;
}

}  // namespace orthant::cli
