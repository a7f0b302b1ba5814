#include "orthant/train/step_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "orthant/base/error.h"
#include "orthant/base/index.h"
#include "orthant/layout/expert_view.h"
#include "orthant/layout/local_parameter.h"
#include "orthant/nn/scalar_type.h"
#include "orthant/ops/experts/expert_products.h"

namespace orthant {
namespace {

// Why steps are started kernel by kernel; empty: they can be recorded.
std::string obstacle(const TrainerOptions& options, const GraphSpec& graph, const Mesh& mesh, bool host_waits) {
  if (mesh.world_size() > 1) {
    const auto* peers = options.communicator.get();
    auto why =
        exchange_obstacle(peers ? peers->backend_name() : "no backend", peers && peers->records(), options, mesh);
    if (!why.empty()) return why;
  }
  const auto is_module = [](const UnitSpec& unit) { return unit.runs_module(); };
  if (const auto unit = std::ranges::find_if(graph.units, is_module); unit != graph.units.end()) {
    return fmt::format("unit {} is a module, which may do on the host what it likes", unit->name);
  }
  if (auto why = experts_obstacle(options.precision, graph, mesh); !why.empty()) return why;
  if (options.policy.offload != Offload::none) return "the optimizer's state is on the host";
  if (host_waits) return "kernels do not serve all its values, so the host takes part";
  return {};
}

// Why the host counts rows of experts to multiply them by the weights of that label, on some tp rank; empty: it does
// not.
std::string product_obstacle(const Precision& precision, const UnitSpec& unit, const std::string& label, int tp) {
  const std::int64_t experts = unit.num_experts();
  bool trains = false;
  for (int coordinate = 0; coordinate < tp; ++coordinate) {
    std::int64_t lines = 0, columns = 0;  // of all experts, side by side
    for (const auto& parameter : unit.parameters) {
      if (parameter.joined != label) continue;
      const Shape held = local_parameter(parameter, tp, coordinate).shape;
      lines += held[0];
      columns = held[1];
      trains = trains || parameter.trainable;
    }
    if (nn::device::serves_experts(scalar_type(precision.compute), experts, lines / experts, columns)) continue;
    return fmt::format("no kernel multiplies rows of {} experts by weights of {} x {} in {}, so the host counts them",
                       experts, lines / experts, columns, dtype_name(precision.compute));
  }
  if (!trains || precision.reduce == DType::float32) return {};
  return fmt::format("no kernel adds gradients of experts up in {}, so the host counts their rows",
                     dtype_name(precision.reduce));
}

}  // namespace

bool cuts_at_exchanges(const Mesh& mesh) {
  return mesh.degree(Axis::pp) > 1 || mesh.degree(Axis::cp) > 1;
}

std::string exchange_obstacle(std::string_view backend, bool records, const TrainerOptions& options, const Mesh& mesh) {
  const auto exchange = fmt::format("{} ranks exchange within a step, over {}", mesh.world_size(), backend);
  if (backend != "nccl") return exchange;
  if (!records) return "--check-collectives compares calls on the host";
  if (options.pad_to_longest || options.unpadded) return "each rank has lengths of its own, and all must record alike";
  if (options.record_steps != RecordSteps::on) return exchange + ": train.cuda_graph=on records them";
  return {};
}

std::string experts_obstacle(const Precision& precision, const GraphSpec& graph, const Mesh& mesh) {
  if (!routes_tokens(graph)) return {};
  if (mesh.degree(Axis::ep) > 1) return "ranks of ep are told on the host how many rows travel";
  for (const auto& unit : graph.units) {
    if (unit.num_experts() == 0) continue;
    for (const auto& operation : unit.body->operations) {
      if (operation.name != "expert_product") continue;
      const auto& label = unit.body->parameters[to_index(operation.parameters.front())].name;
      if (auto why = product_obstacle(precision, unit, label, mesh.degree(Axis::tp)); !why.empty()) return why;
    }
  }
  return {};
}

std::unique_ptr<Lanes> step_lanes(const TrainerOptions& options, const GraphSpec& graph, const Mesh& mesh,
                                  bool host_waits) {
  if (!options.trains || !options.side_by_side || !options.device.is_cuda() || mesh.world_size() > 1) return nullptr;
  if (!obstacle(options, graph, mesh, host_waits).empty()) return nullptr;
  auto lanes = std::make_unique<Lanes>(graph, options.device);
  return lanes->count() > 1 ? std::move(lanes) : nullptr;
}

bool lanes_fit(std::int64_t reserved_bytes, std::int64_t device_bytes) {
  return reserved_bytes <= device_bytes / 2;
}

std::unique_ptr<DeviceRecorder> step_recorder(const TrainerOptions& options, const GraphSpec& graph, const Mesh& mesh,
                                              bool host_waits) {
  // Another device was refused by check_device() where a recording was asked for.
  if (!options.trains || options.record_steps == RecordSteps::off || !options.device.is_cuda()) return nullptr;
  auto why = obstacle(options, graph, mesh, host_waits);
  if (why.empty()) {
    auto recorder = make_device_recorder(options.device);
    if (recorder) return recorder;
    why = "this build was made without CUDA's headers";
  }
  if (options.record_steps == RecordSteps::on) {
    throw ConfigError(fmt::format("train.cuda_graph=on: a step cannot be recorded as a CUDA graph: {}", why),
                      {.remedy = "use train.cuda_graph=auto"});
  }
  const bool first = !options.communicator || options.communicator->rank() == 0;
  if (options.say && first) options.say(fmt::format("no CUDA graph of the step: {}", why));
  return nullptr;
}

}  // namespace orthant
