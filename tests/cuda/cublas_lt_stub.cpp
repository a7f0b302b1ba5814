// A cuBLASLt on the host: what cuda/cublas_lt.cpp asks of it, computed one element after the other on matrices of
// float32 that lie column by column. It has two plans; each keeps its number in its first word.
#include <cstdint>
#include <cstring>
#include <map>

namespace {

struct Matrix {
  std::uint64_t rows;
  std::uint64_t columns;
  std::int64_t stride;
};
using Attributes = std::map<int, std::uint64_t>;
struct Answer {
  std::uint64_t words[8];
  std::size_t workspace_bytes;
  int status;
  float waves;
  int reserved[4];
};

constexpr std::uint64_t kPlans = 2;
constexpr int kNotSupported = 15;
int handle = 0;

int set(void* object, int attribute, const void* value, std::size_t bytes) {
  std::uint64_t number = 0;
  std::memcpy(&number, value, bytes);
  (*static_cast<Attributes*>(object))[attribute] = number;
  return 0;
}

}  // namespace

extern "C" {

std::size_t cublasLtGetVersion() {
  return 130100;
}
const char* cublasLtGetStatusString(int status) {
  return status == kNotSupported ? "not supported" : "a status";
}
int cublasLtCreate(void** made) {
  *made = &handle;
  return 0;
}
int cublasLtMatmulDescCreate(void** made, int compute, int scale) {
  *made = new Attributes{{0, static_cast<std::uint64_t>(compute)}, {1, static_cast<std::uint64_t>(scale)}};
  return 0;
}
int cublasLtMatmulDescSetAttribute(void* product, int attribute, const void* value, std::size_t bytes) {
  return set(product, attribute, value, bytes);
}
int cublasLtMatrixLayoutCreate(void** made, int /*type*/, std::uint64_t rows, std::uint64_t columns,
                               std::int64_t stride) {
  if (stride < static_cast<std::int64_t>(rows)) return 7;
  *made = new Matrix{rows, columns, stride};
  return 0;
}
int cublasLtMatmulDescDestroy(void* product) {
  delete static_cast<Attributes*>(product);
  return 0;
}
int cublasLtMatrixLayoutDestroy(void* matrix) {
  delete static_cast<Matrix*>(matrix);
  return 0;
}
int cublasLtMatmulPreferenceCreate(void** made) {
  *made = new Attributes;
  return 0;
}
int cublasLtMatmulPreferenceSetAttribute(void* preference, int attribute, const void* value, std::size_t bytes) {
  return set(preference, attribute, value, bytes);
}
int cublasLtMatmulPreferenceDestroy(void* preference) {
  delete static_cast<Attributes*>(preference);
  return 0;
}
int cublasLtMatmulAlgoGetHeuristic(void*, void*, void* a, void*, void*, void*, void*, int most, void* all, int* found) {
  auto* const answers = static_cast<Answer*>(all);
  *found = 0;
  if (static_cast<Matrix*>(a)->rows == 13) return kNotSupported;
  for (; *found < most && *found < static_cast<int>(kPlans); ++*found) {
    answers[*found] = {{static_cast<std::uint64_t>(*found)}, static_cast<std::size_t>(*found) * 64, 0, 0, {}};
  }
  return 0;
}
int cublasLtMatmulAlgoCheck(void*, void*, void*, void*, void*, void*, const void* plan, void* one) {
  auto* const answer = static_cast<Answer*>(one);
  *answer = {};
  std::memcpy(answer->words, plan, sizeof answer->words);
  answer->workspace_bytes = answer->words[0] * 64;
  return answer->words[0] < kPlans ? 0 : kNotSupported;
}
int cublasLtMatmul(void*, void* product, const void* alpha, const void* a_data, void* a_matrix, const void* b_data,
                   void* b_matrix, const void* beta, const void* c_data, void* c_matrix, void* d_data, void* d_matrix,
                   const void* plan, void* workspace, std::size_t workspace_bytes, void* /*stream*/) {
  std::uint64_t number = 0;
  std::memcpy(&number, plan, sizeof number);
  if (number >= kPlans || (number > 0 && (workspace == nullptr || workspace_bytes < number * 64))) return kNotSupported;
  auto& attributes = *static_cast<Attributes*>(product);
  const auto& a = *static_cast<Matrix*>(a_matrix);
  const auto& b = *static_cast<Matrix*>(b_matrix);
  const auto& c = *static_cast<Matrix*>(c_matrix);
  const auto& d = *static_cast<Matrix*>(d_matrix);
  const bool turn_a = attributes[3] != 0, turn_b = attributes[4] != 0;
  const auto depth = turn_a ? a.rows : a.columns;
  if ((turn_a ? a.columns : a.rows) != d.rows || (turn_b ? b.rows : b.columns) != d.columns ||
      (turn_b ? b.columns : b.rows) != depth) {
    return 7;
  }
  const auto at = [](const void* data, const Matrix& matrix, std::uint64_t row, std::uint64_t column, bool turned) {
    const auto place = turned ? row * static_cast<std::uint64_t>(matrix.stride) + column
                              : column * static_cast<std::uint64_t>(matrix.stride) + row;
    return static_cast<const float*>(data)[place];
  };
  const auto* const bias = attributes[7] == 4 ? reinterpret_cast<const float*>(attributes[8]) : nullptr;
  const float one = *static_cast<const float*>(alpha), kept = *static_cast<const float*>(beta);
  for (std::uint64_t column = 0; column < d.columns; ++column) {
    for (std::uint64_t row = 0; row < d.rows; ++row) {
      float sum = 0;
      for (std::uint64_t k = 0; k < depth; ++k) {
        sum += at(a_data, a, row, k, turn_a) * at(b_data, b, k, column, turn_b);
      }
      sum = one * sum + (kept == 0 ? 0 : kept * at(c_data, c, row, column, false)) + (bias == nullptr ? 0 : bias[row]);
      static_cast<float*>(d_data)[column * static_cast<std::uint64_t>(d.stride) + row] = sum;
    }
  }
  return 0;
}
}
