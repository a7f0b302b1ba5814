// What rank 0 writes to stdout while it may yet be started again: only the last attempt's is told, so that a rank that
// dies after the result was written, or an attempt that ends for another one, does not lead to two of them.
#pragma once

#include "orthant/launch/sockets.h"

namespace orthant::cli {

class HeldOutput {
 public:
  // CommError when the system gives no memory.
  HeldOutput();

  // Where ranks write.
  int fd() const { return memory_.get(); }

  // Forgets what was written.
  void drop() const;

  // Writes it to stdout.
  void tell() const;

 private:
  launch::Fd memory_;
};

}  // namespace orthant::cli
