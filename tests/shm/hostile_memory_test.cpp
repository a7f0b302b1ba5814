// A peer whose shared memory says anything at all: every number in it is changed, at any moment of every operation, to
// edge values and to noise. Each is refused by name or harmless. 2,000 operations; ORTHANT_EXHAUSTIVE=1 takes 100,000.
// Worth most under the address sanitizer.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <random>

#include "orthant/shm/collective.h"
#include "orthant/shm/pipe.h"

namespace orthant::shm {
namespace hostile_memory_test {

using Kind = CollectiveRequest::Kind;
using Random = std::mt19937_64;

constexpr size_t kArenaBytes = 6 << 20;
constexpr int kRounds = 40;

int num_trials() {
  const char* const value = std::getenv("ORTHANT_EXHAUSTIVE");
  return value != nullptr && std::string(value) == "1" ? 100'000 : 2'000;
}

size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  size_t pages = 0;
  file >> pages >> pages;
  return pages * 4096;
}

// Pages that must not be touched, beside a mapping made next.
class Guard {
 public:
  Guard() : memory_(mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~Guard() { munmap(memory_, kBytes); }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  static constexpr size_t kBytes = size_t{64} << 20;
  void* memory_;
};

// Two ranks of this process: rank 0 is honest and watched, rank 1 speaks its part and has its memory changed.
struct Pair {
  Guard before;
  Endpoint victim{0, kArenaBytes, 2};
  Guard between;
  Endpoint peer{1, kArenaBytes, 2};
  Guard behind;

  Pair() {
    victim.connect(1, peer.arena().mapping().fd(), -1);
    peer.connect(0, victim.arena().mapping().fd(), -1);
  }
};

// A tensor of exactly so many bytes, on the heap or in the rank's arena.
class Buffer {
 public:
  Buffer(Endpoint& endpoint, size_t bytes, bool placed) : endpoint_(endpoint), placed_(placed) {
    data_ =
        placed_ ? endpoint_.arena().allocate(bytes) : static_cast<std::byte*>(std::malloc(std::max<size_t>(bytes, 1)));
    std::memset(data_, 1, bytes);
  }
  ~Buffer() {
    if (placed_) {
      endpoint_.arena().release(data_);
    } else {
      std::free(data_);
    }
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::byte* data() const { return data_; }

 private:
  Endpoint& endpoint_;
  bool placed_;
  std::byte* data_;
};

// One side of a trial.
struct Side {
  std::shared_ptr<Line> line;
  std::shared_ptr<Operation> operation;
  std::optional<Buffer> input;
  std::optional<Buffer> output;
};

struct Scenario {
  int what = 0;  // a Kind, 6: to the victim, 7: from the victim
  size_t elements = 0;
  Dtype dtype = Dtype::f32;
  bool placed = false;
};

Scenario draw_scenario(Random& random) {
  static constexpr size_t kElements[] = {1, 7, 1000, 65536, 65537, 150'000};
  static constexpr Dtype kTypes[] = {Dtype::f32, Dtype::bf16, Dtype::u8, Dtype::f64};
  return {static_cast<int>(random() % 8), kElements[random() % 6], kTypes[random() % 4], random() % 2 == 0};
}

void begin_collective(Side& side, Endpoint& endpoint, const Scenario& scenario) {
  auto line = std::make_shared<CollectiveLine>(endpoint, "c", std::vector<int>{0, 1}, endpoint.rank());
  CollectiveRequest request;
  request.kind = static_cast<Kind>(scenario.what);
  request.dtype = scenario.dtype;
  request.count = static_cast<int64_t>(scenario.elements);
  const auto whole = static_cast<int64_t>(scenario.elements);
  const std::vector<int64_t> counts{whole / 2, whole - whole / 2};
  const auto own = static_cast<size_t>(counts[static_cast<size_t>(endpoint.rank())]);
  const size_t bytes = scenario.elements * size_of(scenario.dtype);
  const bool gathers = request.kind == Kind::all_gather;
  const bool scatters = request.kind == Kind::reduce_scatter;
  side.output.emplace(endpoint, scatters ? own * size_of(scenario.dtype) : bytes, scenario.placed);
  side.input.emplace(endpoint, gathers ? own * size_of(scenario.dtype) : bytes, scenario.placed);
  request.output = side.output->data();
  request.input = side.input->data();
  if (gathers) request.output_counts = counts;
  if (scatters) request.input_counts = counts;
  if (request.kind == Kind::all_to_all) {
    const auto mine = counts[static_cast<size_t>(endpoint.rank())];
    request.input_counts = request.output_counts = {mine, mine};
    if (endpoint.rank() == 0) request.input_counts[1] = request.output_counts[1] = counts[0];
    if (endpoint.rank() == 1) request.input_counts[0] = request.output_counts[0] = counts[0];
    if (endpoint.rank() == 1) request.input_counts[1] = request.output_counts[1] = 0;
  }
  side.operation = line->start(request);
  side.line = line;
}

void begin_message(Side& side, Endpoint& endpoint, const Scenario& scenario) {
  const size_t bytes = scenario.elements * size_of(scenario.dtype) - 1;
  const int from = scenario.what == 6 ? 1 : 0;
  side.output.emplace(endpoint, bytes, scenario.placed);
  if (endpoint.rank() == from) {
    auto line = std::make_shared<OutLine>(endpoint, "m", 1 - from);
    side.operation = line->start(side.output->data(), bytes, 5);
    side.line = line;
  } else {
    auto line = std::make_shared<InLine>(endpoint, "m", from);
    side.operation = line->start(side.output->data(), bytes, 5);
    side.line = line;
  }
}

void begin(Side& side, Endpoint& endpoint, const Scenario& scenario) {
  scenario.what < 6 ? begin_collective(side, endpoint, scenario) : begin_message(side, endpoint, scenario);
}

uint64_t draw_value(Random& random, size_t mapping_bytes) {
  const uint64_t power = uint64_t{1} << (random() % 64);
  switch (random() % 8) {
    case 0:
      return random() % 8;
    case 1:
      return ~uint64_t{0} - random() % 8;
    case 2:
      return power;
    case 3:
      return power - 1;
    case 4:
      return mapping_bytes - random() % 4096;
    case 5:
      return mapping_bytes - random() % (2 << 20);
    case 6:
      return random() % mapping_bytes;
    default:
      return random();
  }
}

// Changes one number that the operation reads: of the header, the directory, the lane or pipe, or the first of a slot.
void change(const ArenaView& view, size_t mapping_bytes, bool message, Random& random) {
  auto& header = view.header();
  const auto value = draw_value(random, mapping_bytes);
  auto* const memory = reinterpret_cast<std::byte*>(&header);
  const uint64_t first_block = (sizeof(ArenaHeader) + 4095) / 4096 * 4096;  // where the lane or pipe lies
  auto& lane = *reinterpret_cast<LaneHeader*>(memory + first_block);
  auto& pipe = *reinterpret_cast<PipeHeader*>(memory + first_block);
  auto* const table = reinterpret_cast<uint64_t*>(memory + first_block + sizeof(LaneHeader));
  const auto which = random() % 16;
  if (which == 0) header.num_entries = static_cast<uint32_t>(value);
  if (which == 1) header.entries[0].offset = value;
  if (which == 2) header.entries[0].name_hash = value;
  if (which == 3) header.doorbell.count = header.doorbell.sleepers = static_cast<uint32_t>(value);
  if (which == 4) header.left_at = value;
  if (which == 5 || which == 6) {
    for (int i = 0; i < 32; ++i) memory[first_block + random() % 8192] = static_cast<std::byte>(random());
  }
  if (which == 7) (message ? pipe.posted : lane.posted) = value;
  if (which == 8) (message ? pipe.consumed : lane.consumed) = value;
  if (which < 9) return;
  for (auto& cell : pipe.cells) {
    if (!message) break;
    if (which % 4 == 0) cell.tag = value;
    if (which % 4 == 1) cell.message_bytes = value;
    if (which % 4 == 2) cell.cell_bytes = value;
    if (which % 4 == 3) cell.placed_at = value;
  }
  if (message) return;
  if (which % 3 == 0) table[random() % 4] = value;
  for (auto& slot : lane.slots) {
    if (which % 3 == 1) slot.value = value;
    if (which % 3 == 2) slot.fingerprint = value;
  }
}

enum class End { done, refused, waiting };

End run_trial(Random& random) {
  Pair ranks;
  const auto scenario = draw_scenario(random);
  const auto& changed = random() % 4 == 0 ? ranks.victim : ranks.peer;  // a peer can write into both
  const auto& view = ranks.victim.peer(changed.rank());
  const auto change_some = [&] {
    for (auto count = 1 + random() % 3; count > 0; --count) {
      change(view, ranks.peer.arena().mapping().bytes(), scenario.what >= 6, random);
    }
  };
  Side victim, peer;
  begin(peer, ranks.peer, scenario);
  change_some();
  begin(victim, ranks.victim, scenario);
  for (int round = 1; round < kRounds && !victim.operation->is_done(); ++round) {
    if (random() % 2 == 0) change_some();
    if (random() % 3 != 0) peer.line->advance();
    victim.line->advance();
    victim.line->awaited();
  }
  if (!victim.operation->is_done()) return End::waiting;
  if (!victim.operation->error) return End::done;
  try {
    std::rethrow_exception(victim.operation->error);
  } catch (const PeerFailure& failure) {
    EXPECT_TRUE(failure.rank() == 0 || failure.rank() == 1) << failure.what();
    EXPECT_NE(std::string(failure.what()).find("rank "), std::string::npos) << failure.what();
  }
  return End::refused;
}

TEST(HostileMemory, EveryNumberOfAPeerIsRefusedOrHarmless) {
  Random random(24);
  for (int i = 0; i < 50; ++i) run_trial(random);
  const size_t before = resident_bytes();
  int counts[3] = {};
  for (int i = 0; i < num_trials(); ++i) ++counts[static_cast<int>(run_trial(random))];
  EXPECT_GT(counts[static_cast<int>(End::refused)], num_trials() / 10);
  EXPECT_GT(counts[static_cast<int>(End::done)], num_trials() / 50);
  std::cout << counts[0] << " done, " << counts[1] << " refused, " << counts[2] << " waiting\n";
  EXPECT_LT(resident_bytes(), before + (size_t{512} << 20));
}

// The same operations with nobody changing anything: the harness speaks the protocol.
TEST(HostileMemory, HonestPeersFinish) {
  for (int what = 0; what < 8; ++what) {
    for (const bool placed : {false, true}) {
      Pair ranks;
      const Scenario scenario{what, 150'000, Dtype::f32, placed};
      Side victim, peer;
      begin(peer, ranks.peer, scenario);
      begin(victim, ranks.victim, scenario);
      for (int round = 0; round < 1000 && !(victim.operation->is_done() && peer.operation->is_done()); ++round) {
        peer.line->advance();
        victim.line->advance();
      }
      EXPECT_TRUE(victim.operation->is_done() && !victim.operation->error) << what << placed;
      EXPECT_TRUE(peer.operation->is_done() && !peer.operation->error) << what << placed;
    }
  }
}

TEST(HostileMemory, NamesTheRankWhoseDirectoryOrMessageDoesNotFit) {
  Pair ranks;
  Side peer, victim;
  const Scenario scenario{6, 1000, Dtype::f32, false};
  begin(peer, ranks.peer, scenario);
  ranks.peer.arena().header().entries[0].offset = kArenaBytes * 2;
  begin(victim, ranks.victim, scenario);
  ASSERT_TRUE(victim.operation->is_done());
  try {
    std::rethrow_exception(victim.operation->error);
  } catch (const PeerFailure& failure) {
    EXPECT_EQ(failure.rank(), 1);
    EXPECT_NE(std::string(failure.what()).find("the shared memory of rank 1 is damaged"), std::string::npos);
  }
}

}  // namespace hostile_memory_test
}  // namespace orthant::shm
