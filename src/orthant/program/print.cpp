#include "orthant/program/print.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "orthant/base/human.h"
#include "orthant/base/index.h"

namespace orthant {
namespace {

constexpr std::size_t kPlaceColumn = 72;  // where placements begin, in lines that are shorter
constexpr std::size_t kFreesColumn = 96;

const char* symbol_name(Sym sym) {
  switch (sym) {
    case Sym::one:
      return "";
    case Sym::rows:
      return "rows";
    case Sym::tokens:
      return "tokens";
    case Sym::sequence:
      return "sequence";
  }
  return "";
}

std::string dim_text(const Dim& dim) {
  std::string text = symbol_name(dim.sym);
  if (text.empty()) {
    text = std::to_string(dim.factor);
  } else if (dim.factor != 1) {
    text = fmt::format("{} {}", dim.factor, text);
  }
  for (const auto& cut : dim.cuts) text += fmt::format("/{}", axis_name(cut.axis));
  return text;
}

std::string name_of(const Program& program, int value) {
  return value < 0 ? "-" : program.values[to_index(value)].name;
}

// Without absent ones at the end.
std::string names_of(const Program& program, std::vector<int> values) {
  while (!values.empty() && values.back() < 0) values.pop_back();
  std::vector<std::string> names;
  for (const int value : values) names.push_back(name_of(program, value));
  return fmt::format("{}", fmt::join(names, ", "));
}

// "hidden 1.5 KiB, statistics 24 B"; the batch's own have no bytes.
std::string with_bytes(const Program& program, const std::vector<int>& values, const UnitSizes& sizes) {
  std::vector<std::string> texts;
  for (const int value : values) {
    const std::int64_t bytes = activation_bytes(program, {value}, sizes);
    texts.push_back(bytes == 0 ? name_of(program, value)
                               : fmt::format("{} {}", name_of(program, value), format_bytes(bytes)));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

// "2 gathers 3 KiB, 2 scatters 3 KiB"; empty when nothing travels.
std::string exchanges_text(const Exchanged& sent) {
  std::vector<std::string> texts;
  const auto add = [&](const char* name, const Exchanged::Entry& entry) {
    if (entry.calls == 0) return;
    texts.push_back(
        fmt::format("{} {}{} {}", entry.calls, name, entry.calls == 1 ? "" : "s", format_bytes(entry.bytes)));
  };
  add("sum", sent.sum);
  add("gather", sent.gather);
  add("scatter", sent.scatter);
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string place_text(const ProgramValue& value) {
  return value.number == Number::opaque ? "opaque" : to_string(value.at);
}

std::string values_text(const Program& program, const std::vector<int>& values) {
  std::vector<std::string> texts;
  for (const int value : values) {
    texts.push_back(fmt::format("{} {}", name_of(program, value), place_text(program.values[to_index(value)])));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

void fill_to(std::string& line, std::size_t column) {
  line += std::string(line.size() + 2 <= column ? column - line.size() : 2, ' ');
}

// The operation, where its first output lies, and what is freed after it.
std::string line_of(const Program& program, const Operation& operation) {
  std::string line = fmt::format("  {}", to_string(program, operation));
  const auto made = std::ranges::find_if(operation.out, [](int value) { return value >= 0; });
  if (made != operation.out.end()) {
    fill_to(line, kPlaceColumn);
    line += place_text(program.values[to_index(*made)]);
  }
  if (!operation.frees.empty()) {
    fill_to(line, kFreesColumn);
    line += fmt::format("free {}", names_of(program, operation.frees));
  }
  return line + "\n";
}

std::string list_text(const char* title, const Program& program, const std::vector<Operation>& list,
                      const UnitSizes& sizes) {
  if (list.empty()) return {};
  const std::string sent = exchanges_text(exchanged(program, list, sizes));
  std::string text = fmt::format("{}{}{}\n", title, sent.empty() ? "" : ": ", sent);
  for (const auto& operation : list) text += line_of(program, operation);
  return text;
}

std::string kept_text(const char* title, const Program& program, const std::vector<int>& values,
                      const UnitSizes& sizes) {
  if (values.empty()) return {};
  return fmt::format("{} {}: {}\n", title, format_bytes(activation_bytes(program, values, sizes)),
                     with_bytes(program, values, sizes));
}

}  // namespace

std::string to_string(const ValuePlace& place) {
  std::vector<std::string> dims;
  for (const Dim& dim : place.dims) dims.push_back(dim_text(dim));
  std::string text = fmt::format("[{}]", fmt::join(dims, ", "));
  for (const Axis axis : place.partial) text += fmt::format(" +{}", axis_name(axis));
  return text;
}

std::string to_string(const Program& program, const Operation& operation) {
  if (operation.name == "start") {
    return fmt::format("start {} {}: {} -> {}", exchange_name(operation.exchange->kind),
                       axis_name(operation.exchange->axis), names_of(program, operation.in),
                       names_of(program, operation.out));
  }
  if (operation.name == "wait") return fmt::format("wait {}", name_of(program, operation.in.back()));
  std::string name = operation.name;
  if (shares_rows(operation)) name += fmt::format("[{} over cp]", operation.attributes.text("context"));
  if (caches_keys(operation)) name += "[cached]";
  if (operation.attributes.find("kind") != nullptr) name += "." + operation.attributes.text("kind");
  std::string in = names_of(program, operation.in);
  std::vector<std::string> parameters;
  for (const int parameter : operation.parameters) {
    if (parameter >= 0) parameters.push_back(program.parameters[to_index(parameter)].use.name);
  }
  if (!parameters.empty()) in += fmt::format("; {}", fmt::join(parameters, ", "));
  const std::string out = names_of(program, operation.out);
  return fmt::format("{}{}{}({})", out, out.empty() ? "" : " = ", name, in);
}

std::string to_string(const Program& program, const UnitSizes& sizes, bool split) {
  std::string text = fmt::format("in {}\n", values_text(program, program.inputs));
  text += fmt::format("out {}\n", values_text(program, program.outputs));
  text += list_text("forward", program, program.forward, sizes);
  text += kept_text("keep", program, program.kept, sizes);
  if (!split) return text + list_text("backward", program, program.both, sizes);
  text += list_text("backward of inputs", program, program.input_part, sizes);
  text += kept_text("defer", program, program.deferred, sizes);
  return text + list_text("backward of weights", program, program.weight_part, sizes);
}

}  // namespace orthant
