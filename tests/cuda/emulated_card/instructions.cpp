// Instructions of a warp on fragments of matrices, and asynchronous copies.
#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "cuda/emulated_card/block.h"
#include "cuda/emulated_card/card.h"

using emulated_card::Block;
using emulated_card::Copy;
using emulated_card::Thread;

namespace {

constexpr int kLanes = 32;

void carry_out(const Copy& copy) {
  unsigned char* const to = emulated_checked_shared("cp.async", copy.to, copy.bytes);
  if (copy.taken > 0) std::memcpy(to, copy.from, copy.taken);
  std::memset(to + copy.taken, 0, copy.bytes - copy.taken);
}

void need_all_lanes(const char* what, void** brought, int count) {
  for (int lane = 0; lane < kLanes; ++lane) {
    if (lane >= count || brought[lane] == nullptr) {
      Block::running().fail(fmt::format("{} in a warp without its lane {}", what, lane));
    }
  }
}

// Lane l names the row l % 8 of matrix l / 8. Of each matrix it gets elements 2 (l % 4) and the next of row l / 4, or
// of that column.
struct Load {
  unsigned from;
  unsigned* r;
};
template <bool TRANSPOSED>
void load_matrices(void** brought, int count) {
  need_all_lanes("ldmatrix", brought, count);
  const auto lane = [&](int l) -> Load& { return *static_cast<Load*>(brought[l]); };
  for (int matrix = 0; matrix < 4; ++matrix) {
    std::array<std::array<std::uint16_t, 8>, 8> rows;
    for (int row = 0; row < 8; ++row) {
      std::memcpy(rows[static_cast<std::size_t>(row)].data(),
                  emulated_checked_shared("ldmatrix", lane(matrix * 8 + row).from, 16), 16);
    }
    for (int l = 0; l < kLanes; ++l) {
      const auto major = static_cast<std::size_t>(l / 4), minor = static_cast<std::size_t>(l % 4 * 2);
      const unsigned low = TRANSPOSED ? rows[minor][major] : rows[major][minor];
      const unsigned high = TRANSPOSED ? rows[minor + 1][major] : rows[major][minor + 1];
      lane(l).r[matrix] = low | high << 16;
    }
  }
}

float widened(unsigned bits, bool bfloat16) {
  if (bfloat16) return std::bit_cast<float>(bits << 16);
  return static_cast<float>(std::bit_cast<_Float16>(static_cast<std::uint16_t>(bits)));
}

// d [16, 8] += a [16, 16] b [16, 8]. Lane l has of d rows l / 4 and l / 4 + 8, columns 2 (l % 4) and the next; of a the
// same rows, columns 2 (l % 4) and the next and 8 further on; of b these as rows, column l / 4.
struct Product {
  float* d;
  const unsigned* a;
  const unsigned* b;
};
template <bool BFLOAT16>
void multiply_add(void** brought, int count) {
  need_all_lanes("mma", brought, count);
  float a[16][16], b[16][8], d[16][8];
  for (int l = 0; l < kLanes; ++l) {
    const auto& own = *static_cast<Product*>(brought[l]);
    const int row = l / 4, column = l % 4 * 2;
    for (int j = 0; j < 4; ++j) {  // registers of a: lower rows, higher rows, the same of the other half
      const int r = row + (j & 1) * 8, c = column + (j >> 1) * 8;
      a[r][c] = widened(own.a[j] & 0xffffU, BFLOAT16);
      a[r][c + 1] = widened(own.a[j] >> 16, BFLOAT16);
    }
    for (int j = 0; j < 2; ++j) {
      b[column + j * 8][row] = widened(own.b[j] & 0xffffU, BFLOAT16);
      b[column + j * 8 + 1][row] = widened(own.b[j] >> 16, BFLOAT16);
    }
    for (int j = 0; j < 4; ++j) d[row + (j >> 1) * 8][column + (j & 1)] = own.d[j];
  }
  for (int r = 0; r < 16; ++r) {
    for (int k = 0; k < 16; ++k) {
      for (int c = 0; c < 8; ++c) d[r][c] += a[r][k] * b[k][c];
    }
  }
  for (int l = 0; l < kLanes; ++l) {
    const auto& own = *static_cast<Product*>(brought[l]);
    for (int j = 0; j < 4; ++j) own.d[j] = d[l / 4 + (j >> 1) * 8][l % 4 * 2 + (j & 1)];
  }
}

}  // namespace

extern "C" {

void emulated_copy_async(unsigned to, const void* from, unsigned bytes, unsigned taken) {
  Block& block = Block::running();
  if (reinterpret_cast<std::uintptr_t>(from) % bytes != 0) {
    block.fail(fmt::format("cp.async of {} bytes from an address that is not a multiple of them", bytes));
  }
  if (taken > bytes) block.fail(fmt::format("cp.async takes {} of {} bytes", taken, bytes));
  const Copy copy{to, from, bytes, taken};
  if (block.copies_arrive_at_once()) {
    carry_out(copy);
  } else {
    block.thread().copies.push_back(copy);
  }
}
void emulated_commit_copies() {
  Thread& thread = Block::running().thread();
  thread.groups.push_back(thread.copies.size());
}
void emulated_await_copies(int newer) {
  Thread& thread = Block::running().thread();
  const auto kept = static_cast<std::size_t>(newer);
  if (thread.groups.size() <= kept) return;
  const std::size_t done_groups = thread.groups.size() - kept;
  const std::size_t done = thread.groups[done_groups - 1];
  for (std::size_t i = 0; i < done; ++i) carry_out(thread.copies[i]);
  thread.copies.erase(thread.copies.begin(), thread.copies.begin() + static_cast<std::ptrdiff_t>(done));
  thread.groups.erase(thread.groups.begin(), thread.groups.begin() + static_cast<std::ptrdiff_t>(done_groups));
  for (auto& group : thread.groups) group -= done;
}
void emulated_load_matrices(unsigned (&r)[4], unsigned from, bool transposed) {
  Load own{from, r};
  emulated_meet_warp("ldmatrix", transposed ? load_matrices<true> : load_matrices<false>, &own);
}
void emulated_multiply_add(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], bool bfloat16) {
  Product own{d, a, b};
  emulated_meet_warp("mma", bfloat16 ? multiply_add<true> : multiply_add<false>, &own);
}
}
