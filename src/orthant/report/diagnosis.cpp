#include "orthant/report/diagnosis.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>

#include "orthant/report/failures.h"

namespace orthant::report {
namespace {

// The state letter and start time of a process; nothing when there is none.
bool look_at_process(std::int64_t process, char& state, std::int64_t& started) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string line;
  if (!std::getline(file, line)) return false;
  const auto name_ends = line.rfind(')');
  if (name_ends == std::string::npos || name_ends + 2 >= line.size()) return false;
  state = line[name_ends + 2];
  std::size_t at = name_ends + 2;
  constexpr int kFieldsBefore = 19;
  for (int i = 0; i < kFieldsBefore && at != std::string::npos; ++i) at = line.find(' ', at + 1);
  if (at == std::string::npos) return false;
  started = std::strtoll(line.c_str() + at, nullptr, 10);
  return true;
}

const char* sureness(double confidence) {
  if (confidence >= 0.9) return "certain";
  return confidence >= 0.6 ? "likely" : "possible";
}

Finding how_it_goes(const RunFolder& run, const Observed& observed) {
  const bool alive = std::ranges::any_of(observed.processes, [](auto state) { return state == ProcessState::running; });
  const auto steps = run.metrics.steps.size();
  if (steps == 0 && !alive && run.ranks.empty()) {
    return {"did not start",
            0.6,
            "the run ended before its first step, and no rank has said why",
            {fmt::format("{} has no metrics.jsonl and no flight", run.path)},
            "start it again and see what it prints; orthant doctor looks at the machine"};
  }
  if (alive) {
    return {"running", 0.9, fmt::format("the run goes on: {} steps so far", steps), {}, ""};
  }
  return {"nothing wrong", 0.6, fmt::format("nothing wrong was found in {} steps", steps), {}, ""};
}

}  // namespace

ProcessState process_state(const trace::RankRecord& rank) {
  std::array<char, 64> host = {};
  gethostname(host.data(), host.size() - 1);
  if (rank.host() != host.data()) return ProcessState::unknown;
  char state = 0;
  std::int64_t started = 0;
  if (!look_at_process(rank.header.process, state, started)) return ProcessState::gone;
  if (started != rank.header.process_started || state == 'Z' || state == 'X') return ProcessState::gone;
  return state == 'T' || state == 't' ? ProcessState::stopped : ProcessState::running;
}

Observed observe(const RunFolder& run) {
  Observed observed{.processes = {}, .now_ns = trace::now_ns()};
  for (const auto& rank : run.ranks) observed.processes.push_back(process_state(rank));
  return observed;
}

RunState state_of(const RunFolder& run, const Observed& observed) {
  const auto& processes = observed.processes;
  const auto is = [&](ProcessState state) { return std::ranges::find(processes, state) != processes.end(); };
  if (is(ProcessState::running) || is(ProcessState::stopped)) return RunState::runs;
  bool all_done = !run.ranks.empty();
  for (const auto& rank : run.ranks)
    all_done &= rank.end() == trace::RankEnd::done || rank.end() == trace::RankEnd::stopped;
  if (all_done) return RunState::ended;
  if (is(ProcessState::unknown)) return RunState::runs;
  return RunState::pauses;
}

std::vector<Finding> diagnose(const RunFolder& run, const Observed& observed) {
  auto findings = find_failures(run, observed);
  // The times of a run that failed may tell of something else; they never come before what ended it.
  for (auto& finding : find_slowness(run)) {
    if (!findings.empty() && findings.front().confidence >= 0.9) {
      finding.confidence = std::min(finding.confidence, findings.front().confidence - 0.1);
    }
    findings.push_back(std::move(finding));
  }
  std::ranges::stable_sort(findings, [](const auto& a, const auto& b) { return a.confidence > b.confidence; });
  if (findings.empty() || findings.front().confidence < 0.6) {
    findings.insert(findings.begin(), how_it_goes(run, observed));
  }
  return findings;
}

std::string to_text(const RunFolder& run, const std::vector<Finding>& findings) {
  std::string text;
  int number = 0;
  for (const auto& finding : findings) {
    text += fmt::format("{}. {} ({}): {}\n", ++number, finding.cause, sureness(finding.confidence), finding.answer);
    for (const auto& evidence : finding.evidence) text += fmt::format("   shown by {}\n", evidence);
    if (!finding.fix.empty()) text += fmt::format("   fix: {}\n", finding.fix);
  }
  for (const auto& complaint : run.complaints) text += fmt::format("not read: {}\n", complaint);
  return text;
}

nlohmann::ordered_json to_json(const RunFolder& run, const std::vector<Finding>& findings) {
  auto all = nlohmann::ordered_json::array();
  for (const auto& finding : findings) {
    all.push_back({{"cause", finding.cause},
                   {"confidence", finding.confidence},
                   {"answer", finding.answer},
                   {"evidence", finding.evidence},
                   {"fix", finding.fix}});
  }
  return {{"run", run.path}, {"findings", all}, {"not_read", run.complaints}};
}

}  // namespace orthant::report
