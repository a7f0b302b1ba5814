// Attention's heads on a CUDA device: rotation by our kernels (rotary.cu), scores and weighted sums by cuDNN or
// FlashAttention 2, both inside libtorch, or by our kernels (attention.cu) where probabilities are dropped or keys
// hidden.
//
// Note [Repeatable attention]: cuDNN is the fastest, but its backward adds in an order that differs from run to run.
// FlashAttention 2 has one that does not. Forward of either repeats to the bit, and both keep the same number per row,
// so a run that must repeat takes cuDNN's forward and the other's backward.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <fmt/format.h>

#include <cmath>

#include "orthant/nn/device_kernels.h"
#include "orthant/nn/device_variants.h"
#include "orthant/ops/attention/attention_heads.h"
#include "orthant/ops/attention/library_heads.h"

namespace orthant::cuda::sources {
extern const std::string_view rotary;
}

namespace orthant::nn::device {
namespace {

const cuda::Source kRotary{"ops/rotary/rotary.cu", cuda::sources::rotary, {"ELEMENT", "ALIGNED"}};

constexpr std::int64_t kMostChannels = 128;  // of a head, in cuDNN
constexpr std::int64_t kChannelStep = 8;

// What the kernels of rotary.cu take as Strided.
struct Strided {
  const void* data;
  std::int64_t row, head, position;

  explicit Strided(const at::Tensor& x)  // [rows, heads, sequence, size]
      : data(x.const_data_ptr()), row(x.stride(0)), head(x.stride(1)), position(x.stride(2)) {}
};

HeadViews views_of(const at::Tensor& qkv, const AttentionOptions& options) {
  const at::Tensor all =
      qkv.view({qkv.size(0), qkv.size(1), options.heads + 2 * options.kv_heads, options.head_size}).transpose(1, 2);
  return {all.narrow(1, 0, options.heads), all.narrow(1, options.heads, options.kv_heads),
          all.narrow(1, options.heads + options.kv_heads, options.kv_heads)};
}

std::int64_t num_pairs(const at::Tensor& qkv, std::int64_t heads, std::int64_t size) {
  return qkv.size(0) * qkv.size(1) * heads * ((size / 2 + lane(qkv) - 1) / lane(qkv));
}

double scale_of(const HeadViews& heads) {
  return 1 / std::sqrt(static_cast<double>(heads.q.size(3)));
}

// ATen's functions add in one order while this lives; memory they do not write stays as it is.
class OneOrder {
 public:
  OneOrder()
      : before_(at::globalContext().deterministicAlgorithms()),
        warned_(at::globalContext().deterministicAlgorithmsWarnOnly()),
        filled_(at::globalContext().deterministicFillUninitializedMemory()) {
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
    at::globalContext().setDeterministicFillUninitializedMemory(false);
  }
  ~OneOrder() {
    at::globalContext().setDeterministicAlgorithms(before_, warned_);
    at::globalContext().setDeterministicFillUninitializedMemory(filled_);
  }
  OneOrder(const OneOrder&) = delete;
  OneOrder& operator=(const OneOrder&) = delete;

 private:
  bool before_, warned_, filled_;
};

HeadViews repeatable_backward(const HeadViews& heads, const AttendedViews& attended, const at::Tensor& d_out,
                              bool causal) {
  const OneOrder guard;
  const at::Tensor none, unused = at::empty({2}, d_out.options().dtype(at::kLong));
  const auto tokens_first = [](const at::Tensor& x) { return x.transpose(1, 2); };
  auto [q, k, v] = at::_flash_attention_backward(tokens_first(d_out), tokens_first(heads.q), tokens_first(heads.k),
                                                 tokens_first(heads.v), tokens_first(attended.out), attended.lse, none,
                                                 none, heads.q.size(2), heads.k.size(2), /*dropout_p=*/0, causal,
                                                 unused, unused, scale_of(heads));
  return {tokens_first(q), tokens_first(k), tokens_first(v)};
}

HeadViews fastest_backward(const HeadViews& heads, const AttendedViews& attended, const at::Tensor& d_out,
                           bool causal) {
  const at::Tensor none, unused = at::empty({}, d_out.options().dtype(at::kLong));
  auto [q, k, v] = at::_scaled_dot_product_cudnn_attention_backward(
      d_out, heads.q, heads.k, heads.v, attended.out, attended.lse.unsqueeze(-1), unused, unused, none, none, none,
      heads.q.size(2), heads.k.size(2), /*dropout_p=*/0, causal, scale_of(heads));
  return {q, k, v};
}

at::Tensor heads_view(const at::Tensor& out, const AttentionOptions& options) {
  return out.view({out.size(0), out.size(1), options.heads, options.head_size}).transpose(1, 2);
}

// What the libraries do not have.
bool needs_kernels(const HeadsSetup& setup) {
  return setup.drops || setup.options.key_mask.defined() || setup.options.unpadded.defined();
}

}  // namespace

bool library_has(std::int64_t head_size) {
  return head_size % kChannelStep == 0 && head_size <= kMostChannels;
}

AttendedViews library_forward(const HeadViews& heads, const LibraryCall& call) {
  const auto result = at::_scaled_dot_product_cudnn_attention(
      heads.q, heads.k, heads.v, std::nullopt, /*compute_log_sumexp=*/true,
      /*dropout_p=*/0, call.causal, /*return_debug_mask=*/false, scale_of(heads));
  return {std::get<0>(result), std::get<1>(result).view({heads.q.size(0), heads.q.size(1), heads.q.size(2)})};
}

HeadViews library_backward(const HeadViews& heads, const AttendedViews& attended, const at::Tensor& d_out,
                           const LibraryCall& call) {
  return call.repeatable ? repeatable_backward(heads, attended, d_out, call.causal)
                         : fastest_backward(heads, attended, d_out, call.causal);
}

bool serves_rotation(const at::Tensor& qkv, const AttentionOptions& options) {
  return serves(qkv) && options.head_size % 2 == 0 && options.head_size >= 2 &&
         (!options.document_starts.defined() || options.positions.defined());
}

bool serves_heads(const at::Tensor& qkv, const HeadsSetup& setup) {
  if (!serves(qkv)) return false;
  const AttentionOptions& options = setup.options;
  const char* reason = nullptr;
  if (qkv.scalar_type() == at::kFloat) {
    reason = "float32";
  } else if (options.window > 0) {
    reason = "a sliding window";
  } else if (options.document_starts.defined() && !options.unpadded.defined()) {
    reason = "packed documents";
  } else if (needs_kernels(setup)) {
    if (!serves_kernel_heads(qkv, setup))
      reason =
          "dropout, a mask of keys or unpadded rows but for 32, 64 or 128 channels, 65,535 rows and shared memory "
          "enough";
  } else if (!library_has(options.head_size)) {
    reason = "this size of heads";
  }
  if (reason == nullptr) return qkv.numel() > 0;
  cuda::KernelLibrary::of_process().say_once(
      fmt::format("attention of {} heads of {} channels takes plain formulas, which form all scores: no fused kernel "
                  "serves {}",
                  options.heads, options.head_size, reason));
  return false;
}

void rotate_heads(const at::Tensor& qkv, const AttentionOptions& options) {
  const std::int64_t turned = options.heads + options.kv_heads, heads = turned + options.kv_heads;
  const std::int64_t pairs = num_pairs(qkv, turned, options.head_size);
  if (pairs == 0) return;
  const int is_aligned = aligned(options.head_size / 2, {qkv}) ? 1 : 0;
  const at::Tensor cos = options.rotary.cos.to(at::kFloat).contiguous();
  const at::Tensor sin = options.rotary.sin.to(at::kFloat).contiguous();
  const at::Tensor positions = options.positions.defined() ? options.positions.contiguous() : at::Tensor();
  cuda::kernel(kRotary, "rotate", {element(qkv), is_aligned})(
      threads_for(pairs, qkv), data(qkv), data(cos), data(sin), data(positions), pairs, static_cast<int>(qkv.size(1)),
      static_cast<int>(heads), static_cast<int>(turned), static_cast<int>(options.head_size));
}

HeadsOutput heads_forward(const at::Tensor& qkv, const HeadsSetup& setup) {
  if (needs_kernels(setup)) return kernel_heads_forward(qkv, setup);
  const AttentionOptions& options = setup.options;
  const AttendedViews attended = library_forward(views_of(qkv, options), {.causal = options.causal});
  const at::Tensor out = attended.out.transpose(1, 2).contiguous();
  return {out.view({qkv.size(0), qkv.size(1), options.heads * options.head_size}), attended.lse, /*kept=*/{}};
}

at::Tensor heads_backward(const at::Tensor& qkv, const HeadsOutput& output, const at::Tensor& d_out,
                          const HeadsSetup& setup) {
  if (needs_kernels(setup)) return kernel_heads_backward(qkv, output, d_out, setup);
  const AttentionOptions& options = setup.options;
  const HeadViews d =
      library_backward(views_of(qkv, options), {heads_view(output.out, options), output.lse},
                       heads_view(d_out, options), {.causal = options.causal, .repeatable = setup.repeatable});
  return join_heads(d.q, d.k, d.v, options);
}

at::Tensor join_heads(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionOptions& options) {
  const std::int64_t all = options.heads + 2 * options.kv_heads;
  at::Tensor d_qkv = at::empty({q.size(0), q.size(2), all * options.head_size}, q.options());
  const std::int64_t pairs = num_pairs(d_qkv, all, options.head_size);
  const int is_aligned = aligned(options.head_size / 2, {d_qkv, q, k, v}) ? 1 : 0;
  cuda::kernel(kRotary, "join", {element(q), is_aligned})(
      threads_for(pairs, q), data(d_qkv), Strided(q), Strided(k), Strided(v), data(options.rotary.cos),
      data(options.rotary.sin), pairs, static_cast<int>(q.size(2)), static_cast<int>(options.heads),
      static_cast<int>(options.kv_heads), static_cast<int>(options.head_size));
  return d_qkv;
}

Variants rotary_variants(at::ScalarType dtype) {
  return {{&kRotary, {element(dtype), /*ALIGNED=*/1}}};
}

}  // namespace orthant::nn::device
