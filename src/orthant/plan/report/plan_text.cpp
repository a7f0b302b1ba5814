// A plan as people read it: the answer, what each pp coordinate's card holds, what travels, how to run it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "orthant/base/human.h"
#include "orthant/base/text_table.h"
#include "orthant/plan/estimate/plan.h"

namespace orthant {
namespace {

constexpr double kGib = 1 << 30;
constexpr std::size_t kMostRows = 12;  // of a table per pp coordinate

std::string gib(std::int64_t bytes) {
  return fmt::format("{:.1f}", static_cast<double>(bytes) / kGib);
}

std::string counted(std::int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

// "interleaved, 2 stages per pp coordinate, 16 microbatches of 1 row".
std::string schedule_line(const Plan& plan) {
  const PlanSettings& settings = plan.settings;
  std::vector<std::string> parts;
  if (settings.mesh.degree(Axis::pp) > 1) parts.push_back(settings.stages.schedule);
  if (plan.virtual_stages > 1) parts.push_back(counted(plan.virtual_stages, "stage") + " per pp coordinate");
  parts.push_back(fmt::format("{} microbatch{} of {}", settings.microbatches(),
                              settings.microbatches() == 1 ? "" : "es", counted(settings.micro_batch, "row")));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string sharding_line(const PlanSettings& settings) {
  static const std::array<const char*, 4> kWhat = {"replicas keep everything", "optimizer state is sharded",
                                                   "optimizer state and gradients are sharded",
                                                   "optimizer state, gradients and parameters are sharded"};
  const auto zero = static_cast<std::size_t>(settings.data.zero);
  std::string text = fmt::format("{}: {}", zero, kWhat.at(zero));
  if (settings.data.accumulate_sharded) text += ", summed after every microbatch";
  return text;
}

std::string tensor_line(const TensorPolicy& tensor) {
  std::vector<std::string> parts;
  if (tensor.sequence_parallel) parts.emplace_back(tensor.regather ? "sequence (regathered)" : "sequence");
  if (tensor.loss_parallel) parts.emplace_back("loss");
  return parts.empty() ? "layers alone" : fmt::format("layers, {}", fmt::join(parts, ", "));
}

std::string fit_line(const Plan& plan, const Hardware& hardware) {
  const int pp = plan.worst_stage();
  std::string text = fmt::format("{} GiB of {} at pp {}", gib(plan.peak_bytes()), gib(hardware.memory_bytes), pp);
  return plan.fits ? "yes, " + text : fmt::format("NO, {}: {}", text, plan.why_not);
}

// What the plan leaves free, and how to ask for more or less.
std::string reserve_line(const Plan& plan, const Hardware& hardware) {
  const auto reserve = plan.memory.at(static_cast<std::size_t>(plan.worst_stage())).reserve;
  if (reserve == 0) return "none: tensors may fill the card (--reserve PERCENT keeps some free)";
  const double share = 100 * static_cast<double>(reserve) / static_cast<double>(hardware.memory_bytes);
  return fmt::format("{} of the card, {:.1f}%, kept free of tensors (--reserve PERCENT changes it)",
                     format_bytes(reserve), share);
}

std::string time_line(const PlanTime& time) {
  return fmt::format("{}: {} compute, {} bubble, {} waiting for what travels, {} update", format_seconds(time.step),
                     format_seconds(time.compute), format_seconds(time.bubble),
                     format_seconds(time.exposed_communication), format_seconds(time.optimizer));
}

std::string answer(const Plan& plan, const Hardware& hardware) {
  const PlanSettings& settings = plan.settings;
  std::vector<TableLine> lines = {
      {"mesh", fmt::format("{} ({})", settings.mesh.to_string(), counted(settings.mesh.world_size(), "card"))},
      {"pipeline", schedule_line(plan)},
      {"recompute", std::string(plan_recompute_name(settings.recompute))}};
  if (settings.mesh.degree(Axis::fsdp) > 1) lines.push_back({"zero", sharding_line(settings)});
  if (settings.mesh.degree(Axis::tp) > 1) lines.push_back({"tp cuts", tensor_line(settings.tensor)});
  lines.push_back({"fits", fit_line(plan, hardware)});
  lines.push_back({"reserve", reserve_line(plan, hardware)});
  lines.push_back({"tokens/s", fmt::format("{:.0f} per card, {:.0f} in all", plan.tokens_per_second_per_gpu,
                                           plan.tokens_per_second_per_gpu * settings.mesh.world_size())});
  lines.push_back({"MFU", fmt::format("{:.1f}% ({:.0f} TFLOP/s per card)", 100 * plan.mfu, plan.model_tflops_per_gpu)});
  lines.push_back({"step", time_line(plan.time)});
  return text_table(lines, 2);
}

// The pp coordinates that a table shows: all, or where there are many the first, the fullest and the last.
std::set<std::size_t> shown(const Plan& plan) {
  std::set<std::size_t> rows;
  const std::size_t count = plan.memory.size();
  for (std::size_t pp = 0; pp < count; ++pp) {
    if (count <= kMostRows || pp < 4 || pp + 4 >= count) rows.insert(pp);
  }
  rows.insert(static_cast<std::size_t>(plan.worst_stage()));
  return rows;
}

std::string memory_table(const Plan& plan) {
  std::vector<TableLine> lines = {
      {"pp", "parameters", "gradients", "optimizer", "activations", "logits", "temporary", "reserve", "total"}};
  for (const std::size_t pp : shown(plan)) {
    const PpMemory& memory = plan.memory[pp];
    lines.push_back({std::to_string(pp), gib(memory.parameters), gib(memory.gradients), gib(memory.optimizer),
                     gib(memory.activations), gib(memory.logits), gib(memory.temporary), gib(memory.reserve),
                     gib(memory.total())});
  }
  return "Memory of a card, GiB\n" + text_table(lines);
}

std::string traffic_table(const Plan& plan) {
  static constexpr std::array<std::pair<const char*, AxisTraffic PpTraffic::*>, 7> kRows = {
      {{"tp", &PpTraffic::tp},
       {"pp", &PpTraffic::pp},
       {"tied over pp", &PpTraffic::tied},
       {"dp", &PpTraffic::dp},
       {"fsdp", &PpTraffic::fsdp},
       {"cp", &PpTraffic::cp},
       {"ep", &PpTraffic::ep}}};
  std::vector<TableLine> lines = {{"axis", "calls", "payload", "takes", "waited for"}};
  for (const auto& [axis, member] : kRows) {
    AxisTraffic most;
    for (const PpTraffic& traffic : plan.traffic) {
      if ((traffic.*member).bytes > most.bytes) most = traffic.*member;
    }
    if (most.calls == 0) continue;
    lines.push_back({axis, std::to_string(most.calls), format_bytes(most.bytes), format_seconds(most.seconds),
                     format_seconds(most.exposed_seconds)});
  }
  return lines.size() == 1 ? "" : "\nSent by a rank in a step, where it is most\n" + text_table(lines);
}

}  // namespace

std::string plan_text(const Plan& plan, const PlanModel& model, const Hardware& hardware) {
  const PlanSettings& settings = plan.settings;
  std::string text = fmt::format("{} ({} parameters) on {} x {}, {} sequences of {} tokens a step\n\n", model.name,
                                 format_count(model.num_parameters()), settings.mesh.world_size(), hardware.name,
                                 settings.global_batch, settings.sequence);
  text += answer(plan, hardware) + "\n" + memory_table(plan) + traffic_table(plan);
  return text;
}

}  // namespace orthant
