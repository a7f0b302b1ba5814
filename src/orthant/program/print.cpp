#include <fmt/format.h>
#include <fmt/ranges.h>

#include "orthant/base/index.h"
#include "orthant/program/program.h"

namespace orthant {
namespace {

class Printer {
 public:
  explicit Printer(const Program& program) : program_(program) {}

  std::string print() {
    heading("forward", program_.forward);
    text_ += fmt::format("keep {}\n", names(program_.kept));
    heading("backward", program_.both);
    heading("backward of inputs", program_.input_part);
    text_ += fmt::format("defer {}\n", names(program_.deferred));
    heading("backward of weights", program_.weight_part);
    return std::move(text_);
  }

 private:
  std::string name(int value) const {
    return value < 0 ? "-" : fmt::format("{}:{}", program_.values[to_index(value)].name, value);
  }

  std::string names(const std::vector<int>& values) const {
    std::vector<std::string> found;
    for (const int value : values) found.push_back(name(value));
    return fmt::format("{}", fmt::join(found, " "));
  }

  void heading(const char* title, const std::vector<Operation>& list) {
    if (list.empty()) return;
    text_ += fmt::format("{}\n", title);
    for (const auto& operation : list) text_ += fmt::format("  {}\n", line(operation));
  }

  std::string line(const Operation& operation) const {
    std::string what = operation.name;
    if (operation.exchange) {
      what += fmt::format(" {} over {}", exchange_name(operation.exchange->kind), axis_name(operation.exchange->axis));
    }
    std::string text = fmt::format("{} = {}({})", names(operation.out), what, names(operation.in));
    for (const int parameter : operation.parameters) {
      if (parameter >= 0) text += fmt::format(" {}", program_.parameters[to_index(parameter)].use.name);
    }
    if (!operation.frees.empty()) text += fmt::format("  | frees {}", names(operation.frees));
    return text;
  }

  const Program& program_;
  std::string text_;
};

}  // namespace

std::string to_string(const Program& program) {
  return Printer(program).print();
}

}  // namespace orthant
