// Note [Columns first]: cuBLASLt's matrices lie column by column, ours row by row. Memory of ours is its transposed
// matrix, so it is asked for out^T = right^T left^T: its A is our right operand, its B our left one, and its bias, one
// number for each row of out^T, is ours, one for each column of out.
#include "orthant/cuda/cublas_lt.h"

#include <fmt/format.h>

#include "orthant/base/error.h"

namespace orthant::cuda {
namespace {

// Numbers of the library's interface.
constexpr int kTurnA = 3;
constexpr int kTurnB = 4;
constexpr int kEpilogue = 7;
constexpr int kBiasAddress = 8;
constexpr std::uint32_t kBiasEpilogue = 4;
constexpr int kMostWorkspace = 1;
constexpr int kReductionSchemes = 3;
constexpr std::uint32_t kReduceInComputeType = 2;
constexpr int kAlignmentA = 5;  // of B, C and D: the numbers after it
constexpr int kCompute32 = 68;
constexpr int kComputeTf32 = 77;
constexpr int kReal32 = 0;

constexpr std::uint64_t kMostWorkspaceBytes = 32ULL << 20;

int type_of(Element element) {
  constexpr int kReal16 = 2, kRealB16 = 14;
  return element == Element::bfloat16 ? kRealB16 : element == Element::float16 ? kReal16 : kReal32;
}

const char* name_of(Element element) {
  return element == Element::bfloat16 ? "bfloat16" : element == Element::float16 ? "float16" : "float32";
}

}  // namespace

std::string to_text(const Product& product) {
  return fmt::format("{}{} [{}, {}]{} [{}, {}]{}{}{}{}", name_of(product.in), product.tf32 ? " in TF32" : "",
                     product.left_turned ? product.depth : product.rows,
                     product.left_turned ? product.rows : product.depth, product.left_turned ? "^T" : "",
                     product.right_turned ? product.columns : product.depth,
                     product.right_turned ? product.depth : product.columns, product.right_turned ? "^T" : "",
                     product.adds ? ", added" : "", product.has_bias ? " + bias" : "",
                     product.out == product.in ? std::string() : fmt::format(" into {}", name_of(product.out)));
}

struct CublasLt::Descriptors {
  void* product = nullptr;
  void* a = nullptr;
  void* b = nullptr;
  void* out = nullptr;  // C and D
};

struct CublasLt::Answer {
  std::array<std::uint64_t, 8> words = {};
  std::size_t workspace_bytes = 0;
  Status status = 0;
  float waves = 0;
  std::array<int, 4> reserved = {};
};

CublasLt::CublasLt() : library_({"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}) {
  library_.find(get_version_, "cublasLtGetVersion");
  library_.find(status_text_, "cublasLtGetStatusString");
  library_.find(create_, "cublasLtCreate");
  library_.find(make_product_, "cublasLtMatmulDescCreate");
  library_.find(set_product_, "cublasLtMatmulDescSetAttribute");
  library_.find(make_matrix_, "cublasLtMatrixLayoutCreate");
  library_.find(end_product_, "cublasLtMatmulDescDestroy");
  library_.find(end_matrix_, "cublasLtMatrixLayoutDestroy");
  library_.find(make_preference_, "cublasLtMatmulPreferenceCreate");
  library_.find(set_preference_, "cublasLtMatmulPreferenceSetAttribute");
  library_.find(end_preference_, "cublasLtMatmulPreferenceDestroy");
  library_.find(ask_, "cublasLtMatmulAlgoGetHeuristic");
  library_.find(check_plan_, "cublasLtMatmulAlgoCheck");
  library_.find(multiply_, "cublasLtMatmul");
  check(create_(&handle_), "starting cuBLASLt");
}

// The handle stays until the process ends, as the library does: the context that it belongs to may be gone.
CublasLt::~CublasLt() {
  for (const auto& [product, made] : made_) {
    end_product_(made->product);
    for (void* const matrix : {made->a, made->b, made->out}) end_matrix_(matrix);
  }
}

std::string CublasLt::version() const {
  return fmt::format("cuBLASLt {}", get_version_());
}

void CublasLt::check(Status status, const char* what) const {
  if (status == 0) return;
  throw InternalError(fmt::format("{}: cuBLASLt says: {} ({})", what, status_text_(status), status));
}

void CublasLt::set(void* descriptor, int attribute, const void* value, std::size_t bytes) const {
  check(set_product_(descriptor, attribute, value, bytes), "describing a product");
}

const CublasLt::Descriptors& CublasLt::descriptors(const Product& product) const {
  const auto known = made_.find(product);
  if (known != made_.end()) return *known->second;
  auto made = std::make_unique<Descriptors>();
  check(make_product_(&made->product, product.tf32 ? kComputeTf32 : kCompute32, kReal32), "describing a product");
  const std::int32_t turn_a = product.right_turned ? 1 : 0, turn_b = product.left_turned ? 1 : 0;
  set(made->product, kTurnA, &turn_a, sizeof turn_a);
  set(made->product, kTurnB, &turn_b, sizeof turn_b);
  if (product.has_bias) {
    set(made->product, kEpilogue, &kBiasEpilogue, sizeof kBiasEpilogue);
    // Plans are chosen by the address's alignment.
    const std::uintptr_t address = static_cast<std::uintptr_t>(product.alignment);
    set(made->product, kBiasAddress, &address, sizeof address);
  }
  const auto matrix = [&](void*& made_matrix, Element type, std::int64_t rows, std::int64_t columns, bool turned,
                          std::int64_t stride) {
    if (turned) std::swap(rows, columns);
    check(make_matrix_(&made_matrix, type_of(type), static_cast<std::uint64_t>(rows),
                       static_cast<std::uint64_t>(columns), stride),
          "describing a matrix");
  };
  matrix(made->a, product.in, product.columns, product.depth, product.right_turned, product.right_stride);
  matrix(made->b, product.in, product.depth, product.rows, product.left_turned, product.left_stride);
  matrix(made->out, product.out, product.columns, product.rows, /*turned=*/false, product.out_stride);
  return *made_.emplace(product, std::move(made)).first->second;
}

std::vector<ProductPlan> CublasLt::plans(const Product& product, int most) const {
  const std::lock_guard lock(mutex_);
  const auto& made = descriptors(product);
  void* preference = nullptr;
  check(make_preference_(&preference), "asking for plans");
  const auto alignment = static_cast<std::uint32_t>(product.alignment);
  Status status = set_preference_(preference, kMostWorkspace, &kMostWorkspaceBytes, sizeof kMostWorkspaceBytes);
  if (status == 0) {
    status = set_preference_(preference, kReductionSchemes, &kReduceInComputeType, sizeof kReduceInComputeType);
  }
  for (int matrix = 0; matrix < 4 && status == 0; ++matrix) {
    status = set_preference_(preference, kAlignmentA + matrix, &alignment, sizeof alignment);
  }
  std::vector<Answer> answers(static_cast<std::size_t>(most));
  int found = 0;
  // "Not supported" is an answer: there is no plan.
  if (status == 0 &&
      ask_(handle_, made.product, made.a, made.b, made.out, made.out, preference, most, answers.data(), &found) != 0) {
    found = 0;
  }
  end_preference_(preference);
  check(status, "asking for plans");
  std::vector<ProductPlan> plans;
  for (int i = 0; i < found; ++i) {
    const auto& answer = answers[static_cast<std::size_t>(i)];
    if (answer.status == 0) plans.push_back({answer.words, answer.workspace_bytes});
  }
  return plans;
}

bool CublasLt::accepts(const Product& product, const ProductPlan& plan) const {
  const std::lock_guard lock(mutex_);
  const auto& made = descriptors(product);
  Answer answer;
  const Status status =
      check_plan_(handle_, made.product, made.a, made.b, made.out, made.out, plan.words.data(), &answer);
  return status == 0 && answer.workspace_bytes <= plan.workspace_bytes && plan.workspace_bytes <= kMostWorkspaceBytes;
}

void CublasLt::multiply(const Product& product, const ProductPlan& plan, const ProductMemory& memory,
                        StreamHandle stream) const {
  const std::lock_guard lock(mutex_);
  const auto& made = descriptors(product);
  if (product.has_bias) set(made.product, kBiasAddress, &memory.bias, sizeof memory.bias);
  const float one = 1, added = product.adds ? 1 : 0;
  const void* const c = product.adds ? memory.added : memory.out;
  check(multiply_(handle_, made.product, &one, memory.right, made.a, memory.left, made.b, &added, c, made.out,
                  memory.out, made.out, plan.words.data(), memory.workspace, plan.workspace_bytes, stream),
        to_text(product).c_str());
}

}  // namespace orthant::cuda
