// Products of four warps together, wgmma: begun in order, carried out when they are awaited at the latest. Where copies
// arrive at once, so do products; else they read shared memory and write their results as late as they may.
#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <cstring>

#include "cuda/emulated_card/block.h"
#include "cuda/emulated_card/card.h"

using emulated_card::Block;
using emulated_card::WarpGroup;

namespace {

constexpr std::size_t kThreads = 128;
constexpr int kRows = 64;
constexpr int kDepth = 16;

float widened(unsigned bits, bool bfloat16) {
  if (bfloat16) return std::bit_cast<float>(bits << 16);
  return static_cast<float>(std::bit_cast<_Float16>(static_cast<std::uint16_t>(bits)));
}

// A descriptor: where the matrix begins; bytes from 8 rows to the next, and from what a swizzled row holds to the next
// such part; how 16-byte chunks are placed: by 3, 2 or 1 bits of the number of 128 bytes.
class SharedMatrix {
 public:
  explicit SharedMatrix(unsigned long long bits)
      : begin_(static_cast<unsigned>(bits & 0x3fffU) << 4),
        parts_(static_cast<unsigned>(bits >> 16 & 0x3fffU) << 4),
        rows_(static_cast<unsigned>(bits >> 32 & 0x3fffU) << 4),
        swizzle_(static_cast<unsigned>(bits >> 62)) {
    if (swizzle_ == 0) Block::running().fail("wgmma with a matrix that is not swizzled");
  }
  // Element `column` of row `row` of shared memory; rows hold 64, 32 or 16 elements before the next part begins.
  unsigned bits(int row, int column) const {
    const unsigned row_bytes = 256U >> swizzle_, at = static_cast<unsigned>(column) * 2;
    const unsigned r = static_cast<unsigned>(row);
    unsigned address = begin_ + r / 8 * rows_ + r % 8 * row_bytes + at / row_bytes * parts_ + at % row_bytes;
    address ^= (address >> 7 & ((8U >> (swizzle_ - 1)) - 1)) << 4;
    std::uint16_t element = 0;
    std::memcpy(&element, emulated_checked_shared("wgmma", address, 2), 2);
    return element;
  }

 private:
  unsigned begin_, parts_, rows_, swizzle_;
};

void carry_out(const EmulatedProduct* parts) {
  const EmulatedProduct& any = parts[0];
  static float a[kRows][kDepth], b[kDepth][256];
  for (int row = 0; row < kRows; ++row) {
    for (int k = 0; k < kDepth; ++k) {
      unsigned bits = 0;
      if (any.a_is_shared) {
        const SharedMatrix matrix(any.a_matrix);
        bits = any.a_by_rows ? matrix.bits(k, row) : matrix.bits(row, k);
      } else {  // as mma has it: 16 rows to a warp
        const auto thread = static_cast<std::size_t>(row / 16 * 32 + row % 8 * 4 + k % 8 / 2);
        bits = parts[thread].a[row % 16 / 8 + k / 8 * 2] >> (k % 2 * 16) & 0xffffU;
      }
      a[row][k] = widened(bits, any.bfloat16);
    }
  }
  const SharedMatrix matrix(any.b_matrix);
  for (int k = 0; k < kDepth; ++k) {
    for (int column = 0; column < any.columns; ++column) {
      b[k][column] = widened(any.b_by_rows ? matrix.bits(k, column) : matrix.bits(column, k), any.bfloat16);
    }
  }
  for (std::size_t thread = 0; thread < kThreads; ++thread) {
    const EmulatedProduct& part = parts[thread];
    for (int i = 0; i < any.columns / 2; ++i) {
      const int row = static_cast<int>(thread / 32 * 16 + thread % 32 / 4) + i % 4 / 2 * 8;
      const int column = i / 4 * 8 + static_cast<int>(thread % 4) * 2 + i % 2;
      float sum = any.adds ? *part.d[i] : 0;
      for (int k = 0; k < kDepth; ++k) sum += a[row][k] * b[k][column];
      *part.d[i] = sum;
    }
  }
}

void begin(void** brought, int count) {
  WarpGroup& group = Block::running().warp_group();
  for (int i = 0; i < static_cast<int>(kThreads); ++i) {
    if (i >= count || brought[i] == nullptr) {
      Block::running().fail(fmt::format("wgmma in four warps without their thread {}", i));
    }
    const auto& part = *static_cast<const EmulatedProduct*>(brought[i]);
    const auto& first = *static_cast<const EmulatedProduct*>(brought[0]);
    if (part.a_matrix != first.a_matrix || part.b_matrix != first.b_matrix) {
      Block::running().fail("wgmma of threads that name different matrices");
    }
    group.parts.push_back(part);
  }
  if (Block::running().copies_arrive_at_once()) {
    carry_out(group.parts.data() + group.parts.size() - kThreads);
    group.parts.resize(group.parts.size() - kThreads);
  }
}

void commit(void** /*brought*/, int /*count*/) {
  WarpGroup& group = Block::running().warp_group();
  group.groups.push_back(group.parts.size());
}

void await(void** brought, int /*count*/) {
  WarpGroup& group = Block::running().warp_group();
  const auto newer = static_cast<std::size_t>(*static_cast<const int*>(brought[0]));
  if (group.groups.size() <= newer) return;
  const std::size_t done_groups = group.groups.size() - newer, done = group.groups[done_groups - 1];
  for (std::size_t i = 0; i < done; i += kThreads) carry_out(group.parts.data() + i);
  group.parts.erase(group.parts.begin(), group.parts.begin() + static_cast<std::ptrdiff_t>(done));
  group.groups.erase(group.groups.begin(), group.groups.begin() + static_cast<std::ptrdiff_t>(done_groups));
  for (auto& end : group.groups) end -= done;
}

}  // namespace

extern "C" {

void emulated_multiply_async(const EmulatedProduct* product) {
  EmulatedProduct own = *product;
  Block::running().meet_group("wgmma", begin, &own);
}
void emulated_commit_products() {
  Block::running().meet_group("wgmma.commit_group", commit, nullptr);
}
void emulated_await_products(int newer) {
  Block::running().meet_group("wgmma.wait_group", await, &newer);
}
}
