// A CUDA driver that runs nothing: what the library of kernels asks of one, for machines without a card. It counts.
#include <cstdint>

namespace {
std::uint64_t loads = 0;
std::uint64_t launches = 0;
int some_memory = 0;
void* first_context = nullptr;
thread_local void* current_context = nullptr;
}  // namespace

extern "C" {

int cuGetErrorString(int /*result*/, const char** text) {
  *text = "a stub does not fail";
  return 0;
}
// Each thread has its own, and only the first one of the process has one from the beginning.
int cuCtxGetCurrent(void** context) {
  if (first_context == nullptr) first_context = current_context = &some_memory;
  *context = current_context;
  return 0;
}
int cuCtxSetCurrent(void* context) {
  current_context = context;
  return 0;
}
int cuCtxGetDevice(int* device) {
  *device = 0;
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int /*device*/) {
  *value = attribute == 75 ? 9 : attribute == 97 ? 232448 : 0;  // compute capability 9.0, shared memory
  return 0;
}
int cuDeviceGetName(char* name, int /*bytes*/, int /*device*/) {
  *name = 0;
  return 0;
}
int cuModuleLoadData(void** module, const void* /*code*/) {
  if (current_context == nullptr) return 201;
  ++loads;
  *module = &some_memory;
  return 0;
}
int cuModuleGetFunction(void** function, void* /*module*/, const char* /*name*/) {
  *function = &some_memory;
  return 0;
}
int cuFuncSetAttribute(void* /*function*/, int /*attribute*/, int /*value*/) {
  return 0;
}
int cuLaunchKernel(void* /*function*/, unsigned /*x*/, unsigned /*y*/, unsigned /*z*/, unsigned /*tx*/, unsigned /*ty*/,
                   unsigned /*tz*/, unsigned /*shared*/, void* /*stream*/, void** /*arguments*/, void** /*extra*/) {
  if (current_context == nullptr) return 201;
  ++launches;
  return 0;
}
int cuLaunchKernelEx(const void* /*config*/, void* /*function*/, void** /*arguments*/, void** /*extra*/) {
  if (current_context == nullptr) return 201;
  ++launches;
  return 0;
}
std::uint64_t stub_loads() {
  return loads;
}
std::uint64_t stub_launches() {
  return launches;
}
}
