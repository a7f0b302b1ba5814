#include "orthant/comm/fingerprint.h"

#include <c10/core/ScalarType.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "orthant/base/error.h"

namespace orthant::comm {
namespace {

std::string shapes_text(const Fingerprint& print) {
  std::vector<std::string> parts;
  for (const auto& shape : print.shapes) parts.push_back(fmt::format("[{}]", fmt::join(shape, ", ")));
  return fmt::format("{}", fmt::join(parts, ", "));
}

// Counts of equal parts written out, so that "equal" and the same numbers given by hand agree.
std::vector<int64_t> explicit_counts(const std::vector<int64_t>& counts, const std::vector<at::Tensor>& tensors,
                                     int size) {
  if (!counts.empty() || tensors.empty()) return counts;
  return std::vector<int64_t>(static_cast<size_t>(size), tensors.front().numel() / size);
}

template <class T>
std::optional<std::string> differs(const char* what, const T& mine, const T& theirs) {
  if (mine == theirs) return std::nullopt;
  return fmt::format("{} {} here, {} there", what, mine, theirs);
}

std::optional<std::string> exchange_differs(const Fingerprint& mine, size_t me, const Fingerprint& theirs,
                                            size_t them) {
  if (mine.input_counts[them] != theirs.output_counts[me]) {
    return fmt::format("{} elements sent here, {} expected there", mine.input_counts[them], theirs.output_counts[me]);
  }
  if (mine.output_counts[them] != theirs.input_counts[me]) {
    return fmt::format("{} elements expected here, {} sent there", mine.output_counts[them], theirs.input_counts[me]);
  }
  return std::nullopt;
}

}  // namespace

Fingerprint Fingerprint::of(const Call& call, int group_size) {
  Fingerprint print;
  print.op = name_of(call.op);
  if (call.op == Op::all_reduce || call.op == Op::reduce_scatter) print.reduction = name_of(call.reduction);
  if (call.op == Op::broadcast) print.root = call.peer;
  const bool sees_input = call.op == Op::send || call.op == Op::reduce_scatter;
  for (const auto& tensor : sees_input ? call.inputs : call.outputs) {
    print.dtypes.push_back(dtype_name(tensor.scalar_type()));
    print.shapes.push_back(tensor.sizes().vec());
  }
  if (call.op == Op::all_to_all) {
    print.shapes.clear();  // every rank may have its own; what must agree are the counts of each pair
    print.input_counts = explicit_counts(call.input_counts, call.inputs, group_size);
    print.output_counts = explicit_counts(call.output_counts, call.outputs, group_size);
  } else if (call.op == Op::all_gather && call.outputs.size() == 1) {
    print.output_counts = explicit_counts(call.output_counts, call.outputs, group_size);
  } else if (call.op == Op::reduce_scatter && call.inputs.size() == 1) {
    print.input_counts = explicit_counts(call.input_counts, call.inputs, group_size);
  }
  print.call = describe(call);
  print.site = short_location(call.site);
  return print;
}

std::string Fingerprint::to_text() const {
  return nlohmann::json{
      {"op", op},         {"reduction", reduction},       {"root", root}, {"dtypes", dtypes},
      {"shapes", shapes}, {"input_counts", input_counts}, {"call", call}, {"output_counts", output_counts},
      {"site", site}}
      .dump();
}

Fingerprint Fingerprint::from_text(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  Fingerprint print;
  json.at("op").get_to(print.op);
  json.at("reduction").get_to(print.reduction);
  json.at("root").get_to(print.root);
  json.at("dtypes").get_to(print.dtypes);
  json.at("shapes").get_to(print.shapes);
  json.at("input_counts").get_to(print.input_counts);
  json.at("output_counts").get_to(print.output_counts);
  json.at("call").get_to(print.call);
  json.at("site").get_to(print.site);
  return print;
}

std::optional<std::string> disagreement(const Fingerprint& mine, int my_index, const Fingerprint& theirs,
                                        int their_index) {
  const bool message = mine.op == "send" || mine.op == "receive";
  if (!message) {
    if (auto text = differs("operation", mine.op, theirs.op)) return text;
  }
  if (auto text = differs("reduction", mine.reduction, theirs.reduction)) return text;
  if (auto text = differs("root", mine.root, theirs.root)) return text;
  if (auto text = differs("number of tensors", mine.dtypes.size(), theirs.dtypes.size())) return text;
  if (mine.dtypes != theirs.dtypes) {
    return fmt::format("dtype {} here, {} there", fmt::join(mine.dtypes, ", "), fmt::join(theirs.dtypes, ", "));
  }
  if (mine.shapes != theirs.shapes)
    return fmt::format("shape {} here, {} there", shapes_text(mine), shapes_text(theirs));
  if (mine.op == "all_to_all") {
    return exchange_differs(mine, static_cast<size_t>(my_index), theirs, static_cast<size_t>(their_index));
  }
  if (mine.input_counts != theirs.input_counts || mine.output_counts != theirs.output_counts) {
    return fmt::format("counts [{}] here, [{}] there",
                       fmt::join(mine.input_counts.empty() ? mine.output_counts : mine.input_counts, ", "),
                       fmt::join(theirs.input_counts.empty() ? theirs.output_counts : theirs.input_counts, ", "));
  }
  return std::nullopt;
}

}  // namespace orthant::comm
