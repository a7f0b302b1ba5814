#include "orthant/trace/step_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "orthant/base/human.h"
#include "orthant/base/json_text.h"
#include "orthant/base/text_table.h"

namespace orthant::trace {
namespace {

// When the last member of each collective came.
using LastArrivals = std::map<std::string, std::int64_t>;

LastArrivals last_arrivals(const std::vector<RankTrace>& ranks) {
  LastArrivals last;
  for (const auto& rank : ranks) {
    for (const auto& event : rank.events) {
      if (event.kind != EventKind::exchange || is_message(event)) continue;
      auto& at = last[call_key(event, rank.rank)];
      at = std::max(at, event.begin_ns);
    }
  }
  return last;
}

bool is_phase(const NamedEvent& event, std::string_view name) {
  return event.kind == EventKind::phase && event.text == name;
}

Part part_of_operation(const std::string& name) {
  if (name.find("attention") != std::string::npos) return Part::attention;
  for (const auto* product : {"project", "product", "head_loss"}) {
    if (name.find(product) != std::string::npos) return Part::products;
  }
  return Part::other_operations;
}

Part part_of_phase(const std::string& name) {
  static const std::map<std::string, Part> kParts = {
      {"data", Part::data},          {"gradients", Part::gradients}, {"norm", Part::gradients},
      {"replicas", Part::gradients}, {"update", Part::update},       {"report", Part::reports},
      {"save", Part::reports},       {"evaluation", Part::reports},  {"copy for a checkpoint", Part::reports}};
  const auto found = kParts.find(name);
  return found == kParts.end() ? Part::between : found->second;
}

// Of one rank: what lies within steps.
class RankSteps {
 public:
  RankSteps(const RankTrace& trace, const LastArrivals& last) : trace_(trace), last_(last) {
    const auto& events = trace.events;
    // A loop's steps have their data and reports inside; a program that calls the trainer has its work alone.
    const bool looped = std::ranges::any_of(events, [](const auto& event) { return is_phase(event, "step"); });
    own_ = own_seconds(events);
    around_ = parents(events);
    inside_.assign(events.size(), false);
    for (std::size_t i = 0; i < events.size(); ++i) {
      const bool begins = is_phase(events[i], looped ? "step" : "work");
      inside_[i] = begins || (around_[i] >= 0 && inside_[static_cast<std::size_t>(around_[i])]);
      if (!begins) continue;
      ++num_steps_;
      parts_.step_seconds += events[i].seconds();
    }
    parts_.rank = trace.rank;
  }

  int num_steps() const { return num_steps_; }

  RankParts parts() {
    for (std::size_t i = 0; i < own_.size(); ++i) {
      if (inside_[i]) add(i);
    }
    for (auto& seconds : parts_.seconds) seconds /= std::max(num_steps_, 1);
    parts_.step_seconds /= std::max(num_steps_, 1);
    parts_.hidden_exchange = hidden() / std::max(num_steps_, 1);
    return parts_;
  }

  void add_rows(std::map<std::string, TableRow>& operations, std::map<int, TableRow>& units) const {
    for (std::size_t i = 0; i < own_.size(); ++i) {
      const auto& event = trace_.events[i];
      if (!inside_[i] || event.kind == EventKind::phase || event.kind == EventKind::action) continue;
      const bool operation = event.kind == EventKind::operation;
      const auto axis = event.group_text.substr(0, event.group_text.find('/'));
      const auto name = operation ? event.text : fmt::format("{} over {}", event.text, axis);
      auto& row = operations[name];
      row.name = name;
      if (event.kind != EventKind::wait) ++row.calls;
      row.seconds += own_[i];
      row.flops += event.flops;
      if (event.kind != EventKind::wait) row.bytes += static_cast<double>(event.bytes);
      if (!operation || event.unit < 0) continue;
      auto& unit = units[event.unit];
      ++unit.calls;
      unit.seconds += own_[i];
      unit.flops += event.flops;
      unit.bytes += static_cast<double>(event.bytes);
    }
  }

 private:
  double& of(Part part) { return parts_.seconds[static_cast<std::size_t>(part)]; }

  void add(std::size_t i) {
    const auto& event = trace_.events[i];
    switch (event.kind) {
      case EventKind::operation:
        of(part_of_operation(event.text)) += own_[i];
        return;
      case EventKind::exchange:
        of(Part::exchange) += own_[i];
        return;
      case EventKind::wait:
        add_wait(i);
        return;
      case EventKind::phase:
        of(part_of_phase(event.text)) += own_[i];
        return;
      case EventKind::action:
        of(Part::between) += own_[i];
        return;
    }
  }

  void add_wait(std::size_t i) {
    const auto& event = trace_.events[i];
    if (is_message(event)) {
      of(event.text == "receive" ? Part::other_stages : Part::exchange) += own_[i];
      return;
    }
    const auto last = last_.find(call_key(event, trace_.rank));
    double idle = 0;
    if (last != last_.end()) {
      idle = std::clamp(static_cast<double>(last->second - event.begin_ns) * 1e-9, 0.0, own_[i]);
    }
    of(Part::slower_ranks) += idle;
    of(Part::exchange) += own_[i] - idle;
  }

  // From the end of a call's start to where its wait begins.
  double hidden() const {
    std::map<std::string, std::int64_t> started;
    double seconds = 0;
    for (std::size_t i = 0; i < own_.size(); ++i) {
      const auto& event = trace_.events[i];
      if (!inside_[i]) continue;
      if (event.kind == EventKind::exchange) started[call_key(event, trace_.rank)] = event.end_ns;
      if (event.kind != EventKind::wait) continue;
      const auto found = started.find(call_key(event, trace_.rank));
      if (found != started.end() && !is_message(event)) {
        seconds += std::max(0.0, static_cast<double>(event.begin_ns - found->second) * 1e-9);
      }
    }
    return seconds;
  }

  const RankTrace& trace_;
  const LastArrivals& last_;
  std::vector<double> own_;
  std::vector<int> around_;
  std::vector<bool> inside_;
  int num_steps_ = 0;
  RankParts parts_;
};

template <typename Map>
std::vector<TableRow> by_seconds(const Map& rows) {
  std::vector<TableRow> sorted;
  for (const auto& [key, row] : rows) sorted.push_back(row);
  std::ranges::sort(sorted, [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return sorted;
}

std::string rate_text(double amount, double seconds, const char* unit) {
  if (amount <= 0 || seconds <= 0) return "";
  return fmt::format("{:.2f} G{}/s", amount / seconds * 1e-9, unit);
}

std::string rows_text(const std::string& title, const std::vector<TableRow>& rows, const StepTable& table,
                      std::size_t most) {
  double all = 0;
  for (const auto& rank : table.ranks) all += rank.step_seconds * table.num_steps;
  std::vector<TableLine> lines = {{title, "calls", "time", "share", "FLOP/s", "bytes/s", "of limit"}};
  for (std::size_t i = 0; i < std::min(most, rows.size()); ++i) {
    const auto& row = rows[i];
    const double limit = row.share_of_limit(table.limits);
    lines.push_back({row.name, fmt::format("{}", row.calls), format_seconds(row.seconds),
                     fmt::format("{:.1f}%", 100 * row.seconds / std::max(all, 1e-12)),
                     rate_text(row.flops, row.seconds, "FLOP"), rate_text(row.bytes, row.seconds, "B"),
                     limit > 0 ? fmt::format("{:.0f}%", 100 * limit) : ""});
  }
  auto text = text_table(lines);
  if (rows.size() > most) text += fmt::format("and {} more\n", rows.size() - most);
  return text;
}

std::string parts_text(const StepTable& table) {
  std::vector<TableLine> lines;
  TableLine head = {"part of a step"};
  for (const auto& rank : table.ranks) head.push_back(fmt::format("rank {}", rank.rank));
  lines.push_back(head);
  const auto add = [&](const std::string& name, const auto& seconds_of) {
    TableLine line = {name};
    for (const auto& rank : table.ranks) {
      line.push_back(fmt::format("{:.1f}%", 100 * seconds_of(rank) / std::max(rank.step_seconds, 1e-12)));
    }
    lines.push_back(line);
  };
  for (int p = 0; p < kNumParts; ++p) {
    add(name_of(static_cast<Part>(p)), [&](const auto& rank) { return rank.seconds[static_cast<std::size_t>(p)]; });
  }
  add("(exchange hidden)", [](const auto& rank) { return rank.hidden_exchange; });
  return text_table(lines);
}

nlohmann::ordered_json rows_json(const std::vector<TableRow>& rows, const Limits& limits) {
  auto all = nlohmann::ordered_json::array();
  for (const auto& row : rows) {
    all.push_back({{"name", row.name},
                   {"calls", row.calls},
                   {"seconds", row.seconds},
                   {"flops", row.flops},
                   {"bytes", row.bytes},
                   {"share_of_limit", row.share_of_limit(limits)}});
  }
  return all;
}

}  // namespace

const char* name_of(Part part) {
  static constexpr const char* kNames[kNumParts] = {"products",
                                                    "attention",
                                                    "other operations",
                                                    "exchange",
                                                    "waiting for slower ranks",
                                                    "waiting for other stages",
                                                    "data",
                                                    "gradients and norm",
                                                    "update",
                                                    "reports and saves",
                                                    "between operations"};
  return kNames[static_cast<std::size_t>(part)];
}

double TableRow::share_of_limit(const Limits& limits) const {
  if (seconds <= 0) return 0;
  double least = 0;  // seconds
  if (limits.flops_per_second > 0) least = std::max(least, flops / limits.flops_per_second);
  if (limits.bytes_per_second > 0) least = std::max(least, bytes / limits.bytes_per_second);
  return least / seconds;
}

double RankParts::busy() const {
  double sum = 0;
  for (const auto part : {Part::products, Part::attention, Part::other_operations, Part::update}) {
    sum += seconds[static_cast<std::size_t>(part)];
  }
  return sum;
}

double StepTable::step_seconds() const {
  double most = 0;
  for (const auto& rank : ranks) most = std::max(most, rank.step_seconds);
  return most;
}

StepTable step_table(const std::vector<RankTrace>& ranks, const std::vector<std::string>& units, const Limits& limits) {
  StepTable table{.num_steps = 0, .ranks = {}, .operations = {}, .units = {}, .limits = limits};
  const auto last = last_arrivals(ranks);
  std::map<std::string, TableRow> operations;
  std::map<int, TableRow> by_unit;
  for (const auto& rank : ranks) {
    RankSteps steps(rank, last);
    table.num_steps = std::max(table.num_steps, steps.num_steps());
    table.ranks.push_back(steps.parts());
    steps.add_rows(operations, by_unit);
  }
  for (auto& [unit, row] : by_unit) {
    row.name = static_cast<std::size_t>(unit) < units.size() ? units[static_cast<std::size_t>(unit)]
                                                             : fmt::format("unit {}", unit);
  }
  table.operations = by_seconds(operations);
  table.units = by_seconds(by_unit);
  return table;
}

std::string to_text(const StepTable& table, std::size_t most) {
  auto text = fmt::format("{} steps of {} on {} ranks\n", table.num_steps, format_seconds(table.step_seconds()),
                          table.ranks.size());
  if (table.limits.flops_per_second > 0) {
    text += fmt::format("limits measured here, all ranks at once: {:.2f} GFLOP/s and {:.2f} GB/s a rank\n",
                        table.limits.flops_per_second * 1e-9, table.limits.bytes_per_second * 1e-9);
  }
  if (table.ranks.size() <= 16) text += "\n" + parts_text(table);
  return text + "\n" + rows_text("operation", table.operations, table, most) + "\n" +
         rows_text("unit", table.units, table, most);
}

std::string to_json(const StepTable& table) {
  auto ranks = nlohmann::ordered_json::array();
  for (const auto& rank : table.ranks) {
    nlohmann::ordered_json parts;
    for (int p = 0; p < kNumParts; ++p) {
      parts[name_of(static_cast<Part>(p))] = rank.seconds[static_cast<std::size_t>(p)];
    }
    ranks.push_back({{"rank", rank.rank},
                     {"step_seconds", rank.step_seconds},
                     {"busy_seconds", rank.busy()},
                     {"hidden_exchange_seconds", rank.hidden_exchange},
                     {"parts", parts}});
  }
  const nlohmann::ordered_json document = {
      {"steps", table.num_steps},
      {"step_seconds", table.step_seconds()},
      {"limits",
       {{"flops_per_second", table.limits.flops_per_second}, {"bytes_per_second", table.limits.bytes_per_second}}},
      {"ranks", ranks},
      {"operations", rows_json(table.operations, table.limits)},
      {"units", rows_json(table.units, table.limits)}};
  return json_text(document, 1) + "\n";
}

}  // namespace orthant::trace
