// orthant bench comm: times of every operation of a group, 4 KiB to 64 MiB, several backends interleaved.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "orthant/base/error.h"
#include "orthant/base/human.h"
#include "orthant/base/json_text.h"
#include "orthant/base/quantile.h"
#include "orthant/cli/bench.h"
#include "orthant/cli/option_parser.h"
#include "orthant/cli/rank_command.h"

namespace orthant::cli {
namespace {

constexpr int64_t kKiB = 1024;
const std::vector<int64_t> kSizes = {4 * kKiB, 64 * kKiB, kKiB* kKiB, 8 * kKiB* kKiB, 32 * kKiB* kKiB, 64 * kKiB* kKiB};

struct Row {
  std::string backend;
  std::string op;
  int64_t bytes = 0;
  bool placed = false;
  double median_seconds = 0;
  double p90_seconds = 0;

  double bandwidth() const { return static_cast<double>(bytes) / median_seconds; }
};

// What the busiest link carries, as nccl-tests count it: comparable across operations and numbers of ranks.
double bus_bandwidth(const Row& row, int world_size) {
  const double others = static_cast<double>(world_size - 1) / world_size;
  if (row.op == "all_reduce") return 2 * others * row.bandwidth();
  if (row.op == "broadcast" || row.op == "send_receive") return row.bandwidth();
  return others * row.bandwidth();
}

struct Settings {
  int rounds = 10;
  int warmup = 3;
  int64_t largest_bytes = 64 * kKiB * kKiB;
};

// One backend, with tensors from the heap or from the communicator's own buffers.
struct Contender {
  std::string backend;
  bool placed = false;
  comm::Communicator* communicator = nullptr;
  comm::Group group;
  at::Device device = at::kCPU;

  at::Tensor tensor(int64_t elements) const {
    if (placed) return communicator->allocate(elements, at::kFloat).fill_(1.0);
    return at::ones({elements}, at::TensorOptions().dtype(at::kFloat).device(device));
  }
};

// One operation on tensors of `bytes` in all. `share` scales a measured call to the operation (a ping-pong is two
// messages).
struct Operation {
  const char* name;
  double share;
  std::function<void()> prepare;  // not timed
  std::function<void()> run;
};

std::vector<Operation> operations(const Contender& contender, int64_t bytes) {
  auto group = contender.group;
  // Whole tensors must divide among the ranks; a few elements less change no figure.
  const int64_t elements = bytes / 4 / group.size() * group.size();
  const auto whole = contender.tensor(elements);
  const auto other = contender.tensor(elements);
  const auto part = contender.tensor(elements / group.size());
  const auto refill = [whole] { whole.fill_(1.0); };  // summing in place for ever would run to infinity
  const auto ping_pong = [group, whole, other]() mutable {
    if (group.index() > 1) return;
    const int peer = 1 - group.index();
    if (group.index() == 0) group.send(whole, peer).wait();
    group.receive(other, peer).wait();
    if (group.index() == 1) group.send(whole, peer).wait();
  };
  std::vector<Operation> all = {
      {"all_reduce", 1.0, refill, [group, whole]() mutable { group.all_reduce(whole).wait(); }},
      {"all_gather", 1.0, refill, [group, other, part]() mutable { group.all_gather(other, part).wait(); }},
      {"reduce_scatter", 1.0, refill, [group, whole, part]() mutable { group.reduce_scatter(part, whole).wait(); }},
      {"all_to_all", 1.0, refill, [group, whole, other]() mutable { group.all_to_all(other, whole).wait(); }},
      {"broadcast", 1.0, refill, [group, whole]() mutable { group.broadcast(whole, 0).wait(); }},
  };
  if (group.size() > 1) all.push_back({"send_receive", 0.5, refill, ping_pong});
  return all;
}

// Work on a GPU ends when the device says so, not when wait() returns.
void synchronize(const at::Device& device) {
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

// Seconds of one call on the slowest rank. Small calls are made several times in a row, so that the barrier's skew does
// not count as latency.
double time_round(const Contender& contender, const Operation& operation, int calls) {
  auto group = contender.group;
  operation.prepare();
  synchronize(contender.device);
  group.barrier().wait();
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) operation.run();
  synchronize(contender.device);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  const auto slowest =
      at::full({1}, seconds * operation.share / calls, at::TensorOptions().dtype(at::kDouble).device(contender.device));
  group.all_reduce(slowest, comm::Reduction::max).wait();
  return slowest.item<double>();
}

void bench_size(const std::vector<Contender>& contenders, int64_t bytes, const Settings& settings,
                std::vector<Row>& rows) {
  std::vector<std::vector<Operation>> runs;
  for (const auto& contender : contenders) runs.push_back(operations(contender, bytes));
  const int calls = static_cast<int>(std::clamp<int64_t>(4 * kKiB * kKiB / bytes, 1, 20));
  for (size_t op = 0; op < runs.front().size(); ++op) {
    std::vector<std::vector<double>> seconds(contenders.size());
    for (int round = -settings.warmup; round < settings.rounds; ++round) {
      for (size_t c = 0; c < contenders.size(); ++c) {
        const double taken = time_round(contenders[c], runs[c][op], calls);
        if (round >= 0) seconds[c].push_back(taken);
      }
    }
    for (size_t c = 0; c < contenders.size(); ++c) {
      rows.push_back({contenders[c].backend, runs[c][op].name, bytes, contenders[c].placed, quantile(seconds[c], 0.5),
                      quantile(seconds[c], 0.9)});
    }
  }
}

void print_table(const std::vector<Row>& rows, int world_size) {
  std::cout << fmt::format("{} rank{}\n{:12} {:15} {:>10} {:>12} {:>12} {:>10} {:>10}\n", world_size,
                           world_size == 1 ? "" : "s", "backend", "operation", "size", "median", "p90", "GB/s",
                           "bus GB/s");
  for (const auto& row : rows) {
    std::cout << fmt::format("{:12} {:15} {:>10} {:>12} {:>12} {:>10.3f} {:>10.3f}\n",
                             row.backend + (row.placed ? " placed" : ""), row.op, format_bytes(row.bytes),
                             format_seconds(row.median_seconds), format_seconds(row.p90_seconds),
                             row.bandwidth() * 1e-9, bus_bandwidth(row, world_size) * 1e-9);
  }
  std::cout << std::flush;
}

void print_json(const std::vector<Row>& rows, int world_size) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& row : rows) {
    list.push_back({{"backend", row.backend},
                    {"op", row.op},
                    {"bytes", row.bytes},
                    {"placed", row.placed},
                    {"median_seconds", row.median_seconds},
                    {"p90_seconds", row.p90_seconds},
                    {"bus_bytes_per_second", bus_bandwidth(row, world_size)}});
  }
  std::cout << json_text(nlohmann::ordered_json{{"world_size", world_size}, {"rows", list}}) << std::endl;
}

std::vector<std::string> split_names(const std::string& text) {
  std::vector<std::string> names;
  std::istringstream stream(text);
  for (std::string name; std::getline(stream, name, ',');) names.push_back(name);
  return names;
}

// The backend the ranks start under. `fake` has no peers, so it cannot be timed beside one that has.
std::string process_backend(const std::string& list) {
  const auto names = split_names(list);
  for (const auto& name : names) {
    if (comm::parse_backend(name) != comm::BackendKind::fake) continue;
    if (names.size() == 1) return "fake";
    throw ConfigError(fmt::format("--backend {}: fake runs one rank without peers, the others run all", list),
                      {.remedy = "time fake in a call of its own"});
  }
  return names.size() == 1 ? list : "auto";
}

using Communicators = std::vector<std::unique_ptr<comm::Communicator>>;

// All backends meet in one store, each below a name of its own.
Communicators make_communicators(const RankContext& rank, const std::string& list) {
  const auto store = comm::join_store(rank.job, rank.comm);
  Communicators communicators;
  for (const auto& name : split_names(list)) {
    auto options = rank.comm;
    if (name != "auto") options.backend = comm::parse_backend(name);
    auto named_store = store;
    if (named_store) named_store = named_store->below("bench-" + name);
    communicators.push_back(std::make_unique<comm::Communicator>(rank.mesh, rank.job.rank, named_store, options));
  }
  return communicators;
}

// Shared memory is timed twice: with tensors from anywhere, and with tensors placed where peers can read them.
std::vector<Contender> make_contenders(const Communicators& communicators, const at::Device& device) {
  std::vector<Contender> contenders;
  for (const auto& communicator : communicators) {
    const std::string name = communicator->backend_name();
    contenders.push_back({name, false, communicator.get(), communicator->world(), device});
    if (contenders.back().group.size() > 1) contenders.back().group.connect({{0, 1}, {1, 0}});
    if (name == "shm") contenders.push_back({name, true, communicator.get(), communicator->world(), device});
  }
  return contenders;
}

}  // namespace

int run_bench_comm(const Arguments& arguments, Context& context) {
  OptionParser app("Times of every operation of a group, 4 KiB to 64 MiB, over all ranks of the mesh.",
                   "orthant bench comm");
  RankOptions options;
  Settings settings;
  std::string largest = "64MiB";
  bool json = false;
  add_rank_options(app, options);
  app.add_option("--rounds", settings.rounds, "timed rounds per operation (default 10)").check(NumberRange(1, 100000));
  app.add_option("--warmup", settings.warmup, "rounds before timing (default 3)").check(NumberRange(0, 100000));
  app.add_option("--max-bytes", largest, "leave out sizes above this (default 64MiB)");
  app.add_flag("--json", json, "one JSON document on stdout");
  if (!parse(app, arguments, context, "orthant bench comm --mesh dp=2 --backend gloo --json")) return 0;
  settings.largest_bytes = parse_bytes(largest, "--max-bytes");
  if (settings.largest_bytes < kSizes.front()) {
    throw ConfigError(fmt::format("--max-bytes {} leaves nothing to time", largest), {.remedy = "use at least 4KiB"});
  }
  const auto backend_list = options.backend;
  options.backend = process_backend(backend_list);

  return run_on_ranks(options, context, 2, [&](RankContext& rank) {
    const auto communicators = make_communicators(rank, backend_list);
    const auto contenders = make_contenders(communicators, rank.comm.device);
    std::vector<Row> rows;
    for (const int64_t bytes : kSizes) {
      if (bytes > settings.largest_bytes || bytes / 4 < rank.job.world_size) continue;  // an element for each rank
      if (rank.is_first())
        rank.log.info(fmt::format("timing {} on {} ranks", format_bytes(bytes), rank.job.world_size));
      bench_size(contenders, bytes, settings, rows);
    }
    for (const auto& communicator : communicators) communicator->close();
    if (rank.is_first()) json ? print_json(rows, rank.job.world_size) : print_table(rows, rank.job.world_size);
    return 0;
  });
}

}  // namespace orthant::cli
