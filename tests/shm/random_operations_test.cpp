// Random operations on random sub-groups, dtypes, sizes and alignments, placed or not, several under way, equal bit for
// bit to what one process computes from the same inputs.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>

#include "orthant/shm/reduce.h"
#include "shm/thread_ranks.h"

namespace orthant::shm {
namespace random_operations_test {

using Kind = CollectiveRequest::Kind;
constexpr Dtype kDtypes[] = {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16, Dtype::i64, Dtype::i32, Dtype::u8};

// One operation, drawn alike on every rank.
struct Plan {
  int number;
  Kind kind;
  bool message;
  Dtype dtype;
  Reduce reduce;
  std::vector<int> members;
  std::vector<std::vector<int64_t>> counts;  // [from][to] elements
  int64_t count;
  int root;
  size_t misalignment;
  bool placed;
  bool later;  // wait for it only after further operations
};

int64_t random_count(std::mt19937& random) {
  switch (random() % 8) {
    case 0:
      return 0;
    case 1:
      return 1 + random() % 200000;  // several slots for most dtypes
    case 2:
      return 1 + random() % 20000;
    default:
      return 1 + random() % 300;
  }
}

Plan draw(int number, int world_size) {
  std::mt19937 random(static_cast<unsigned>(number) * 7919U + 13U);
  Plan plan;
  plan.number = number;
  plan.kind = static_cast<Kind>(random() % 6);
  plan.message = random() % 4 == 0;
  plan.dtype = kDtypes[random() % std::size(kDtypes)];
  plan.reduce = random() % 3 == 0 ? Reduce::max : Reduce::sum;
  auto ranks = test::all_ranks(world_size);
  // A sub-group is one of a few fixed ones, as in a mesh, so that channels are used again and again.
  const int choice = static_cast<int>(random() % 3);
  for (int rank : ranks) {
    if (choice == 0 || (choice == 1 && rank < std::max(2, world_size / 2)) || (choice == 2 && rank != 1) ||
        world_size == 2) {
      plan.members.push_back(rank);
    }
  }
  const auto size = plan.members.size();
  plan.count = random_count(random);
  plan.root = static_cast<int>(random() % size);
  for (size_t i = 0; i < size; ++i) {
    plan.counts.emplace_back();
    for (size_t j = 0; j < size; ++j) plan.counts.back().push_back(random_count(random) / static_cast<int64_t>(size));
  }
  plan.misalignment = random() % 2 == 0 ? 0 : random() % 64;
  plan.placed = random() % 3 == 0;
  plan.later = random() % 2 == 0;
  return plan;
}

std::string channel_name(const Plan& plan) {
  std::string name = "c";
  for (const int rank : plan.members) name += "-" + std::to_string(rank);
  return name;
}

// Bits that depend on operation, rank and place. Every rank makes the inputs of all: this is cheaper than a generator
// with a state.
uint32_t bits_of(const Plan& plan, int rank, size_t place) {
  auto bits = static_cast<uint32_t>(plan.number * 64 + rank + 1) * 0x9e3779b1U + static_cast<uint32_t>(place);
  bits = (bits ^ (bits >> 16U)) * 0x85ebca6bU;
  bits = (bits ^ (bits >> 13U)) * 0xc2b2ae35U;
  return bits ^ (bits >> 16U);
}

// Element by element, what `value` makes of those bits.
template <typename Make>
std::vector<std::byte> elements_of(const Plan& plan, int rank, size_t elements, const Make& value) {
  using Value = decltype(value(0U));
  std::vector<std::byte> bytes(elements * sizeof(Value));
  for (size_t i = 0; i < elements; ++i) {
    const Value element = value(bits_of(plan, rank, i));
    std::memcpy(bytes.data() + i * sizeof(Value), &element, sizeof(Value));
  }
  return bytes;
}

// Any bytes are valid for integers; floats get small exact-ish values.
float small_float(uint32_t bits) {
  return static_cast<float>(static_cast<int>(bits % 2001) - 1000) / 7.0F;
}

std::vector<std::byte> input_of(const Plan& plan, int rank, size_t elements) {
  const auto all = [&](const auto& value) { return elements_of(plan, rank, elements, value); };
  switch (plan.dtype) {
    case Dtype::f32:
      return all([](uint32_t bits) { return small_float(bits); });
    case Dtype::f64:
      return all([](uint32_t bits) { return double{small_float(bits)}; });
    case Dtype::bf16:
      return all(
          [](uint32_t bits) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(small_float(bits)) >> 16U); });
    case Dtype::f16:  // 1..2, either sign
      return all([](uint32_t bits) { return static_cast<uint16_t>((bits & 0x83ffU) | 0x3c00U); });
    case Dtype::i64:
      return all([](uint32_t bits) { return uint64_t{bits}; });
    case Dtype::i32:
      return all([](uint32_t bits) { return bits; });
    case Dtype::u8:
      return all([](uint32_t bits) { return static_cast<uint8_t>(bits); });
  }
  return {};
}

std::vector<std::byte> reduced(const Plan& plan, size_t elements) {
  std::vector<std::vector<std::byte>> inputs;
  std::vector<const void*> terms;
  for (const int rank : plan.members) inputs.push_back(input_of(plan, rank, elements));
  for (const auto& input : inputs) terms.push_back(input.data());
  std::vector<std::byte> output(elements * size_of(plan.dtype));
  reduce(Isa::plain, plan.dtype, plan.reduce, output.data(), terms.data(), static_cast<int>(terms.size()), elements);
  return output;
}

int64_t sum(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

// Memory of one side of an operation: misaligned heap, or a placed block.
class Buffer {
 public:
  Buffer(Endpoint& endpoint, const Plan& plan, size_t bytes) : endpoint_(endpoint), bytes_(bytes) {
    if (plan.placed) {
      block_ = endpoint_.arena().allocate(bytes + plan.misalignment);
      data_ = block_ + plan.misalignment;
    } else {
      heap_.resize(bytes + plan.misalignment);
      data_ = heap_.data() + plan.misalignment;
    }
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (block_ != nullptr) endpoint_.arena().release(block_);
  }

  std::byte* data() { return data_; }
  void set(const std::vector<std::byte>& bytes) {
    if (!bytes.empty()) std::memcpy(data_, bytes.data(), bytes.size());
  }
  bool equals(const std::vector<std::byte>& bytes) const {
    return bytes.size() == bytes_ && (bytes.empty() || std::memcmp(data_, bytes.data(), bytes_) == 0);
  }

 private:
  Endpoint& endpoint_;
  size_t bytes_;
  std::vector<std::byte> heap_;
  std::byte* block_ = nullptr;
  std::byte* data_ = nullptr;
};

// One operation under way on one rank, with what it must give.
struct Running {
  Plan plan;
  std::vector<std::unique_ptr<Buffer>> buffers;
  Buffer* output = nullptr;
  std::vector<std::byte> expected;
  std::vector<Ticket> tickets;

  void finish() {
    for (auto& ticket : tickets) ticket.wait();
    tickets.clear();
    if (output != nullptr) {
      EXPECT_TRUE(output->equals(expected)) << "operation " << plan.number << " kind " << static_cast<int>(plan.kind)
                                            << (plan.message ? " message" : "") << " dtype " << name_of(plan.dtype);
    }
  }
};

class Rank {
 public:
  explicit Rank(Endpoint& endpoint) : endpoint_(endpoint) {}

  void start(const Plan& plan) {
    const auto place = std::find(plan.members.begin(), plan.members.end(), endpoint_.rank());
    if (place == plan.members.end()) return;
    index_ = static_cast<int>(place - plan.members.begin());
    auto running = std::make_unique<Running>();
    running->plan = plan;
    auto& channel = channels_[channel_name(plan)];
    if (!channel) channel = std::make_unique<Channel>(endpoint_, channel_name(plan), plan.members, index_, 60.0);
    plan.message ? start_message(*running, *channel) : start_collective(*running, *channel);
    under_way_.push_back(std::move(running));
    if (!plan.later || under_way_.size() > 6) finish_all();
  }

  void finish_all() {
    for (auto& running : under_way_) running->finish();
    under_way_.clear();
  }

 private:
  Buffer& add(Running& running, size_t bytes) {
    running.buffers.push_back(std::make_unique<Buffer>(endpoint_, running.plan, bytes));
    return *running.buffers.back();
  }

  // Member 0 sends to the last member, with a tag of its own.
  void start_message(Running& running, Channel& channel) {
    const auto& plan = running.plan;
    const int last = static_cast<int>(plan.members.size()) - 1;
    const auto data = input_of(plan, plan.members.front(), static_cast<size_t>(plan.count));
    if (index_ != 0 && index_ != last) return;
    auto& buffer = add(running, data.size());
    if (index_ == 0) {
      buffer.set(data);
      running.tickets.push_back(channel.send(buffer.data(), data.size(), last, plan.number % 3));
    } else {
      running.output = &buffer;
      running.expected = data;
      running.tickets.push_back(channel.receive(buffer.data(), data.size(), 0, plan.number % 3));
    }
  }

  void start_collective(Running& running, Channel& channel) {
    const auto& plan = running.plan;
    const size_t element = size_of(plan.dtype);
    const auto me = static_cast<size_t>(index_);
    CollectiveRequest request;
    request.kind = plan.kind;
    request.dtype = plan.dtype;
    if (plan.kind == Kind::all_reduce || plan.kind == Kind::broadcast) {
      const auto elements = static_cast<size_t>(plan.count);
      auto& buffer = add(running, elements * element);
      buffer.set(input_of(plan, endpoint_.rank(), elements));
      running.expected = plan.kind == Kind::all_reduce
                             ? reduced(plan, elements)
                             : input_of(plan, plan.members[static_cast<size_t>(plan.root)], elements);
      request.count = plan.count;
      request.output = buffer.data();
      running.output = &buffer;
      if (plan.kind == Kind::all_reduce) request.reduce = plan.reduce;
      if (plan.kind == Kind::broadcast) request.root = plan.root;
    } else if (plan.kind == Kind::all_gather) {
      request.output_counts = plan.counts.front();
      for (size_t m = 0; m < plan.members.size(); ++m) {
        const auto part = input_of(plan, plan.members[m], static_cast<size_t>(request.output_counts[m]));
        running.expected.insert(running.expected.end(), part.begin(), part.end());
      }
      auto& input = add(running, static_cast<size_t>(request.output_counts[me]) * element);
      input.set(input_of(plan, endpoint_.rank(), static_cast<size_t>(request.output_counts[me])));
      set_sides(running, request, input, running.expected.size());
    } else if (plan.kind == Kind::reduce_scatter) {
      request.reduce = plan.reduce;
      request.input_counts = plan.counts.front();
      const auto elements = static_cast<size_t>(sum(request.input_counts));
      auto& input = add(running, elements * element);
      input.set(input_of(plan, endpoint_.rank(), elements));
      const auto all = reduced(plan, elements);
      const auto begin = static_cast<size_t>(
          std::accumulate(request.input_counts.begin(), request.input_counts.begin() + index_, int64_t{0}));
      const auto count = static_cast<size_t>(request.input_counts[me]);
      running.expected.assign(all.begin() + static_cast<std::ptrdiff_t>(begin * element),
                              all.begin() + static_cast<std::ptrdiff_t>((begin + count) * element));
      set_sides(running, request, input, running.expected.size());
    } else if (plan.kind == Kind::all_to_all) {
      start_all_to_all(running, request);
    }
    running.tickets.push_back(channel.collective(request));
  }

  void start_all_to_all(Running& running, CollectiveRequest& request) {
    const auto& plan = running.plan;
    const size_t element = size_of(plan.dtype);
    const auto me = static_cast<size_t>(index_);
    request.input_counts = plan.counts[me];
    for (size_t m = 0; m < plan.members.size(); ++m) {
      request.output_counts.push_back(plan.counts[m][me]);
      const auto theirs = input_of(plan, plan.members[m], static_cast<size_t>(sum(plan.counts[m])));
      const auto begin = std::accumulate(plan.counts[m].begin(), plan.counts[m].begin() + index_, int64_t{0});
      const auto* from = theirs.data() + static_cast<size_t>(begin) * element;
      running.expected.insert(running.expected.end(), from, from + static_cast<size_t>(plan.counts[m][me]) * element);
    }
    const auto elements = static_cast<size_t>(sum(request.input_counts));
    auto& input = add(running, elements * element);
    input.set(input_of(plan, endpoint_.rank(), elements));
    set_sides(running, request, input, running.expected.size());
  }

  void set_sides(Running& running, CollectiveRequest& request, Buffer& input, size_t output_bytes) {
    auto& output = add(running, output_bytes);
    request.input = input.data();
    request.output = output.data();
    running.output = &output;
  }

  Endpoint& endpoint_;
  int index_ = 0;
  std::map<std::string, std::unique_ptr<Channel>> channels_;
  std::vector<std::unique_ptr<Running>> under_way_;
};

class RandomOperations : public testing::TestWithParam<int> {};

TEST_P(RandomOperations, EqualAnOracleBitForBit) {
  const int size = GetParam();
  const int operations = ORTHANT_RANDOM_OPERATIONS;
  const auto errors = test::errors_of_ranks(size, [&](Endpoint& endpoint) {
    Rank rank(endpoint);
    for (int i = 0; i < operations; ++i) rank.start(draw(i, size));
    rank.finish_all();
  });
  for (const auto& error : errors) EXPECT_EQ(error, "");
}

INSTANTIATE_TEST_SUITE_P(Ranks, RandomOperations, testing::Values(2, 3, 5, 8));

}  // namespace random_operations_test
}  // namespace orthant::shm
