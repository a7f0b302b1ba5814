#include "orthant/cli/dry_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <iostream>
#include <sstream>

#include "orthant/base/human.h"
#include "orthant/cli/run_picture.h"
#include "orthant/layout/placement_table.h"
#include "orthant/mesh/picture.h"
#include "orthant/plan/estimate/data_state.h"
#include "orthant/plan/estimate/data_traffic.h"
#include "orthant/plan/estimate/pipeline_traffic.h"
#include "orthant/plan/estimate/unit_traffic.h"
#include "orthant/schedule/grid.h"
#include "orthant/schedule/stage_lines.h"
#include "orthant/train/planned_trainer.h"
#include "orthant/train/run.h"
#include "orthant/train/summary.h"

namespace orthant::cli {
namespace {

// "gathers 4 KiB in 2 all-gathers", where there is such traffic.
template <typename Entry>
void add_sent(std::vector<std::string>& sent, const char* what, const Entry& entry, const char* calls) {
  if (entry.calls == 0) return;
  sent.push_back(
      fmt::format("{}{} in {} {}{}", what, format_bytes(entry.bytes), entry.calls, calls, entry.calls == 1 ? "" : "s"));
}

// "a, b, and c"; `none` when there is nothing.
std::string listed(std::vector<std::string> sent, const char* none) {
  if (sent.empty()) return none;
  if (sent.size() > 1) sent.back().insert(0, "and ");
  return fmt::format("{}", fmt::join(sent, ", "));
}

// Sentences on what a rank keeps and sends, by the closed forms of `plan`.
using Sentences = std::vector<std::string>;

void add_data(Sentences& sentences, const GraphSpec& spec, const RankStep& step) {
  const auto state = data_state(spec, step.data);
  const auto peaks = data_peaks(spec, step.data, step.actions);
  const auto traffic = data_traffic(spec, step.data, step.actions);
  auto text = fmt::format("A rank keeps {} of parameters, {} of gradients, {} of optimizer state",
                          format_bytes(state.parameters + state.compute), format_bytes(state.gradients),
                          format_bytes(state.optimizer));
  if (peaks.gathered > 0) text += fmt::format(", and for a while at most {} gathered", format_bytes(peaks.gathered));
  if (peaks.gradients > 0) text += fmt::format(", {} of full gradients", format_bytes(peaks.gradients));
  sentences.push_back(text + ".");
  std::vector<std::string> sent;
  add_sent(sent, "", traffic.gather, "all-gather");
  add_sent(sent, "", traffic.scatter, "reduce-scatter");
  add_sent(sent, "", traffic.sum, "all-reduce");
  sent.emplace_back("a few numbers for loss and norm");
  sentences.push_back(fmt::format("A step of a rank sends {}.", listed(std::move(sent), "")));
}

void add_tensor(Sentences& sentences, const GraphSpec& spec, const RankStep& step) {
  if (step.tensor.degree == 1) return;
  const auto traffic = tp_traffic(spec, step.tensor);
  std::vector<std::string> sent;
  add_sent(sent, "sums ", traffic.sum, "all-reduce");
  add_sent(sent, "gathers ", traffic.gather, "all-gather");
  add_sent(sent, "scatters sums of ", traffic.scatter, "reduce-scatter");
  add_sent(sent, "sums partial gradients of ", traffic.partials, "all-reduce");
  add_sent(sent, "sums gradients of copied heads of ", traffic.copies, "all-reduce");
  sentences.push_back(fmt::format("Over tp it {}.", listed(std::move(sent), "sends nothing")));
}

void add_context(Sentences& sentences, const GraphSpec& spec, const RankStep& step) {
  if (spec.context.degree == 1) return;
  const auto traffic = cp_traffic(spec, step.tensor);
  std::vector<std::string> sent;
  add_sent(sent, "sends ", traffic.sent, "message");
  add_sent(sent, "receives ", traffic.received, "message");
  add_sent(sent, "gathers ", traffic.gather, "all-gather");
  add_sent(sent, "scatters sums of ", traffic.scatter, "reduce-scatter");
  add_sent(sent, "exchanges ", traffic.all_to_all, "all-to-all");
  sentences.push_back(fmt::format("Over cp it {}, by {}.", listed(std::move(sent), "sends nothing"),
                                  context_way_name(spec.context.way)));
}

void add_experts(Sentences& sentences, const GraphSpec& spec, const RankStep& step) {
  if (spec.expert_degree == 1) return;
  std::vector<std::string> sent;
  add_sent(sent, "exchanges ", ep_traffic(spec, step.tensor), "all-to-all");
  sentences.push_back(
      fmt::format("Over ep it {}, where all experts take the same.", listed(std::move(sent), "sends nothing")));
}

void add_pipeline(Sentences& sentences, const GraphSpec& spec, const RankStep& step) {
  const auto traffic = pipeline_traffic(spec, step.data);
  std::vector<std::string> sent;
  add_sent(sent, "sends ", traffic.sent_values, "message");
  add_sent(sent, "receives ", traffic.received_values, "message");
  add_sent(sent, "sends gradients of ", traffic.sent_gradients, "message");
  add_sent(sent, "receives gradients of ", traffic.received_gradients, "message");
  add_sent(sent, "sums gradients of tied parameters of ", traffic.tied, "all-reduce");
  sentences.push_back(fmt::format("Over pp it {}.", listed(std::move(sent), "sends nothing")));
}

// The most bytes of activations that forwards keep for backwards to come, and gradients of inputs for those of weights,
// by the spec.
std::int64_t kept_peak(const GraphSpec& spec, const RankStep& step) {
  std::int64_t kept = 0;
  std::int64_t peak = 0;
  for (const auto& action : step.actions) {
    const bool forward = action.kind == ActionKind::forward;
    const bool whole = action.kind == ActionKind::backward;
    const bool input = action.kind == ActionKind::backward_input;
    const bool weight = action.kind == ActionKind::backward_weight;
    if (!forward && !whole && !input && !weight) continue;
    const auto& cost = spec.units[static_cast<std::size_t>(action.unit)].cost;
    const auto bytes = cost.kept_bytes.at(static_cast<std::size_t>(step.tensor.recompute));
    if (forward) kept += bytes;
    if (whole || input) kept -= bytes;
    if (input) kept += cost.deferred_bytes;
    if (weight) kept -= cost.deferred_bytes;
    peak = std::max(peak, kept);
  }
  return peak;
}

// Of a mesh without pp.
std::string rank_text(const RunConfig& config, const GraphSpec& spec, const RankStep& step) {
  Sentences sentences;
  add_data(sentences, spec, step);
  add_tensor(sentences, spec, step);
  add_context(sentences, spec, step);
  add_experts(sentences, spec, step);
  std::int64_t kept = 0;
  for (const auto& row : summary_rows(spec, summary_options(config))) kept += row.kept_bytes;
  sentences.push_back(fmt::format("A rank keeps {} of activations for a microbatch.", format_bytes(kept)));
  return fmt::format("\n{}\n", fmt::join(sentences, "\n"));
}

// Of one pp coordinate, every line with its number.
std::string stage_text(const GraphSpec& spec, const RankStep& step, int in_flight) {
  Sentences sentences;
  add_data(sentences, spec, step);
  add_pipeline(sentences, spec, step);
  add_tensor(sentences, spec, step);
  add_context(sentences, spec, step);
  add_experts(sentences, spec, step);
  sentences.push_back(fmt::format("A rank has at most {} forward{} in flight and keeps {} of activations.", in_flight,
                                  in_flight == 1 ? "" : "s", format_bytes(kept_peak(spec, step))));
  std::string text = "\n";
  for (auto& sentence : sentences) {
    sentence.front() = static_cast<char>(std::tolower(static_cast<unsigned char>(sentence.front())));
    text += fmt::format("pp {}: {}\n", step.pp, sentence);
  }
  return text;
}

// What the first rank of a pp coordinate holds of every parameter.
std::string placements_at(const RunConfig& config, const GraphSpec& spec, const RankStep& step) {
  Coordinate place;
  place[Axis::pp] = step.pp;
  return "\n" + placement_text(spec, config.mesh, config.mesh.rank_of(place), config.trainer.precision.params,
                               step.data.unit_pp_coordinates);
}

void print_actions(const std::string& title, const std::vector<Action>& actions, std::size_t most,
                   const GraphSpec& spec) {
  std::cout << fmt::format("\n{}, {} actions:\n", title, actions.size());
  for (std::size_t i = 0; i < std::min(most, actions.size()); ++i) {
    std::cout << "  " << to_string(actions[i], spec) << '\n';
  }
  if (actions.size() > most) std::cout << fmt::format("  ... {} more\n", actions.size() - most);
}

// The stages, the table of a step, and of every pp coordinate what it keeps, sends and does.
void print_pipeline(const RunConfig& config, const GraphSpec& spec, const Pipeline& pipeline,
                    const std::vector<RankStep>& steps) {
  constexpr std::size_t kLongList = 400;
  constexpr std::size_t kShown = 200;
  std::cout << '\n' << stage_lines(pipeline, spec) << "\n\n" << schedule_picture(config, spec, pipeline);
  const auto in_flight = peak_in_flight(pipeline.table);
  for (std::size_t pp = 0; pp < steps.size(); ++pp) {
    std::cout << stage_text(spec, steps[pp], in_flight[pp]) << placements_at(config, spec, steps[pp]);
  }
  for (const auto& step : steps) {
    const auto most = step.actions.size() > kLongList ? kShown : kLongList;
    print_actions(fmt::format("Schedule of a step at pp {}", step.pp), step.actions, most, spec);
  }
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The first of so many lines, and what kind of line is missing.
std::string first_lines(const std::string& text, std::size_t most, const char* what) {
  auto lines = lines_of(text);
  if (lines.size() <= most) return fmt::format("{}\n", fmt::join(lines, "\n"));
  const auto missing = lines.size() - most;
  lines.resize(most);
  return fmt::format("{}\n  ... {} more {}\n", fmt::join(lines, "\n"), missing, what);
}

// The table of units; of many units its head and its total.
std::string short_summary(const RunConfig& config) {
  constexpr std::size_t kMostUnits = 10;
  constexpr std::size_t kHead = 2;
  const auto text = summary_text(declared_spec(config), summary_options(config));
  const auto lines = lines_of(text);
  if (lines.size() <= kHead + kMostUnits + 1) return text;
  return fmt::format("{}\n{}\n{}\n", lines[0], lines[1], lines.back());
}

// The table of a step, where it fits a screen.
std::string short_schedule(const RunConfig& config, const GraphSpec& spec, const Pipeline& pipeline) {
  constexpr std::size_t kMostRows = 8;
  constexpr std::size_t kWidest = 120;
  const auto text = schedule_picture(config, spec, pipeline);
  const auto lines = lines_of(text);
  const bool wide = std::ranges::any_of(lines, [](const auto& line) { return line.size() > kWidest; });
  return wide || lines.size() > kMostRows ? lines.empty() ? "" : lines.front() + "\n" : text;
}

// The pp coordinate that keeps most.
std::size_t fullest(const GraphSpec& spec, const std::vector<RankStep>& steps) {
  std::vector<std::int64_t> bytes;
  for (const auto& step : steps) {
    const auto state = data_state(spec, step.data);
    bytes.push_back(state.parameters + state.compute + state.gradients + state.optimizer + kept_peak(spec, step));
  }
  return static_cast<std::size_t>(std::ranges::max_element(bytes) - bytes.begin());
}

// One screen: the mesh, the model, the stages, and what the fullest rank keeps and sends.
void print_short(const RunConfig& config, const GraphSpec& spec, const Pipeline& pipeline,
                 const std::vector<RankStep>& steps) {
  constexpr std::size_t kMostStages = 7;  // with the line before them
  std::cout << '\n' << short_summary(config);
  if (steps.size() > 1) {
    std::cout << '\n' << first_lines(stage_lines(pipeline, spec), kMostStages, "stages");
    std::cout << '\n' << short_schedule(config, spec, pipeline);
    const auto most = fullest(spec, steps);
    std::cout << stage_text(spec, steps[most], peak_in_flight(pipeline.table)[most]);
  } else if (config.mesh.world_size() > 1) {
    std::cout << rank_text(config, spec, steps.front());
  }
  std::cout << "\nDry run: nothing was trained. --verbose adds ranks and groups, where every parameter lies, and all "
               "actions of a step.\n";
}

}  // namespace

void print_dry_run(const RunConfig& config, int ranks_per_host, bool verbose) {
  // What travels follows below, by the settings of this run.
  const auto ranks = ranks_text(config.mesh, ranks_per_host > 0 ? ranks_per_host : config.mesh.world_size());
  std::cout << (verbose ? ranks : lines_of(ranks).front() + "\n");
  const auto spec = run_spec(config);
  const auto pipeline = trainer_pipeline(spec, config.mesh, config.trainer);
  const auto steps = rank_steps(pipeline, spec, config.mesh, config.trainer);
  if (!verbose) return print_short(config, spec, pipeline, steps);
  std::cout << '\n' << summary_text(declared_spec(config), summary_options(config));
  if (steps.size() > 1) {
    print_pipeline(config, spec, pipeline, steps);
  } else {
    if (config.mesh.world_size() > 1) {
      std::cout << rank_text(config, spec, steps.front()) << placements_at(config, spec, steps.front());
    }
    const auto& actions = steps.front().actions;
    print_actions("Schedule of a step", actions, actions.size(), spec);
  }
  std::cout << "\nDry run: nothing was trained.\n";
}

}  // namespace orthant::cli
