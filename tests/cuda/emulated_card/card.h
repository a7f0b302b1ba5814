// What compiled kernels ask of the emulated card: which thread they are, meetings of threads, shared memory. Kernels
// see this through device.h, the card defines it. No header of the C++ library: it would cost each kernel a second.
//
// Note [Emulated card]: kernels of a CUDA device, run on the host for their numbers. An emulated NVRTC (nvrtc.cpp)
// compiles a kernel's source as C++ for the host: device.h has CUDA's built-in functions, translate.cpp turns inline
// assembly into calls of them. An emulated driver (driver.cpp) runs blocks one after the other and a block's threads as
// fibers (block.cpp), each as far as it gets until it must meet others. Shared memory holds NaN before each block.
// In half of a kernel's launches, threads and blocks run in the opposite order, and asynchronous copies and products
// are there at once instead of at the last moment; and a warp goes as far ahead of the others as it can. So what is not
// ordered by a barrier or a wait shows in the numbers, or as two runs that differ in bits.
#pragma once

namespace emulated_card {

struct Index {
  unsigned x, y, z;
};

// Called once by the last one of those that meet, with what each of them brought: one pointer for each lane of the warp
// (thread of the block), null for those that have ended.
using Complete = void (*)(void** brought, int count);

}  // namespace emulated_card

extern "C" {

// Of the running thread.
extern emulated_card::Index threadIdx, blockIdx, blockDim, gridDim;

// Waits until every lane of the warp that has not ended does the same; so of all threads of the block. `what` names the
// instruction in messages. A meeting that cannot come about ends the launch.
void emulated_meet_warp(const char* what, emulated_card::Complete complete, void* brought);
void emulated_meet_block(const char* what, emulated_card::Complete complete, void* brought);

// Shared memory of the running block: static variables at a place of their own, and what the launch asked for. The
// address of an instruction is checked: `bytes` bytes inside of the latter, at a multiple of their number.
unsigned char* emulated_static_shared(unsigned place, unsigned bytes);
unsigned char* emulated_dynamic_shared();
unsigned emulated_shared_address(const void* pointer);
unsigned char* emulated_checked_shared(const char* what, unsigned address, unsigned bytes);

// Instructions: asynchronous copies of a thread in groups, and those of a warp on fragments of matrices.
void emulated_copy_async(unsigned to, const void* from, unsigned bytes, unsigned taken);
void emulated_commit_copies();
void emulated_await_copies(int newer);
void emulated_load_matrices(unsigned (&r)[4], unsigned from, bool transposed);
void emulated_multiply_add(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], bool bfloat16);

// Products of four warps together (wgmma). What a thread brings: 4 times columns / 8 sums, and the left factor, unless
// that is in shared memory, too. Descriptors are CUDA's; `by_rows`: sums go over rows of shared memory.
struct EmulatedProduct {
  float* d[128];
  unsigned a[4];
  bool a_is_shared;
  unsigned long long a_matrix, b_matrix;
  bool adds, a_by_rows, b_by_rows, bfloat16;
  int columns;
};
void emulated_multiply_async(const EmulatedProduct* product);
void emulated_commit_products();
void emulated_await_products(int newer);

// Ends the launch with this text.
[[noreturn]] void emulated_fail(const char* text);
}
