#include "orthant/files/xxhash.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace orthant {
namespace {

static_assert(std::endian::native == std::endian::little, "XXH64 reads little-endian words");

constexpr std::uint64_t kPrime1 = 0x9e3779b185ebca87;
constexpr std::uint64_t kPrime2 = 0xc2b2ae3d27d4eb4f;
constexpr std::uint64_t kPrime3 = 0x165667b19e3779f9;
constexpr std::uint64_t kPrime4 = 0x85ebca77c2b2ae63;
constexpr std::uint64_t kPrime5 = 0x27d4eb2f165667c5;

template <typename Word>
Word load(const std::byte* at) {
  Word word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

std::uint64_t round_of(std::uint64_t lane, std::uint64_t word) {
  return std::rotl(lane + word * kPrime2, 31) * kPrime1;
}

void add_stripe(std::array<std::uint64_t, 4>& lanes, const std::byte* at) {
  for (std::size_t i = 0; i < lanes.size(); ++i) lanes[i] = round_of(lanes[i], load<std::uint64_t>(at + 8 * i));
}

std::uint64_t merged(const std::array<std::uint64_t, 4>& lanes) {
  std::uint64_t hash =
      std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) + std::rotl(lanes[3], 18);
  for (const std::uint64_t lane : lanes) hash = (hash ^ round_of(0, lane)) * kPrime1 + kPrime4;
  return hash;
}

std::uint64_t with_tail(std::uint64_t hash, std::span<const std::byte> tail) {
  for (; tail.size() >= 8; tail = tail.subspan(8)) {
    hash = std::rotl(hash ^ round_of(0, load<std::uint64_t>(tail.data())), 27) * kPrime1 + kPrime4;
  }
  if (tail.size() >= 4) {
    hash = std::rotl(hash ^ (load<std::uint32_t>(tail.data()) * kPrime1), 23) * kPrime2 + kPrime3;
    tail = tail.subspan(4);
  }
  for (const std::byte byte : tail) {
    hash = std::rotl(hash ^ (std::to_integer<std::uint64_t>(byte) * kPrime5), 11) * kPrime1;
  }
  return hash;
}

std::uint64_t avalanche(std::uint64_t hash) {
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

}  // namespace

Xxh64::Xxh64(std::uint64_t seed)
    : seed_(seed), lanes_{seed + kPrime1 + kPrime2, seed + kPrime2, seed, seed - kPrime1} {}

void Xxh64::update(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const std::size_t held = total_bytes_ % kStripe;
  total_bytes_ += bytes.size();
  if (held > 0) {
    const std::size_t taken = std::min(kStripe - held, bytes.size());
    std::memcpy(pending_.data() + held, bytes.data(), taken);
    bytes = bytes.subspan(taken);
    if (held + taken < kStripe) return;
    add_stripe(lanes_, pending_.data());
  }
  std::array<std::uint64_t, 4> lanes = lanes_;
  for (; bytes.size() >= kStripe; bytes = bytes.subspan(kStripe)) add_stripe(lanes, bytes.data());
  lanes_ = lanes;
  if (!bytes.empty()) std::memcpy(pending_.data(), bytes.data(), bytes.size());
}

std::uint64_t Xxh64::digest() const {
  const std::uint64_t start = total_bytes_ >= kStripe ? merged(lanes_) : seed_ + kPrime5;
  return avalanche(with_tail(start + total_bytes_, std::span(pending_).first(total_bytes_ % kStripe)));
}

std::uint64_t xxh64(std::span<const std::byte> bytes, std::uint64_t seed) {
  Xxh64 hash(seed);
  hash.update(bytes);
  return hash.digest();
}

void BlockHashes::update(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (last_bytes_ == kHashedBlockBytes) {
      whole_blocks_.push_back(last_.digest());
      last_ = Xxh64();
      last_bytes_ = 0;
    }
    const auto room = static_cast<std::size_t>(kHashedBlockBytes - last_bytes_);
    const auto part = bytes.first(std::min(room, bytes.size()));
    last_.update(part);
    last_bytes_ += static_cast<std::int64_t>(part.size());
    bytes = bytes.subspan(part.size());
  }
}

std::vector<std::uint64_t> BlockHashes::digests() const {
  auto all = whole_blocks_;
  all.push_back(last_.digest());
  return all;
}

std::string hash_text(std::uint64_t hash) {
  return fmt::format("{:016x}", hash);
}

std::vector<std::string> hash_texts(const std::vector<std::uint64_t>& hashes) {
  std::vector<std::string> texts;
  for (const auto hash : hashes) texts.push_back(hash_text(hash));
  return texts;
}

}  // namespace orthant
