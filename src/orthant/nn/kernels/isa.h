// Kernels on rows of plain memory, compiled once for each instruction set and chosen once at run time. They see no
// torch.
//
// Note [Kernels]: a group of kernels is a folder's
//   cpu_kernels.h    struct ThingKernels<T> of function pointers, for T = float and double, and
//                    ORTHANT_KERNELS(ThingKernels<float>); ORTHANT_KERNELS(ThingKernels<double>);
//   cpu_kernels.inc  the source, in namespace orthant::nn::kernels; its functions lie in an unnamed namespace and work
//                    on vectors of ORTHANT_VECTOR_BYTES (vectors.inc); it ends with `void fill(ORTHANT_TARGET,
//                    ThingKernels<T>& table)` for both T, which sets the pointers
// and its name in orthant_cpu_kernels() of CMakeLists.txt. `kernels<ThingKernels<float>>()` is the table.
// A .inc calls nothing inline from std or torch that may be emitted as a function: the linker could keep the copy that
// needs AVX-512 for everybody.
#pragma once

namespace orthant::nn::kernels {

enum class Isa { plain, avx2, avx512 };

bool supported(Isa isa);
Isa best_isa();

// Of the vectors that its kernels work on.
constexpr int vector_bytes(Isa isa) {
  return isa == Isa::avx512 ? 64 : isa == Isa::avx2 ? 32 : 16;
}

// Name the overloads of fill().
struct Plain {};
struct Avx2 {};
struct Avx512 {};

#if defined(__x86_64__)
#define ORTHANT_KERNELS(Table)    \
  void fill(Plain, Table& table); \
  void fill(Avx2, Table& table);  \
  void fill(Avx512, Table& table)
#else
#define ORTHANT_KERNELS(Table) void fill(Plain, Table& table)
#endif

// The table of one instruction set, which must be supported.
template <class Table>
Table kernels_of(Isa isa) {
  Table table;
#if defined(__x86_64__)
  if (isa == Isa::avx512) {
    fill(Avx512{}, table);
    return table;
  }
  if (isa == Isa::avx2) {
    fill(Avx2{}, table);
    return table;
  }
#endif
  fill(Plain{}, table);
  return table;
}

// The table of the best instruction set of this CPU.
template <class Table>
const Table& kernels() {
  static const Table table = kernels_of<Table>(best_isa());
  return table;
}

}  // namespace orthant::nn::kernels
