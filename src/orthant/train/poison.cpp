#include "orthant/train/poison.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/layout/expert_view.h"
#include "orthant/layout/unit_buffers.h"
#include "orthant/nn/scalar_type.h"
#include "orthant/parallel/data/parameter_store.h"

namespace orthant {
namespace {

constexpr const char* kRule =
    "KIND:rank=R,unit=U,step=S,value=nan|inf[,parameter=P][,microbatch=M] with KIND loss, activation, gradient, "
    "parameter or gradient_sum; value=flip of the last two";

const std::vector<std::string> kPoisonKinds = {"loss", "activation", "gradient", "parameter", "gradient_sum"};
const std::vector<std::string> kPoisonKeys = {"rank", "unit", "step", "value", "parameter", "microbatch"};

[[noreturn]] void refuse(std::string_view text, const std::string& why, std::string remedy = {}) {
  if (remedy.empty()) remedy = fmt::format("write {}", kRule);
  throw ConfigError(fmt::format("train.poison \"{}\": {}", text, why), {.remedy = std::move(remedy)});
}

std::int64_t number(std::string_view text, std::string_view key, std::string_view value, std::int64_t least) {
  std::int64_t found = -1;
  const auto end = value.data() + value.size();
  const auto read = std::from_chars(value.data(), end, found);
  if (value.empty() || read.ec != std::errc() || read.ptr != end || found < least || found > (std::int64_t{1} << 30)) {
    refuse(text, fmt::format("{}={} is no number of at least {}", key, value, least));
  }
  return found;
}

void set_key(Poison& poison, std::string_view text, std::string_view key, std::string_view value) {
  if (key == "rank") {
    poison.rank = static_cast<int>(number(text, key, value, 0));
  } else if (key == "step") {
    poison.step = number(text, key, value, 1);
  } else if (key == "microbatch") {
    poison.microbatch = static_cast<int>(number(text, key, value, 0));
  } else if (key == "unit") {
    poison.unit = value;
  } else if (key == "parameter") {
    poison.parameter = value;
  } else if (key == "value" && (value == "nan" || value == "inf")) {
    using Limits = std::numeric_limits<double>;
    poison.value = value == "nan" ? Limits::quiet_NaN() : Limits::infinity();
  } else if (key == "value" && value == "flip") {
    poison.flips = true;
  } else if (key == "value") {
    refuse(text, fmt::format("value={} is neither nan nor inf nor flip", value));
  } else {
    refuse(text, fmt::format("unknown word \"{}\"", key), did_you_mean(key, kPoisonKeys));
  }
}

std::string described(const Poison& poison) {
  return fmt::format("{} of rank {}, step {}", kPoisonKinds[static_cast<std::size_t>(poison.kind)], poison.rank,
                     poison.step);
}

int unit_of(const Poison& poison, const GraphSpec& graph, const std::vector<int>& unit_pp_coordinates, int pp) {
  const auto& name = poison.unit;
  if (name.empty()) {  // parse_poison() lets only a loss have none
    for (int u = 0; u < static_cast<int>(graph.units.size()); ++u) {
      if (graph.units[static_cast<std::size_t>(u)].is_loss && runs_at(u, unit_pp_coordinates, pp)) return u;
    }
    refuse(described(poison), "the rank runs no loss", "name a rank of the last stage");
  }
  const bool digits = std::ranges::all_of(name, [](char letter) { return letter >= '0' && letter <= '9'; });
  if (!digits) return graph.unit_index(name);
  const auto index = number(described(poison), "unit", name, 0);
  const auto units = static_cast<std::int64_t>(graph.units.size());
  if (index >= units) {
    refuse(described(poison), fmt::format("unit {} of {}", index, units), fmt::format("use 0 to {}", units - 1));
  }
  return static_cast<int>(index);
}

void check_output(const Poison& poison, const GraphSpec& graph, const UnitSpec& unit, int microbatches) {
  if (poison.kind == Poison::Kind::loss && !unit.is_loss) {
    refuse(described(poison), fmt::format("unit {} is no loss", unit.name), "leave unit= out, or use activation");
  }
  const auto is_number = [&](const std::string& name) {
    const auto& value = graph.value(name);
    return value.opaque || at::isFloatingType(scalar_type(value.dtype));
  };
  if (std::ranges::none_of(unit.outputs, is_number)) {
    refuse(described(poison), fmt::format("unit {} writes integers only", unit.name), "name another unit");
  }
  if (poison.microbatch >= microbatches) {
    refuse(described(poison), fmt::format("microbatch {} of {}", poison.microbatch, microbatches),
           fmt::format("use 0 to {}", microbatches - 1));
  }
}

// The first element of the parameter that the rank can damage.
void place_in_buffer(LocatedPoison& located, const GraphSpec& graph, const UnitBuffers& buffers,
                     const DataPolicy& policy, const Mesh& mesh) {
  const auto& poison = located.what;
  const bool sum = poison.kind == Poison::Kind::gradient_sum;
  const bool gradient = sum || poison.kind == Poison::Kind::gradient;
  std::vector<std::string> names;
  for (const int b : buffers.used[static_cast<std::size_t>(located.unit)]) {
    if (gradient && !buffers[b].trainable) continue;
    const Mesh lies_on = mesh_of(buffers[b], mesh);
    const bool part = (sum || !gradient) && effective_policy(policy, lies_on).shards_state();
    const Range reach =
        part ? buffers[b].shard(lies_on.coordinate(poison.rank)[Axis::fsdp]) : Range{0, buffers[b].size};
    for (const auto& entry : buffers[b].entries) {
      const auto met = common(reach, entry.range());
      if (met.empty()) continue;
      names.push_back(entry.parameter);
      if (!poison.parameter.empty() && poison.parameter != entry.parameter) continue;
      located.buffer = b;
      located.offset = met.begin;
      return;
    }
  }
  const auto& unit = graph.units[static_cast<std::size_t>(located.unit)].name;
  const auto what = gradient ? "trainable parameters" : "parameters";
  if (names.empty())
    refuse(described(poison), fmt::format("the rank owns no {} of unit {}", what, unit), "name another");
  refuse(described(poison),
         fmt::format("parameter {} is not among the {} of unit {} on that rank", poison.parameter, what, unit),
         did_you_mean(poison.parameter, names));
}

void flip(const at::Tensor& element) {
  constexpr std::int64_t kFractionBits32 = 23;
  constexpr std::int64_t kFractionBits64 = 52;
  constexpr std::int64_t kFractionBitsBfloat16 = 7;
  constexpr std::int64_t kFractionBitsHalf = 10;
  const auto type = element.scalar_type();
  const auto bits = type == at::kDouble ? at::kLong : type == at::kFloat ? at::kInt : at::kShort;
  const auto fraction = type == at::kDouble     ? kFractionBits64
                        : type == at::kFloat    ? kFractionBits32
                        : type == at::kBFloat16 ? kFractionBitsBfloat16
                                                : kFractionBitsHalf;
  element.view(bits).bitwise_xor_(std::int64_t{1} << (fraction - 1));
}

void damage(const at::Tensor& element, const Poison& poison) {
  at::NoGradGuard no_gradients;
  if (poison.flips) return flip(element);
  element.fill_(poison.value);
}

}  // namespace

Poison parse_poison(std::string_view text) {
  Poison poison;
  const auto colon = text.find(':');
  if (colon == std::string_view::npos) refuse(text, "there is no ':'");
  const auto kind = std::ranges::find(kPoisonKinds, text.substr(0, colon));
  if (kind == kPoisonKinds.end()) {
    refuse(text, fmt::format("unknown kind \"{}\"", text.substr(0, colon)),
           did_you_mean(text.substr(0, colon), kPoisonKinds));
  }
  poison.kind = static_cast<Poison::Kind>(kind - kPoisonKinds.begin());
  std::vector<std::string_view> seen;
  for (auto rest = text.substr(colon + 1); !rest.empty();) {
    const auto word = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    const auto equals = word.find('=');
    if (equals == std::string_view::npos) refuse(text, fmt::format("\"{}\" has no '='", word));
    seen.push_back(word.substr(0, equals));
    set_key(poison, text, seen.back(), word.substr(equals + 1));
  }
  for (const std::string_view key : {"rank", "unit", "step", "value"}) {
    const bool optional = key == "unit" && poison.kind == Poison::Kind::loss;
    if (std::ranges::find(seen, key) == seen.end() && !optional) refuse(text, fmt::format("{}= is missing", key));
  }
  const bool may_flip = poison.kind == Poison::Kind::parameter || poison.kind == Poison::Kind::gradient_sum;
  if (poison.flips && !may_flip) {
    refuse(text, "value=flip: what is flipped here reaches all ranks alike by sums",
           "flip a bit of a parameter or a gradient_sum");
  }
  return poison;
}

std::vector<LocatedPoison> locate_poison(const std::vector<Poison>& poison, const GraphSpec& graph, const Mesh& mesh,
                                         const std::vector<int>& unit_pp_coordinates, const DataPolicy& policy,
                                         int microbatches) {
  std::vector<LocatedPoison> all;
  for (const auto& one : poison) {
    if (one.rank >= mesh.world_size()) {
      refuse(described(one), fmt::format("the mesh {} has {} ranks", mesh.to_string(), mesh.world_size()),
             fmt::format("use 0 to {}", mesh.world_size() - 1));
    }
    const auto coordinate = mesh.coordinate(one.rank);
    LocatedPoison located{.what = one, .unit = unit_of(one, graph, unit_pp_coordinates, coordinate[Axis::pp])};
    const auto& unit = graph.units[static_cast<std::size_t>(located.unit)];
    if (!runs_at(located.unit, unit_pp_coordinates, coordinate[Axis::pp])) {
      const auto pp = unit_pp_coordinates[static_cast<std::size_t>(located.unit)];
      refuse(described(one), fmt::format("the rank does not run unit {}", unit.name),
             fmt::format("name a rank at pp {}", pp));
    }
    if (one.kind == Poison::Kind::loss || one.kind == Poison::Kind::activation) {
      check_output(one, graph, unit, microbatches);
    } else {
      place_in_buffer(located, graph, unit_buffers(graph, mesh, coordinate, {}, unit_pp_coordinates), policy, mesh);
    }
    all.push_back(std::move(located));
  }
  return all;
}

bool Poisoner::damages_parameters(std::int64_t step) const {
  return std::ranges::any_of(located_, [&](const LocatedPoison& located) {
    return located.what.step == step && located.what.kind == Poison::Kind::parameter;
  });
}

bool Poisoner::acts_in(std::int64_t step) const {
  return std::ranges::any_of(located_, [&](const LocatedPoison& located) { return located.what.step == step; });
}

void Poisoner::begin_step(std::int64_t step, ParameterStore& store) {
  due_.clear();
  const bool parameters = damages_parameters(step);
  if (parameters) store.settle_values();
  std::erase_if(located_, [&](const LocatedPoison& located) {
    if (located.what.step != step) return false;
    if (located.what.kind == Poison::Kind::parameter) {
      const auto place = static_cast<std::size_t>(located.buffer);
      if (located.what.rank == rank_) {
        const auto& buffer = *store.buffers()[place];
        const auto element = buffer.master().narrow(located.offset - buffer.owned().begin, 1);
        element.change([&](const at::Tensor& value) { damage(value, located.what); });
      }
    } else if (located.what.rank == rank_) {
      due_.push_back(located);
    }
    return true;
  });
  if (parameters) store.publish();
}

// A copy is damaged: what the unit keeps for its backward may be the same memory.
void Poisoner::outputs(int unit, int microbatch, Tensors& outputs) {
  std::erase_if(due_, [&](const LocatedPoison& located) {
    const auto& what = located.what;
    const bool output = what.kind == Poison::Kind::loss || what.kind == Poison::Kind::activation;
    if (!output || located.unit != unit || what.microbatch != microbatch) return false;
    const auto is_number = [](const at::Tensor& output) { return at::isFloatingType(output.scalar_type()); };
    const auto found = std::ranges::find_if(outputs, is_number);
    if (found == outputs.end()) refuse(described(what), "the unit wrote integers only", "name another unit");
    *found = found->detach().clone();
    auto element = *found;
    while (element.dim() > 0) element = element.select(0, 0);
    damage(element, what);
    return true;
  });
}

void Poisoner::gradient(std::size_t buffer, int unit, const at::Tensor& gradient) {
  std::erase_if(due_, [&](const LocatedPoison& located) {
    if (located.what.kind != Poison::Kind::gradient) return false;
    if (located.unit != unit || located.buffer != static_cast<int>(buffer)) return false;
    damage(gradient.select(0, located.offset), located.what);
    return true;
  });
}

void Poisoner::gradient_sums(const ParameterStore& store) {
  const auto is_sum = [](const LocatedPoison& located) { return located.what.kind == Poison::Kind::gradient_sum; };
  const auto found = std::ranges::find_if(due_, is_sum);
  if (found == due_.end()) return;
  const auto& buffer = *store.buffers()[static_cast<std::size_t>(found->buffer)];
  damage(buffer.owned_gradient().narrow(0, found->offset - buffer.owned().begin, 1), found->what);
  due_.erase(found);
}

}  // namespace orthant
