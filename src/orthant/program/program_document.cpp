#include <nlohmann/json.hpp>

#include "orthant/base/index.h"
#include "orthant/program/print.h"

namespace orthant {
namespace {

using Json = nlohmann::ordered_json;

Json names(const Program& program, const std::vector<int>& values) {
  Json found = Json::array();
  for (const int value : values) {
    found.push_back(value < 0 ? Json(nullptr) : Json(program.values[to_index(value)].name));
  }
  return found;
}

Json attribute(const Attribute& value) {
  return std::visit([](const auto& held) { return Json(held); }, value);
}

const char* number_name(Number number) {
  switch (number) {
    case Number::compute:
      return "compute";
    case Number::statistic:
      return "statistic";
    case Number::index:
      return "index";
    case Number::mask:
      return "mask";
    case Number::place:
      return "place";
    case Number::opaque:
      return "opaque";
    case Number::float8:
      return "float8";
  }
  return "";
}

Json operation_document(const Program& program, const Operation& operation) {
  Json document = {
      {"name", operation.name}, {"in", names(program, operation.in)}, {"out", names(program, operation.out)}};
  Json parameters = Json::array();
  for (const int parameter : operation.parameters) {
    parameters.push_back(parameter < 0 ? Json(nullptr) : Json(program.parameters[to_index(parameter)].use.name));
  }
  if (!parameters.empty()) document["parameters"] = std::move(parameters);
  if (!operation.attributes.all().empty()) {
    for (const auto& [name, value] : operation.attributes.all()) document["attributes"][name] = attribute(value);
  }
  if (operation.exchange) {
    document["exchange"] = {{"kind", exchange_name(operation.exchange->kind)},
                            {"axis", axis_name(operation.exchange->axis)},
                            {"dim", operation.exchange->dim}};
  }
  if (!operation.frees.empty()) document["frees"] = names(program, operation.frees);
  return document;
}

Json list_document(const Program& program, const std::vector<Operation>& list, const UnitSizes& sizes) {
  Json operations = Json::array();
  for (const auto& operation : list) operations.push_back(operation_document(program, operation));
  const Exchanged sent = exchanged(program, list, sizes);
  const auto entry = [](const Exchanged::Entry& e) { return Json{{"calls", e.calls}, {"bytes", e.bytes}}; };
  return {{"operations", std::move(operations)},
          {"exchanged", {{"sum", entry(sent.sum)}, {"gather", entry(sent.gather)}, {"scatter", entry(sent.scatter)}}}};
}

}  // namespace

Json program_document(const Program& program, const UnitSizes& sizes) {
  Json document = {{"inputs", names(program, program.inputs)},
                   {"outputs", names(program, program.outputs)},
                   {"seeds", names(program, program.seeds)},
                   {"gradients", names(program, program.gradients)}};
  document["values"] = Json::array();
  for (const auto& value : program.values) {
    document["values"].push_back({{"name", value.name},
                                  {"place", to_string(value.at)},
                                  {"shape", local_shape(value.at, sizes)},
                                  {"number", number_name(value.number)},
                                  {"bytes", local_bytes(value, sizes)}});
  }
  document["forward"] = list_document(program, program.forward, sizes);
  document["backward"] = list_document(program, program.both, sizes);
  document["backward_of_inputs"] = list_document(program, program.input_part, sizes);
  document["backward_of_weights"] = list_document(program, program.weight_part, sizes);
  document["kept"] = names(program, program.kept);
  document["kept_bytes"] = activation_bytes(program, program.kept, sizes);
  document["deferred"] = names(program, program.deferred);
  document["deferred_bytes"] = activation_bytes(program, program.deferred, sizes);
  return document;
}

}  // namespace orthant
