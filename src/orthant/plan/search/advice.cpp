#include "orthant/plan/search/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "orthant/base/human.h"

namespace orthant {
namespace {

constexpr double kNoticed = 0.01;    // a smaller gain is no advice
constexpr int kMostCards = 1 << 17;  // doubling ends there
constexpr int kMostTried = 10;       // of plans that fit by closed forms
constexpr double kSameKind = 4;      // times the FLOPs: faster cards are another kind of machine

struct Relaxed {
  std::string change;
  SearchRequest request;
};

// The preset with the next larger memory, if there is one; its network and price are its own.
std::optional<Hardware> larger_card(const Hardware& hardware) {
  std::optional<Hardware> larger;
  for (const std::string& name : hardware_names()) {
    Hardware other = find_hardware(name);
    const double faster = other.peak_flops / hardware.peak_flops;
    if (other.on_host != hardware.on_host || faster < 1 || faster > kSameKind) continue;
    if (other.memory_bytes <= hardware.memory_bytes) continue;
    if (!larger || other.memory_bytes < larger->memory_bytes) larger = std::move(other);
  }
  if (larger) larger->cards_per_node = hardware.cards_per_node;
  return larger;
}

// The first that also fits as it would run: closed forms may be a little low.
std::optional<Candidate> best_of(const SearchRequest& request, const SearchScope& scope,
                                 const std::shared_ptr<ModelBook>& shared) {
  const Stack stack = find_stack("orthant");
  const auto card = static_cast<double>(request.hardware.memory_bytes);
  int tried = 0;
  SearchEngine engine(request, shared);
  for (Candidate candidate : engine.run(scope).best) {
    if (candidate.memory_bytes > card) continue;
    const Plan plan = estimate(request.model, settings_of(candidate.point, request), request.hardware, stack,
                               engine.prices().model().programs());
    candidate.memory_bytes = static_cast<double>(plan.peak_bytes());
    if (plan.fits) return candidate;
    if (++tried == kMostTried) break;
  }
  return std::nullopt;
}

std::string percent(double share) {
  return fmt::format("{:+.0f}%", 100 * share);
}

std::string fit_text(const Candidate& candidate, const SearchRequest& request) {
  return fmt::format("fits: {} of {} on {}", format_bytes(std::llround(candidate.memory_bytes)),
                     format_bytes(request.hardware.memory_bytes),
                     settings_of(candidate.point, request).mesh.to_string());
}

double speed(const Candidate& candidate, const SearchRequest& request) {
  return static_cast<double>(request.global_batch) / candidate.step_seconds / request.cards;
}

// How much better `after` is in the terms of the strategy, per card; above 0 is better.
double gain(const Candidate& before, const SearchRequest& request, const Candidate& after,
            const SearchRequest& relaxed) {
  switch (request.strategy) {
    case Strategy::memory:
      return 1 - after.memory_bytes / before.memory_bytes;
    case Strategy::latency:
      return 1 - after.microbatch_seconds / before.microbatch_seconds;
    case Strategy::throughput:
      break;
  }
  return speed(after, relaxed) / speed(before, request) - 1;
}

std::string effect_text(double gained, Strategy strategy) {
  switch (strategy) {
    case Strategy::memory:
      return fmt::format("{} memory", percent(-gained));
    case Strategy::latency:
      return fmt::format("{} time of a microbatch", percent(-gained));
    case Strategy::throughput:
      break;
  }
  return fmt::format("{} tokens/s per card", percent(gained));
}

std::vector<Relaxed> relaxed_requests(const SearchRequest& request) {
  std::vector<Relaxed> relaxed;
  const auto add = [&](std::string change, const std::function<void(SearchRequest&)>& apply) {
    relaxed.push_back({std::move(change), request});
    apply(relaxed.back().request);
  };
  add(fmt::format("a global batch of {}", 2 * request.global_batch),
      [](SearchRequest& other) { other.global_batch *= 2; });
  if (request.gradients == DType::float32 && request.compute == DType::bfloat16) {
    add("bfloat16 gradients", [](SearchRequest& other) { other.gradients = DType::bfloat16; });
  }
  if (const auto larger = larger_card(request.hardware)) {
    add(fmt::format("{} cards", larger->name), [&](SearchRequest& other) { other.hardware = *larger; });
  }
  return relaxed;
}

}  // namespace

std::vector<Advice> advice_for(const SearchRequest& request, const Candidate& best,
                               const std::shared_ptr<ModelBook>& shared) {
  // Plans near the best one; what the others are is not asked again.
  const int pp = best.point.pp;
  std::vector<int> cps = {best.point.cp};
  if (best.point.cp > 1) cps.push_back(2 * best.point.cp);
  const SearchScope scope{.tp = {best.point.tp},
                          .pp = {pp, 2 * pp, std::max(pp / 2, 1)},
                          .cp = cps,
                          .ep = {best.point.ep},
                          .sample = false};
  std::vector<std::pair<double, Advice>> found;
  for (const Relaxed& relaxed : relaxed_requests(request)) {
    const auto after = best_of(relaxed.request, scope, shared);
    const double gained = after ? gain(best, request, *after, relaxed.request) : 0;
    if (gained < kNoticed) continue;
    found.emplace_back(gained, Advice{relaxed.change, effect_text(gained, request.strategy)});
  }
  std::ranges::sort(found, [](const auto& left, const auto& right) {
    return std::pair(-left.first, left.second.change) < std::pair(-right.first, right.second.change);
  });
  std::vector<Advice> advice;
  for (auto& [gained, one] : found) advice.push_back(std::move(one));
  if (request.cards > kMostCards / 2) return advice;
  SearchRequest twice = request;
  twice.cards *= 2;
  if (const auto after = best_of(twice, scope, shared)) {
    advice.push_back({fmt::format("{} cards", twice.cards),
                      fmt::format("{:.2f} x the tokens/s in all", best.step_seconds / after->step_seconds)});
  }
  return advice;
}

std::vector<Advice> advice_to_fit(const SearchRequest& request, const std::shared_ptr<ModelBook>& shared) {
  const SearchScope all{.sample = false};
  std::vector<Advice> advice;
  const auto try_one = [&](const std::string& change, const SearchRequest& relaxed) {
    const auto found = best_of(relaxed, all, relaxed.sequence == request.sequence ? shared : nullptr);
    if (found) advice.push_back({change, fit_text(*found, relaxed)});
    return found.has_value();
  };
  for (SearchRequest more = request; more.cards <= kMostCards / 2;) {
    more.cards *= 2;
    if (try_one(fmt::format("{} cards", more.cards), more)) break;
  }
  for (Relaxed& relaxed : relaxed_requests(request)) {
    if (relaxed.request.global_batch == request.global_batch) try_one(relaxed.change, relaxed.request);
  }
  for (SearchRequest shorter = request; shorter.sequence > 1;) {
    shorter.sequence /= 2;
    if (try_one(fmt::format("sequences of {}", shorter.sequence), shorter)) break;
  }
  return advice;
}

}  // namespace orthant
