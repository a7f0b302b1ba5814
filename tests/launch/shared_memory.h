// Memory that a test shares with the processes it forks.
#pragma once

#include <sys/mman.h>

#include <new>

namespace orthant::launch {

template <typename T>
class SharedMemory {
 public:
  SharedMemory()
      : data_(new(mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) T{}) {}
  ~SharedMemory() { munmap(data_, sizeof(T)); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  T* operator->() const { return data_; }

 private:
  T* data_;
};

}  // namespace orthant::launch
