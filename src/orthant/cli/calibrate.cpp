#include "orthant/cli/calibrate.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>

#include "orthant/base/error.h"
#include "orthant/base/human.h"
#include "orthant/cli/compute_bench.h"
#include "orthant/cli/devices.h"
#include "orthant/cli/dtype_option.h"
#include "orthant/cli/link_bench.h"
#include "orthant/cli/machine.h"
#include "orthant/cli/rank_command.h"
#include "orthant/cuda/kernel.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/whole_file.h"
#include "orthant/launch/cache_folder.h"
#include "orthant/nn/scalar_type.h"
#include "orthant/ops/linear/projection.h"
#include "orthant/plan/estimate/hardware.h"
#include "orthant/train/memory.h"

namespace orthant::cli {
namespace {

constexpr std::array kCoreTypes = {DType::float32, DType::bfloat16};
constexpr std::array kGpuTypes = {DType::bfloat16, DType::float16};  // a card is known by its products in 16 bits

// Of what tensors take on a card, lost to fragmentation: as in presets.
constexpr double kFragmentation = 0.04;

// Nothing is left behind where there was nothing.
void check_writable(const std::filesystem::path& path) {
  if (path.extension() != ".json") {
    throw ConfigError(fmt::format("--calibrate {}: files of machines are known by their ending", path.string()),
                      {.remedy = fmt::format("use --calibrate {}.json", path.string())});
  }
  const bool existed = is_there(path);
  const bool opens = std::ofstream(path, std::ios::app).is_open();
  if (!opens) {
    throw ConfigError(fmt::format("--calibrate {} cannot be written", path.string()),
                      {.remedy = "name a file in a folder that exists and may be written"});
  }
  std::error_code ignored;
  if (!existed) std::filesystem::remove(path, ignored);
}

// Four digits: what such figures are good for.
double rounded(double value) {
  return std::stod(fmt::format("{:.4g}", value));
}

void round_figures(Hardware& hardware) {
  for (double* figure : {&hardware.peak_flops, &hardware.attention_share, &hardware.dropped_attention_share,
                         &hardware.memory_bandwidth, &hardware.memory_efficiency, &hardware.kernel_seconds,
                         &hardware.update_rate, &hardware.draw_rate, &hardware.interrupted}) {
    *figure = rounded(*figure);
  }
  for (auto& point : hardware.products.points) point.share = rounded(point.share);
  for (Link* link : {&hardware.local, &hardware.network}) {
    for (double* figure : {&link->bandwidth, &link->latency, &link->slows_compute}) *figure = rounded(*figure);
  }
}

// One rank alone has no link to measure: what it moves in memory goes twice through it.
void assume_links(Hardware& hardware) {
  hardware.local = {.name = "not measured", .bandwidth = hardware.memory_bandwidth / 2};
  hardware.network = hardware.local;
}

// Kernels are compiled for the card, kept where a training looks for them. ConfigError where there are none: a step
// would take other functions than those that are timed.
void prepare_kernels(const RankContext& rank, const Context& context) {
  if (rank.comm.device.is_cpu()) return;
  const auto said = std::make_shared<std::string>();
  auto& library = cuda::KernelLibrary::of_process();
  library.configure({launch::cache_folder(context.environment), [said](const std::string& text) {
                       *said = text;
                       say(text);
                     }});
  at::empty({1}, at::TensorOptions().device(rank.comm.device));  // makes the context that kernels are loaded into
  if (library.available()) return;
  throw ConfigError(*said, {.remedy = "name a preset with --gpu, or use a CUDA wheel of torch 2.11 and a newer card"});
}

// After everything was timed: a card's context, libraries and kernels have been loaded, and are what no tensor has.
void measure_memory(Hardware& hardware, const Machine& machine, const RankContext& rank) {
  const at::Device device = rank.comm.device;
  if (device.is_cpu()) {
    hardware.memory_bytes = machine.memory_bytes / rank.job.world_size;
    return;
  }
  const auto [free, total] = at::accelerator::getMemoryInfo(device.index());
  const auto kept = at::accelerator::getDeviceStats(device.index()).reserved_bytes.front().current;
  hardware.memory_bytes = static_cast<std::int64_t>(total);
  hardware.reserve_bytes = std::max<std::int64_t>(static_cast<std::int64_t>(total - free) - kept, 0);
  hardware.reserve_share = kFragmentation;
}

Hardware measure(const RankContext& rank, const Machine& machine, DType compute, int rounds, const Context& context) {
  prepare_kernels(rank, context);
  const auto communicator = comm::make_communicator(rank.mesh, rank.job, rank.comm);
  const int ranks = rank.job.world_size;
  RankClock clock(communicator->world(), rank.comm.device);
  const ComputeBench computing(clock, scalar_type(compute));
  std::optional<LinkBench> links;
  if (ranks > 1) links.emplace(clock, *communicator);
  clock.run(rounds, [&](int round) {
    if (rank.is_first()) rank.log.info(fmt::format("round {} of {} on {} ranks", round, rounds, ranks));
  });
  Hardware hardware;
  hardware.description = fmt::format("Measured by orthant plan --calibrate: {} rank{} on {}, products in {}.", ranks,
                                     ranks == 1 ? "" : "s at once",
                                     rank.comm.device.is_cpu() ? "cores"
                                     : ranks == 1              ? "a GPU"
                                                               : "GPUs",
                                     dtype_name(compute));
  hardware.on_host = rank.comm.device.is_cpu();
  hardware.widens_products = !nn::cpu_multiplies(at::kBFloat16);
  measure_memory(hardware, machine, rank);
  hardware.cards_per_node = ranks;
  computing.fill_in(hardware);
  if (links) {
    links->fill_in(hardware);
  } else {
    assume_links(hardware);
  }
  communicator->close();
  round_figures(hardware);
  return hardware;
}

// What people look at first.
std::string told(const Hardware& hardware) {
  const auto rate = [](double bytes) { return format_bytes(static_cast<std::int64_t>(bytes)) + "/s"; };
  const auto& points = hardware.products.points;
  return fmt::format(
      "products {:.4g} GFLOP/s at best, {:.0f}% of it at {:.0e} FLOPs; attention {:.0f}%\n"
      "memory {}, {:.0f}% of it in norms and activations; {} to start a kernel; {:.0f}% of the time interrupted\n"
      "links {} and {}, {:.0f}% of that time lost to computing beside them\n",
      hardware.peak_flops * 1e-9, 100 * points.front().share, points.front().size, 100 * hardware.attention_share,
      rate(hardware.memory_bandwidth), 100 * hardware.memory_efficiency, format_seconds(hardware.kernel_seconds),
      100 * hardware.interrupted, format_seconds(hardware.local.latency), rate(hardware.local.bandwidth),
      100 * hardware.local.slows_compute);
}

}  // namespace

int calibrate(const CalibrateOptions& options, Context& context) {
  check_writable(options.path);
  const auto machine = look_at_machine(context.environment);
  const bool on_gpu = choose_device(options.device, machine.num_gpus, launch::Job()).is_cuda();
  const auto name = options.compute.empty() ? std::string(on_gpu ? "bfloat16" : "float32") : options.compute;
  const DType compute = on_gpu ? parse_dtype_option(name, kGpuTypes) : parse_dtype_option(name, kCoreTypes);
  RankOptions ranks;
  ranks.device = on_gpu ? "cuda" : "cpu";
  ranks.ranks_per_device = options.ranks_per_device;
  const int gpu_ranks = std::max(1, machine.num_gpus) * std::max(1, options.ranks_per_device);
  ranks.mesh = fmt::format("dp={}", on_gpu ? gpu_ranks : machine.num_cores);
  install_counting_allocator();  // as a training does
  return run_on_ranks(ranks, context, 1, [&](RankContext& rank) {
    const auto hardware = measure(rank, machine, compute, options.rounds, context);
    if (!rank.is_first()) return 0;
    const auto text = to_json(hardware);
    write_file_atomically(options.path, text);
    if (options.json) std::cout << text << std::flush;
    rank.log.info(
        fmt::format("{}written to {}, for --gpu of orthant plan and orthant estimate and --hardware of orthant train",
                    told(hardware), options.path));
    return 0;
  });
}

}  // namespace orthant::cli
