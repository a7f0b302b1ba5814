// Note [Two libraries]: libtorch multiplies float32 matrices on the CPU with MKL. Its oneDNN, which it keeps for narrow
// types, is 7 to 10% faster from a few million multiplications on (AVX-512 without Intel's name on it), and slower
// below. It keeps the code that it makes for each shape, hundreds of kilobytes, for up to a thousand shapes: row counts
// that come by chance, as those of a generation's steps, are MKL's. The function is exported but in no header; where a
// libtorch lacks it the weak reference is null and MKL does it all, as it does on a processor without the instructions
// that the function asks for whatever the type. Which library multiplies depends on sizes alone, so bits do not depend
// on the schedule.
#include "orthant/ops/linear/matrix.h"

#include <ATen/ATen.h>

namespace at::native {

// result = beta * result + alpha * mat1 mat2
__attribute__((weak)) void mkldnn_matmul(const Tensor& mat1, const Tensor& mat2, const Tensor& result, float beta,
                                         float alpha);

}  // namespace at::native

namespace orthant::nn {
namespace {

constexpr double kFewMultiplications = 6e6;
constexpr std::int64_t kPlannedRows = 16;  // sizes that somebody chose are multiples of it

// As mkldnn_matmul() asks before it looks at the type.
bool has_narrow_types() {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#else
  return false;
#endif
}

bool suits_onednn(const at::Tensor& out, const at::Tensor& left) {
  static const bool usable = at::native::mkldnn_matmul != nullptr && has_narrow_types();
  return usable && out.is_cpu() && out.scalar_type() == at::kFloat && left.size(0) % kPlannedRows == 0 &&
         static_cast<double>(out.numel()) * static_cast<double>(left.size(1)) > kFewMultiplications &&
         at::globalContext().userEnabledMkldnn() && at::hasMKLDNN();
}

}  // namespace

void multiply_into(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right, bool add) {
  if (suits_onednn(out, left)) {
    at::native::mkldnn_matmul(left, right, out, add ? 1.0F : 0.0F, 1.0F);
    return;
  }
  at::Tensor target = out;
  if (add) {
    target.addmm_(left, right);
  } else {
    at::mm_out(target, left, right);
  }
}

at::Tensor matrix_times(const at::Tensor& left, const at::Tensor& right) {
  auto out = at::empty({left.size(0), right.size(1)}, left.options());
  multiply_into(out, left, right, /*add=*/false);
  return out;
}

}  // namespace orthant::nn
