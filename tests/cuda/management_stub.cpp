// The part of the driver's management library that is asked for free memory, with two cards.
#include <cstring>

namespace {

struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

Memory cards[] = {{100, 70, 30}, {100, 20, 80}};

}  // namespace

extern "C" {

int nvmlInit_v2() {
  return 0;
}

int nvmlShutdown() {
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  if (index >= 2) return 2;
  *handle = &cards[index];
  return 0;
}

int nvmlDeviceGetHandleByUUID(const char* name, void** handle) {
  if (std::strcmp(name, "GPU-second") != 0) return 6;
  *handle = &cards[1];
  return 0;
}

int nvmlDeviceGetMemoryInfo(void* handle, Memory* memory) {
  *memory = *static_cast<Memory*>(handle);
  return 0;
}
}
