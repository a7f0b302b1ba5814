#include "orthant/http/metric_text.h"

#include <fmt/format.h>

#include <cmath>

namespace orthant::http {
namespace {

std::string lines_of(const std::string& name, const char* kind, const char* help, const std::string& value) {
  return fmt::format("# HELP orthant_{0} {1}\n# TYPE orthant_{0} {2}\northant_{0} {3}\n", name, help, kind, value);
}

}  // namespace

std::string metric_text(const std::string& name, const char* kind, const char* help, std::int64_t value) {
  return lines_of(name, kind, help, std::to_string(value));
}

std::string metric_text(const std::string& name, const char* kind, const char* help, double value) {
  const auto* const endless = value > 0 ? "+Inf" : "-Inf";
  return lines_of(name, kind, help, std::isnan(value) ? "NaN" : std::isinf(value) ? endless : fmt::format("{}", value));
}

}  // namespace orthant::http
