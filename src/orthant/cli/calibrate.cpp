#include "orthant/cli/calibrate.h"

#include <ATen/DeviceAccelerator.h>
#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>

#include "orthant/base/error.h"
#include "orthant/base/human.h"
#include "orthant/cli/compute_bench.h"
#include "orthant/cli/devices.h"
#include "orthant/cli/dtype_option.h"
#include "orthant/cli/link_bench.h"
#include "orthant/cli/machine.h"
#include "orthant/cli/rank_command.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/whole_file.h"
#include "orthant/nn/projection.h"
#include "orthant/nn/scalar_type.h"
#include "orthant/plan/hardware.h"
#include "orthant/train/memory.h"

namespace orthant::cli {
namespace {

constexpr std::array kComputeTypes = {DType::float32, DType::bfloat16};

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
  for (double* figure :
       {&hardware.peak_flops, &hardware.attention_share, &hardware.memory_bandwidth, &hardware.memory_efficiency,
        &hardware.kernel_seconds, &hardware.update_rate, &hardware.draw_rate, &hardware.interrupted}) {
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

std::int64_t memory_of_a_rank(const Machine& machine, const RankContext& rank) {
  if (rank.comm.device.is_cpu()) return machine.memory_bytes / rank.job.world_size;
  const auto [free, total] = at::accelerator::getMemoryInfo(rank.comm.device.index());
  return static_cast<std::int64_t>(total);
}

Hardware measure(const RankContext& rank, const Machine& machine, DType compute) {
  const auto communicator = comm::make_communicator(rank.mesh, rank.job, rank.comm);
  const int ranks = rank.job.world_size;
  RankClock clock(communicator->world(), rank.comm.device);
  const ComputeBench computing(clock, scalar_type(compute));
  std::optional<LinkBench> links;
  if (ranks > 1) links.emplace(clock, *communicator);
  clock.run([&](int round) {
    if (rank.is_first()) rank.log.info(fmt::format("round {} of {} on {} ranks", round, RankClock::kRounds, ranks));
  });
  Hardware hardware;
  hardware.description =
      fmt::format("Measured by orthant plan --calibrate: {} rank{} on {}, products in {}.", ranks,
                  ranks == 1 ? "" : "s at once", rank.comm.device.is_cpu() ? "cores" : "a GPU", dtype_name(compute));
  hardware.on_host = rank.comm.device.is_cpu();
  hardware.widens_products = !nn::cpu_multiplies(at::kBFloat16);
  hardware.memory_bytes = memory_of_a_rank(machine, rank);
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
  const DType compute = parse_dtype_option(name, kComputeTypes);
  RankOptions ranks;
  ranks.device = on_gpu ? "cuda" : "cpu";
  ranks.mesh = fmt::format("dp={}", on_gpu ? 1 : machine.num_cores);
  install_counting_allocator();  // as a training does
  return run_on_ranks(ranks, context, 1, [&](RankContext& rank) {
    const auto hardware = measure(rank, machine, compute);
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
