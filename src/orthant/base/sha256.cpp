#include "orthant/base/sha256.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace orthant {
namespace {

constexpr std::size_t kRounds = 64;

constexpr std::array<std::uint32_t, kRounds> kConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t big_endian_word(const std::byte* bytes) {
  std::uint32_t word = 0;
  for (int i = 0; i < 4; ++i) word = word << 8 | std::to_integer<std::uint32_t>(bytes[i]);
  return word;
}

using State = std::array<std::uint32_t, 8>;

void take_blocks_plainly(State& state, const std::byte* data, std::size_t blocks) {
  for (; blocks > 0; --blocks, data += 64) {
    std::array<std::uint32_t, kRounds> words;
    for (std::size_t i = 0; i < 16; ++i) words[i] = big_endian_word(data + 4 * i);
    for (std::size_t i = 16; i < kRounds; ++i) {
      const auto a = words[i - 15];
      const auto b = words[i - 2];
      words[i] = words[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3)) + words[i - 7] +
                 (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10));
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (std::size_t i = 0; i < kRounds; ++i) {
      const auto first =
          h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) + kConstants[i] + words[i];
      const auto second = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g;
      g = f;
      f = e;
      e = d + first;
      d = c;
      c = b;
      b = a;
      a = first + second;
    }
    const State added = {a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < state.size(); ++i) state[i] += added[i];
  }
}

#if defined(__x86_64__)
// The processor's own rounds: two of them an instruction, on the state in the order ABEF, CDGH.
__attribute__((target("sha,sse4.1"))) void take_blocks_by_instruction(State& state, const std::byte* data,
                                                                      std::size_t blocks) {
  const auto order = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const auto* words = reinterpret_cast<const __m128i*>(state.data());
  auto dcba = _mm_shuffle_epi32(_mm_loadu_si128(words), 0xb1);
  auto hgfe = _mm_shuffle_epi32(_mm_loadu_si128(words + 1), 0x1b);
  auto abef = _mm_alignr_epi8(dcba, hgfe, 8);
  auto cdgh = _mm_blend_epi16(hgfe, dcba, 0xf0);
  for (; blocks > 0; --blocks, data += 64) {
    const auto abef_before = abef;
    const auto cdgh_before = cdgh;
    __m128i message[4];
    for (int i = 0; i < 4; ++i) {
      message[i] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(data) + i), order);
    }
    for (int i = 0; i < 16; ++i) {
      const auto constants = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kConstants.data()) + i);
      const auto sum = _mm_add_epi32(message[i % 4], constants);
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
      if (i >= 12) continue;
      auto next = _mm_sha256msg1_epu32(message[i % 4], message[(i + 1) % 4]);
      next = _mm_add_epi32(next, _mm_alignr_epi8(message[(i + 3) % 4], message[(i + 2) % 4], 4));
      message[i % 4] = _mm_sha256msg2_epu32(next, message[(i + 3) % 4]);
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const auto feba = _mm_shuffle_epi32(abef, 0x1b);
  const auto dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  auto* out = reinterpret_cast<__m128i*>(state.data());
  _mm_storeu_si128(out, _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(out + 1, _mm_alignr_epi8(dchg, feba, 8));
}

using TakeBlocks = void (*)(State&, const std::byte*, std::size_t);

TakeBlocks best_for_this_machine() {
  return __builtin_cpu_supports("sha") && __builtin_cpu_supports("sse4.1") ? take_blocks_by_instruction
                                                                           : take_blocks_plainly;
}
#endif

void take_blocks(State& state, const std::byte* data, std::size_t blocks) {
#if defined(__x86_64__)
  static const auto take = best_for_this_machine();
  take(state, data, blocks);
#else
  take_blocks_plainly(state, data, blocks);
#endif
}

}  // namespace

Sha256::Sha256()
    : state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {}

void Sha256::update(std::span<const std::byte> bytes) {
  const auto waiting = static_cast<std::size_t>(total_bytes_ % kBlock);
  total_bytes_ += bytes.size();
  if (waiting > 0) {
    const auto part = bytes.first(std::min(bytes.size(), kBlock - waiting));
    std::ranges::copy(part, pending_.begin() + static_cast<std::ptrdiff_t>(waiting));
    bytes = bytes.subspan(part.size());
    if (waiting + part.size() < kBlock) return;
    take_blocks(state_, pending_.data(), 1);
  }
  const auto whole = bytes.size() / kBlock;
  take_blocks(state_, bytes.data(), whole);
  std::ranges::copy(bytes.subspan(whole * kBlock), pending_.begin());
}

Sha256Digest Sha256::digest() const {
  Sha256 ended = *this;
  const auto waiting = static_cast<std::size_t>(total_bytes_ % kBlock);
  std::array<std::byte, 2 * kBlock> tail = {std::byte{0x80}};
  const auto padding = (waiting < kBlock - 8 ? kBlock : 2 * kBlock) - waiting;
  for (std::size_t i = 0; i < 8; ++i) tail[padding - 1 - i] = static_cast<std::byte>(total_bytes_ * 8 >> 8 * i);
  ended.update(std::span(tail).first(padding));
  Sha256Digest digest;
  for (std::size_t i = 0; i < digest.size(); ++i)
    digest[i] = static_cast<std::byte>(ended.state_[i / 4] >> 8 * (3 - i % 4));
  return digest;
}

HmacSha256::HmacSha256(std::span<const std::byte> key) {
  std::array<std::byte, 64> block = {};
  if (key.size() > block.size()) {
    Sha256 shortened;
    shortened.update(key);
    std::ranges::copy(shortened.digest(), block.begin());
  } else {
    std::ranges::copy(key, block.begin());
  }
  auto padded = block;
  for (auto& byte : padded) byte ^= std::byte{0x36};
  inner_.update(padded);
  padded = block;
  for (auto& byte : padded) byte ^= std::byte{0x5c};
  outer_.update(padded);
}

Sha256Digest HmacSha256::digest() const {
  Sha256 outer = outer_;
  outer.update(inner_.digest());
  return outer.digest();
}

bool equal_digests(const Sha256Digest& a, const Sha256Digest& b) {
  std::byte difference{0};
  for (std::size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{0};
}

std::string digest_text(const Sha256Digest& digest) {
  std::string text;
  for (const auto byte : digest) text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return text;
}

}  // namespace orthant
