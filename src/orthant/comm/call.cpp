#include "orthant/comm/call.h"

#include <c10/core/ScalarType.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "orthant/base/error.h"

namespace orthant::comm {
namespace {

int64_t bytes_of(const std::vector<at::Tensor>& tensors) {
  int64_t bytes = 0;
  for (const auto& tensor : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

bool dtype_supported(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
    case at::kDouble:
    case at::kBFloat16:
    case at::kHalf:
    case at::kLong:
    case at::kInt:
    case at::kByte:
      return true;
    default:
      return false;
  }
}

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  return fmt::format("{} [{}]", dtype_name(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
}

[[noreturn]] void refuse(const Call& call, const std::string& problem, const std::string& remedy) {
  throw ConfigError(fmt::format("{} called at {}: {}", describe(call), short_location(call.site), problem),
                    {.remedy = remedy}, call.site);
}

void validate_tensors(const Call& call, const std::vector<at::Tensor>& tensors, const at::Device& device) {
  for (const auto& tensor : tensors) {
    if (!tensor.defined()) refuse(call, "a tensor is undefined", "pass an allocated tensor");
    if (!tensor.is_contiguous()) refuse(call, "a tensor is not contiguous", "pass tensor.contiguous()");
    if (!dtype_supported(tensor.scalar_type())) {
      refuse(call, fmt::format("dtype {} cannot be sent", dtype_name(tensor.scalar_type())),
             "use float32, float64, bfloat16, float16, int64, int32 or uint8");
    }
    if (tensor.device() != device) {
      refuse(call, fmt::format("tensors on {} and {}", tensor.device().str(), device.str()),
             "put all tensors of one call on one device");
    }
  }
}

void validate_counts(const Call& call, const std::vector<int64_t>& counts, int64_t total, int size, const char* side) {
  if (counts.empty()) {
    if (total % size != 0) {
      refuse(call, fmt::format("{} elements of the {} do not divide among {} ranks", total, side, size),
             "pass the number of elements per rank");
    }
    return;
  }
  const bool negative = std::any_of(counts.begin(), counts.end(), [](int64_t n) { return n < 0; });
  const int64_t sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  if (static_cast<int>(counts.size()) != size || negative || sum != total) {
    refuse(
        call,
        fmt::format("counts [{}] for {} ranks and {} elements of the {}", fmt::join(counts, ", "), size, total, side),
        "give one count per rank, none negative, that add up to the tensor's elements");
  }
}

// all_gather: whole = output, part = input. reduce_scatter: whole = input, part = output.
void validate_parts(const Call& call, const std::vector<at::Tensor>& wholes, const std::vector<at::Tensor>& parts,
                    const std::vector<int64_t>& counts, int size, int index, const char* side) {
  if (wholes.size() != parts.size())
    refuse(call, "as many inputs as outputs are needed", "pair each input with an output");
  if (!counts.empty() && wholes.size() != 1)
    refuse(call, "uneven parts in a list of tensors", "make one call per tensor");
  for (size_t i = 0; i < wholes.size(); ++i) {
    validate_counts(call, counts, wholes[i].numel(), size, side);
    if (wholes[i].scalar_type() != parts[i].scalar_type())
      refuse(call, "input and output dtypes differ", "use one dtype");
    const int64_t expected = part_of(counts, wholes[i].numel(), size, index);
    if (parts[i].numel() != expected) {
      refuse(call,
             fmt::format("a part of {} elements where member {} of {} has {} of the {}", parts[i].numel(), index, size,
                         expected, side),
             fmt::format("use a part of {} elements", expected));
    }
  }
}

}  // namespace

const char* name_of(Op op) {
  static constexpr const char* kNames[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                           "broadcast",  "send",       "receive",        "barrier"};
  return kNames[static_cast<size_t>(op)];
}

const char* name_of(Reduction reduction) {
  return reduction == Reduction::sum ? "sum" : "max";
}

const char* name_of(Purpose purpose) {
  static constexpr const char* kNames[] = {"control", "activations", "gradients", "parameters"};
  return kNames[static_cast<size_t>(purpose)];
}

int64_t payload_bytes(const Call& call) {
  const bool counts_input = call.op == Op::send || call.op == Op::reduce_scatter || call.op == Op::all_to_all;
  return bytes_of(counts_input ? call.inputs : call.outputs);
}

std::string describe(const Call& call) {
  const bool shows_input = call.op == Op::send || call.op == Op::reduce_scatter || call.op == Op::all_to_all;
  std::vector<std::string> parts;
  if (call.op == Op::all_reduce || call.op == Op::reduce_scatter) parts.emplace_back(name_of(call.reduction));
  if (call.op == Op::broadcast) parts.push_back(fmt::format("from {}", call.peer));
  if (call.is_point_to_point()) parts.push_back(fmt::format("tag {}", call.tag));
  const auto& tensors = shows_input ? call.inputs : call.outputs;
  for (size_t i = 0; i < std::min<size_t>(tensors.size(), 3); ++i) parts.push_back(describe(tensors[i]));
  if (tensors.size() > 3) parts.push_back(fmt::format("{} tensors in all", tensors.size()));
  return fmt::format("{} #{} ({})", name_of(call.op), call.sequence, fmt::join(parts, ", "));
}

std::string Call::line(int index) const {
  if (!is_point_to_point()) return "all";
  const int from = op == Op::send ? index : peer;
  const int to = op == Op::send ? peer : index;
  return fmt::format("{}-{}/{}", from, to, tag);
}

std::string describe_subjects(const Call& call) {
  std::set<std::string_view> units;
  std::string_view first;
  for (const Subject subject : call.subjects) {
    if (subject.empty()) continue;
    if (units.empty()) first = subject.front();
    units.insert(subject.front());
  }
  if (units.empty()) return {};
  return units.size() == 1 ? fmt::format(" of {}", first) : fmt::format(" of {} and {} more", first, units.size() - 1);
}

std::string dtype_name(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return "float32";
    case at::kDouble:
      return "float64";
    case at::kBFloat16:
      return "bfloat16";
    case at::kHalf:
      return "float16";
    case at::kLong:
      return "int64";
    case at::kInt:
      return "int32";
    case at::kByte:
      return "uint8";
    case at::kBool:
      return "bool";
    default:
      return c10::toString(dtype);
  }
}

int64_t part_of(const std::vector<int64_t>& counts, int64_t total, int size, int index) {
  return counts.empty() ? total / size : counts[static_cast<size_t>(index)];
}

void validate(const Call& call, int group_size, int index) {
  const auto& any = call.outputs.empty() ? call.inputs : call.outputs;
  if (!any.empty()) {
    if (!any.front().defined()) refuse(call, "a tensor is undefined", "pass an allocated tensor");
    validate_tensors(call, call.inputs, any.front().device());
    validate_tensors(call, call.outputs, any.front().device());
  }
  if (!call.subjects.empty() && call.subjects.size() != any.size()) {
    refuse(call, fmt::format("{} subjects for {} tensors", call.subjects.size(), any.size()),
           "name one for each tensor, or none");
  }
  if (call.is_point_to_point() || call.op == Op::broadcast) {
    if (call.peer < 0 || call.peer >= group_size) {
      refuse(call, fmt::format("peer {} in a group of {}", call.peer, group_size),
             "name a member by its index in the group");
    }
    if (call.is_point_to_point() && call.peer == index) {
      refuse(call, "a message to oneself", "copy the tensor instead");
    }
    if (call.tag < 0 || call.tag >= (1 << 30))
      refuse(call, fmt::format("tag {}", call.tag), "use a tag from 0 to 2^30 - 1");
  }
  if (call.op == Op::all_gather) {
    validate_parts(call, call.outputs, call.inputs, call.output_counts, group_size, index, "output");
  } else if (call.op == Op::reduce_scatter) {
    validate_parts(call, call.inputs, call.outputs, call.input_counts, group_size, index, "input");
  } else if (call.op == Op::all_to_all) {
    validate_counts(call, call.input_counts, call.inputs.front().numel(), group_size, "input");
    validate_counts(call, call.output_counts, call.outputs.front().numel(), group_size, "output");
    if (call.inputs.front().scalar_type() != call.outputs.front().scalar_type()) {
      refuse(call, "input and output dtypes differ", "use one dtype");
    }
  }
}

Counters& Counters::operator+=(const Counters& other) {
  for (size_t i = 0; i < entries.size(); ++i) {
    entries[i].calls += other.entries[i].calls;
    entries[i].bytes += other.entries[i].bytes;
  }
  return *this;
}

Counters::Entry Counters::total() const {
  Entry sum;
  for (const auto& entry : entries) {
    sum.calls += entry.calls;
    sum.bytes += entry.bytes;
  }
  return sum;
}

}  // namespace orthant::comm
