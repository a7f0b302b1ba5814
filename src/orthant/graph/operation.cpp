#include "orthant/graph/operation.h"

#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"

namespace orthant {
namespace {

template <class Type>
const Type& attribute(const Attributes& attributes, std::string_view name) {
  const auto* found = attributes.find(name);
  const auto* value = found == nullptr ? nullptr : std::get_if<Type>(found);
  if (value == nullptr) throw InternalError(fmt::format("an operation lacks its attribute \"{}\"", name));
  return *value;
}

}  // namespace

void Attributes::set(std::string name, Attribute value) {
  const auto found = std::ranges::find(all_, name, &std::pair<std::string, Attribute>::first);
  if (found == all_.end()) {
    all_.emplace_back(std::move(name), std::move(value));
  } else {
    found->second = std::move(value);
  }
}

const Attribute* Attributes::find(std::string_view name) const {
  const auto found = std::ranges::find(all_, name, &std::pair<std::string, Attribute>::first);
  return found == all_.end() ? nullptr : &found->second;
}

std::int64_t Attributes::integer(std::string_view name) const {
  return attribute<std::int64_t>(*this, name);
}

double Attributes::number(std::string_view name) const {
  return attribute<double>(*this, name);
}

const std::string& Attributes::text(std::string_view name) const {
  return attribute<std::string>(*this, name);
}

const std::vector<double>& Attributes::numbers(std::string_view name) const {
  return attribute<std::vector<double>>(*this, name);
}

bool Attributes::flag(std::string_view name) const {
  const auto* found = find(name);
  return found != nullptr && std::get<std::int64_t>(*found) != 0;
}

std::string_view exchange_name(ExchangeSpec::Kind kind) {
  switch (kind) {
    case ExchangeSpec::Kind::sum:
      return "sum";
    case ExchangeSpec::Kind::gather:
      return "gather";
    case ExchangeSpec::Kind::scatter:
      return "scatter";
    case ExchangeSpec::Kind::to_experts:
      return "to_experts";
    case ExchangeSpec::Kind::from_experts:
      return "from_experts";
  }
  return "";
}

}  // namespace orthant
