// Attention's heads by attention.cu and attention_backward.cu: with dropout, and with keys that are hidden.
#include <ATen/ATen.h>

#include <cmath>

#include "orthant/nn/device_kernels.h"
#include "orthant/ops/attention/attention_heads.h"
#include "orthant/ops/dropout/dropout_device.h"

namespace orthant::cuda::sources {
extern const std::string_view attention;
extern const std::string_view attention_backward;
}  // namespace orthant::cuda::sources

namespace orthant::nn::device {
namespace {

const std::vector<std::string_view> kAttentionMacros = {"ELEMENT", "SIZE", "CAUSAL", "MASKED", "DROPS", "WARP_ROWS"};
const cuda::Source kAttention{"ops/attention/attention.cu", cuda::sources::attention, kAttentionMacros};
const cuda::Source kAttentionBackward{"ops/attention/attention_backward.cu", cuda::sources::attention_backward,
                                      kAttentionMacros};

// As in attention.cu.
constexpr std::int64_t kBlock = 128;
constexpr std::int64_t kTile = 64;
constexpr int kForwardRows = 16;  // of a warp
constexpr std::int64_t kNumbersBytes = std::int64_t{2} * 6 * kTile * 4;
constexpr std::int64_t kScoresBytes = kBlock * kTile * 2;
constexpr std::int64_t kShortSize = 64;      // of heads, at most, where a block makes all gradients
constexpr std::int64_t kMostBlocks = 65535;  // along the second and third side of a grid
constexpr std::int64_t kWordKeys = 32;

struct Layout {
  std::int64_t stride;
  int sequence, heads, group;
  float scale;
  std::uint32_t first_head, first_query, first_key;
  KernelGrid grid;
};
static_assert(sizeof(Layout) == 112);

// One call of the kernels.
struct Call {
  const HeadsSetup& setup;
  std::int64_t rows, sequence, heads, kv_heads, size;
  int type;
  cuda::StreamHandle stream;
  int warp_rows;
  Layout layout;

  Call(const at::Tensor& qkv, const HeadsSetup& heads_setup, int rows_of_warp = kForwardRows)
      : setup(heads_setup),
        rows(qkv.size(0)),
        sequence(qkv.size(1)),
        heads(setup.options.heads),
        kv_heads(setup.options.kv_heads),
        size(setup.options.head_size),
        type(element(qkv)),
        stream(device::stream(qkv)),
        warp_rows(rows_of_warp),
        layout{.stride = qkv.size(2),
               .sequence = static_cast<int>(sequence),
               .heads = static_cast<int>(heads),
               .group = static_cast<int>(heads / kv_heads),
               .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(size))),
               .first_head = static_cast<std::uint32_t>(setup.options.first_head),
               .first_query = 0,
               .first_key = 0,
               .grid = kernel_grid(setup.drops ? &setup.dropout : nullptr, 0)} {}

  const cuda::Kernel& kernel(const cuda::Source& source, const char* function) const {
    return cuda::kernel(source, function,
                        {type, static_cast<int>(size), setup.options.causal ? 1 : 0,
                         setup.options.key_mask.defined() ? 1 : 0, setup.drops ? 1 : 0, warp_rows});
  }

  // A block of threads for every 128 tokens of `num_heads` heads; `blocks` and `tiles` of one operand in shared memory.
  cuda::LaunchShape shape(std::int64_t num_heads, int blocks, int tiles, std::int64_t more_bytes) const {
    const std::int64_t row_bytes = size * 2;
    return {.blocks = static_cast<std::uint32_t>((sequence + kBlock - 1) / kBlock),
            .blocks_y = static_cast<std::uint32_t>(num_heads),
            .blocks_z = static_cast<std::uint32_t>(rows),
            .threads = static_cast<std::uint32_t>(kBlock / warp_rows * 32),
            .shared_bytes = static_cast<std::uint32_t>((blocks * kBlock + tiles * kTile) * row_bytes + more_bytes),
            .stream = stream};
  }

  std::int64_t most_shared_bytes() const {
    return shape(heads, 2, 4, (size <= kShortSize ? kScoresBytes : 0) + kNumbersBytes).shared_bytes;
  }

  // One block then has all keys of a head.
  bool is_short() const { return sequence <= kBlock && kv_heads == heads && size <= kShortSize; }
};

}  // namespace

bool serves_kernel_heads(const at::Tensor& qkv, const HeadsSetup& setup) {
  const auto& options = setup.options;
  const bool narrow = qkv.scalar_type() == at::kBFloat16 || qkv.scalar_type() == at::kHalf;
  const bool sized = options.head_size == 32 || options.head_size == 64 || options.head_size == 128;
  if (!serves(qkv) || !narrow || !sized || !aligned(qkv.size(2), {qkv}) || qkv.size(0) > kMostBlocks) return false;
  return Call(qkv, setup).most_shared_bytes() <= cuda::KernelLibrary::of_process().most_shared_bytes();
}

HeadsOutput kernel_heads_forward(const at::Tensor& qkv, const HeadsSetup& setup) {
  const Call call(qkv, setup);
  HeadsOutput output{.out = at::empty({call.rows, call.sequence, call.heads * call.size}, qkv.options()),
                     .lse = at::empty({call.rows, call.heads, call.sequence}, qkv.options().dtype(at::kFloat)),
                     .kept = {}};
  if (setup.drops) {
    const std::int64_t words = (call.sequence + kWordKeys - 1) / kWordKeys;
    output.kept = at::empty({call.rows, call.heads, call.sequence, words}, qkv.options().dtype(at::kInt));
  }
  if (qkv.numel() == 0) return output;
  call.kernel(kAttention, "attention_forward")(call.shape(call.heads, 1, 4, 0), data(output.out),
                                               data<float>(output.lse), data(output.kept), data(qkv),
                                               data(setup.options.key_mask), call.layout);
  return output;
}

at::Tensor kernel_heads_backward(const at::Tensor& qkv, const HeadsOutput& output, const at::Tensor& d_out,
                                 const HeadsSetup& setup, int warp_rows) {
  const Call call(qkv, setup, warp_rows);
  const auto& options = setup.options;
  at::Tensor d_qkv = at::empty(qkv.sizes(), qkv.options());
  if (qkv.numel() == 0) return d_qkv;
  if (call.is_short()) {
    call.kernel(kAttentionBackward, "attention_backward_short")(
        call.shape(call.heads, 2, 4, kScoresBytes + kNumbersBytes), data(d_qkv), data(qkv), data(output.out),
        data(d_out), data<float>(output.lse), data(output.kept), data(options.key_mask), call.layout);
  } else {
    const at::Tensor delta = at::empty(output.lse.sizes(), output.lse.options());
    const std::int64_t items = call.rows * call.sequence * call.heads;
    call.kernel(kAttentionBackward, "attention_delta")(threads_for(items * call.size / 8, qkv), data<float>(delta),
                                                       data(output.out), data(d_out), items, call.layout.sequence,
                                                       call.layout.heads);
    call.kernel(kAttentionBackward, "attention_backward")(
        call.shape(call.kv_heads, 2, 4, kNumbersBytes), data(d_qkv), data(qkv), data(d_out), data<float>(output.lse),
        data<float>(delta), data(output.kept), data(options.key_mask), call.layout);
    call.kernel(kAttentionBackward, "attention_backward_queries")(
        call.shape(call.heads, 2, 4, 0), data(d_qkv), data(qkv), data(d_out), data<float>(output.lse),
        data<float>(delta), data(output.kept), data(options.key_mask), call.layout);
  }
  if (options.rotary.sin.defined()) {
    AttentionOptions back = options;
    back.rotary.sin = back.rotary.sin.neg();
    device::rotate_heads(d_qkv, back);
  }
  return d_qkv;
}

}  // namespace orthant::nn::device
