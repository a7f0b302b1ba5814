#include "orthant/graph/recorder.h"

#include <algorithm>
#include <utility>

namespace orthant {

int Recorder::value(std::string name, std::vector<Dim> dims, Number number) {
  body_.values.push_back({std::move(name), std::move(dims), number});
  return static_cast<int>(body_.values.size()) - 1;
}

Value Recorder::input(std::string name, std::vector<Dim> dims, Number number) {
  const int id = value(std::move(name), std::move(dims), number);
  body_.inputs.push_back(id);
  return {id};
}

Value Recorder::tokens(std::string name, std::int64_t channels) {
  return input(std::move(name), {{Sym::tokens}, {Sym::one, channels}}, Number::compute);
}

Value Recorder::rows(std::string name, std::int64_t channels) {
  return input(std::move(name), {{Sym::rows}, {Sym::one, channels}}, Number::compute);
}

Value Recorder::field(std::string name, Sym per, Number number) {
  return input(std::move(name), {{per}}, number);
}

Value Recorder::opaque(std::string name) {
  return input(std::move(name), {}, Number::opaque);
}

int Recorder::parameter(std::string name, bool is_joined) {
  const BodyParameter wanted{std::move(name), is_joined};
  const auto found = std::ranges::find(body_.parameters, wanted);
  if (found != body_.parameters.end()) return static_cast<int>(found - body_.parameters.begin());
  body_.parameters.push_back(wanted);
  return static_cast<int>(body_.parameters.size()) - 1;
}

int Recorder::parameter(std::string name) {
  return parameter(std::move(name), false);
}

int Recorder::joined(std::string label) {
  return parameter(std::move(label), true);
}

}  // namespace orthant
