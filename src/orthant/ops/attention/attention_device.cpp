// Attention's heads by attention.cu and attention_backward.cu: with dropout, and with keys that are hidden.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "orthant/nn/device_kernels.h"
#include "orthant/ops/attention/attention_blocks.h"
#include "orthant/ops/attention/attention_heads.h"
#include "orthant/ops/dropout/dropout_device.h"

namespace orthant::cuda::sources {
extern const std::string_view attention;
extern const std::string_view attention_backward;
}  // namespace orthant::cuda::sources

namespace orthant::nn::device {
namespace {

const std::vector<std::string_view> kAttentionMacros = {"ELEMENT", "SIZE",  "CAUSAL",  "MASKED",
                                                        "DROPS",   "WGMMA", "UNPADDED"};
const cuda::Source kAttention{"ops/attention/attention.cu", cuda::sources::attention, kAttentionMacros};
const cuda::Source kAttentionBackward{"ops/attention/attention_backward.cu", cuda::sources::attention_backward,
                                      kAttentionMacros};

// As in attention.cu.
constexpr std::int64_t kBlock = 128;
constexpr std::int64_t kTile = 64;
constexpr std::uint32_t kThreads = 256;
constexpr std::int64_t kForwardStages = 3;             // of tiles of keys and values
constexpr std::int64_t kNumbersBytes = 6 * kTile * 4;  // of a tile in backward
constexpr std::int64_t kScoresBytes = kBlock * kTile * 2;
constexpr std::int64_t kNarrowSize = 64;     // of heads, at most, that have a backward for few keys
constexpr std::int64_t kMostBlocks = 65535;  // along the second and third side of a grid
constexpr std::int64_t kWordKeys = 32;

struct Layout {
  std::int64_t stride;
  int sequence, heads, group;
  float scale;
  std::uint32_t first_head, first_query, first_key;
  KernelGrid grid;
  const std::int64_t* firsts;  // from here on where it is UNPADDED
  int tokens;
};
static_assert(sizeof(Layout) == 128);

std::int64_t row_bytes(std::int64_t head_size) {
  return head_size * 2;
}
// Queries; tiles of keys and values.
std::int64_t forward_bytes(std::int64_t head_size) {
  return (kBlock + kForwardStages * 2 * kTile) * row_bytes(head_size);
}
// Keys and values; two tiles of queries and gradients of outputs, with what belongs to them; gradients of scores.
std::int64_t backward_bytes(std::int64_t head_size) {
  return (2 * kBlock + 2 * 2 * kTile) * row_bytes(head_size) + 2 * kNumbersBytes + kScoresBytes;
}

// One call of the kernels.
struct Call {
  const HeadsSetup& setup;
  bool unpadded;
  std::int64_t rows, tokens;  // of a row and head of what belongs to queries: rows are one row where they are unpadded
  std::int64_t sequence;      // the longest row
  std::int64_t heads, kv_heads, size, blocks;
  int type;
  bool wgmma;
  cuda::StreamHandle stream;
  Layout layout;

  Call(const at::Tensor& qkv, const HeadsSetup& heads_setup, bool warps_alone, const BlockPlace& place = {})
      : setup(heads_setup),
        unpadded(setup.options.unpadded.defined()),
        rows(qkv.size(0)),
        tokens(qkv.size(1)),
        sequence(unpadded ? setup.options.unpadded.longest : tokens),
        heads(setup.options.heads),
        kv_heads(setup.options.kv_heads),
        size(setup.options.head_size),
        blocks((sequence + kBlock - 1) / kBlock),
        type(element(qkv)),
        wgmma(!warps_alone && cuda::KernelLibrary::of_process().architecture() == "sm_90a"),
        stream(device::stream(qkv)),
        layout{.stride = qkv.size(2),
               .sequence = static_cast<int>(sequence),
               .heads = static_cast<int>(heads),
               .group = static_cast<int>(heads / kv_heads),
               .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(size))),
               .first_head = static_cast<std::uint32_t>(setup.options.first_head),
               .first_query = static_cast<std::uint32_t>(place.query),
               .first_key = static_cast<std::uint32_t>(place.key),
               .grid = kernel_grid(setup.drops ? &setup.dropout : nullptr, 0),
               .firsts = unpadded ? setup.options.unpadded.firsts.const_data_ptr<std::int64_t>() : nullptr,
               .tokens = static_cast<int>(tokens)} {}

  const cuda::Kernel& kernel(const cuda::Source& source, const char* function) const {
    return cuda::kernel(
        source, function,
        {type, static_cast<int>(size), setup.options.causal ? 1 : 0, setup.options.key_mask.defined() ? 1 : 0,
         setup.drops ? 1 : 0, wgmma ? 1 : 0, unpadded ? 1 : 0});
  }

  // Rows of a grid: of unpadded ones one more for tokens behind them.
  std::int64_t grid_rows() const { return unpadded ? setup.options.unpadded.firsts.numel() : rows; }

  // Places for sums and turns of a head's tiles of queries, see tiles_at() in attention_backward.cu.
  std::int64_t num_tiles() const {
    return unpadded ? tokens / kTile + grid_rows() : rows * ((sequence + kTile - 1) / kTile);
  }

  // A block of threads for every 128 tokens of `num_heads` heads.
  cuda::LaunchShape shape(std::int64_t num_heads, std::int64_t shared_bytes) const {
    return {.blocks = static_cast<std::uint32_t>(blocks),
            .blocks_y = static_cast<std::uint32_t>(num_heads),
            .blocks_z = static_cast<std::uint32_t>(grid_rows()),
            .threads = kThreads,
            .shared_bytes = static_cast<std::uint32_t>(shared_bytes),
            .stream = stream};
  }

  std::int64_t forward_bytes() const { return nn::device::forward_bytes(size); }
  std::int64_t backward_bytes() const { return nn::device::backward_bytes(size); }

  // Whether blocks of backward begin at tiles of their own. A block may then wait for one that begins later, so that
  // up to `blocks` of each kernel that runs beside this one hold a multiprocessor while they wait: there must be more.
  int apart() const { return cuda::KernelLibrary::of_process().multiprocessors() >= kMostSideBySide * blocks ? 1 : 0; }

  // One block then has all of a head in backward, and no other head's queries.
  bool is_alone() const { return blocks == 1 && kv_heads == heads && size <= kNarrowSize; }
};

}  // namespace

bool serves_kernel_heads(std::int64_t head_size) {
  if (head_size != 32 && head_size != 64 && head_size != 128) return false;
  return std::max(forward_bytes(head_size), backward_bytes(head_size)) <=
         cuda::KernelLibrary::of_process().most_shared_bytes();
}

bool serves_kernel_heads(const at::Tensor& qkv, const HeadsSetup& setup) {
  const bool narrow = qkv.scalar_type() == at::kBFloat16 || qkv.scalar_type() == at::kHalf;
  const auto& rows = setup.options.unpadded;
  return serves(qkv) && narrow && aligned(qkv.size(2), {qkv}) && serves_kernel_heads(setup.options.head_size) &&
         (rows.defined() ? rows.firsts.numel() : qkv.size(0)) <= kMostBlocks;
}

namespace {

HeadsOutput run_forward(const at::Tensor& qkv, const HeadsSetup& setup, const Call& call) {
  HeadsOutput output{.out = at::empty({call.rows, call.tokens, call.heads * call.size}, qkv.options()),
                     .lse = at::empty({call.rows, call.heads, call.tokens}, qkv.options().dtype(at::kFloat)),
                     .kept = {}};
  if (setup.drops) {
    const std::int64_t words = (call.sequence + kWordKeys - 1) / kWordKeys;
    output.kept = at::empty({call.rows, call.heads, call.tokens, words}, qkv.options().dtype(at::kInt));
  }
  if (qkv.numel() == 0) return output;
  call.kernel(kAttention, "attention_forward")(call.shape(call.heads, call.forward_bytes()), data(output.out),
                                               data<float>(output.lse), data(output.kept), data(qkv),
                                               data(setup.options.key_mask), call.layout);
  return output;
}

}  // namespace

HeadsOutput kernel_heads_forward(const at::Tensor& qkv, const HeadsSetup& setup, bool warps_alone) {
  return run_forward(qkv, setup, Call(qkv, setup, warps_alone));
}

HeadsOutput kernel_block_forward(const at::Tensor& qkv, const HeadsSetup& setup, const BlockPlace& place) {
  return run_forward(qkv, setup, Call(qkv, setup, false, place));
}

at::Tensor kernel_block_backward(const at::Tensor& qkv, const at::Tensor& lse, const at::Tensor& delta,
                                 const at::Tensor& d_out, const HeadsSetup& setup, const BlockPlace& place) {
  constexpr double kLog2E = 1.4426950408889634;
  const Call call(qkv, setup, false, place);
  at::Tensor d_qkv = at::empty(qkv.sizes(), qkv.options());
  if (qkv.numel() == 0) return d_qkv;
  const at::Tensor numbers = at::stack({lse * kLog2E, delta}, -1);
  at::Tensor turns, sums;
  if (call.blocks > 1) {
    const std::int64_t tiles = call.heads * call.num_tiles();
    turns = at::zeros({tiles + 1}, lse.options().dtype(at::kInt));
    sums = at::empty({tiles, kTile, call.size}, lse.options());
  }
  // Neither the output nor lse is read where the numbers are there.
  call.kernel(kAttentionBackward, "attention_backward")(call.shape(call.kv_heads, call.backward_bytes()), data(d_qkv),
                                                        data(qkv), data(d_out), data(d_out), data<float>(lse),
                                                        data(numbers), data(at::Tensor()), data(setup.options.key_mask),
                                                        data(sums), data(turns), call.apart(), call.layout);
  return d_qkv;
}

at::Tensor kernel_heads_backward(const at::Tensor& qkv, const HeadsOutput& output, const at::Tensor& d_out,
                                 const HeadsSetup& setup, bool warps_alone) {
  const Call call(qkv, setup, warps_alone);
  const auto& options = setup.options;
  at::Tensor d_qkv = at::empty(qkv.sizes(), qkv.options());
  if (qkv.numel() == 0) return d_qkv;
  at::Tensor numbers, turns, sums;
  if (!call.is_alone()) {
    const auto floats = output.lse.options();
    const std::int64_t tiles = call.heads * call.num_tiles();
    numbers = at::empty({call.rows, call.heads, call.tokens, 2}, floats);
    if (call.blocks > 1) {
      turns = at::empty({tiles + 1}, floats.dtype(at::kInt));
      sums = at::empty({tiles, kTile, call.size}, floats);
    }
    const std::int64_t items = call.rows * call.tokens * call.heads;
    call.kernel(kAttentionBackward, "attention_delta")(
        threads_for(items * call.size / 8, qkv), data(numbers), data(turns), data<float>(output.lse), data(output.out),
        data(d_out), items, turns.defined() ? static_cast<int>(turns.numel()) : 0, call.layout);
  }
  call.kernel(kAttentionBackward, call.is_alone() ? "attention_backward_short" : "attention_backward")(
      call.shape(call.kv_heads, call.backward_bytes()), data(d_qkv), data(qkv), data(output.out), data(d_out),
      data<float>(output.lse), data(numbers), data(output.kept), data(options.key_mask), data(sums), data(turns),
      call.apart(), call.layout);
  if (options.rotary.sin.defined()) {
    AttentionOptions back = options;
    back.rotary.sin = back.rotary.sin.neg();
    device::rotate_heads(d_qkv, back);
  }
  return d_qkv;
}

}  // namespace orthant::nn::device
