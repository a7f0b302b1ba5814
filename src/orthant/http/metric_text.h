// A number in the text format of Prometheus, as a server answers it at /metrics.
#pragma once

#include <cstdint>
#include <string>

namespace orthant::http {

inline constexpr const char* kMetricsType = "text/plain; version=0.0.4";

// `kind`: counter or gauge. The name gets the prefix orthant_.
std::string metric_text(const std::string& name, const char* kind, const char* help, std::int64_t value);
std::string metric_text(const std::string& name, const char* kind, const char* help, double value);

}  // namespace orthant::http
