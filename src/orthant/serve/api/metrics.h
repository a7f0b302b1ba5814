// What a server has done so far, as Prometheus reads it. For one thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "orthant/serve/generator.h"

namespace orthant {

class Histogram {
 public:
  static constexpr std::array<double, 14> kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                     0.25,  0.5,    1,     2.5,  5,     10,   60};
  void add(double value);
  std::string text(const std::string& name) const;

 private:
  std::array<std::int64_t, kBounds.size() + 1> counts_ = {};
  double sum_ = 0;
};

struct ServerMetrics {
  std::map<std::pair<std::string, int>, std::int64_t> requests = {};  // by route and status
  std::map<std::string, std::int64_t> finished = {};                  // answers by reason
  std::int64_t prompt_tokens = 0;
  std::int64_t generated_tokens = 0;
  std::int64_t connections = 0;
  std::int64_t waiting = 0;  // answers without a first token
  std::int64_t rank_starts = 0;
  Histogram first_token_seconds = {};
  Histogram token_seconds = {};  // between tokens
  Histogram request_seconds = {};
};

std::string metrics_text(const ServerMetrics& metrics, const GeneratorLoad& load);

}  // namespace orthant
