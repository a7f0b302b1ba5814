#include "orthant/report/failures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "orthant/base/human.h"
#include "orthant/trace/rank_trace.h"

namespace orthant::report {
namespace {

using trace::EventKind;
using trace::NamedEvent;
using trace::RankEnd;
using trace::RankRecord;

// Words of messages, the cause that they are of, and what helps where the message itself does not say.
struct KnownText {
  std::string_view words;
  const char* cause;
  const char* fix;
};
constexpr std::array<KnownText, 23> kKnownTexts = {{
    {"out of memory", "out of memory",
     "a smaller microbatch (more parallel.microbatches), parallel.recompute, or more ranks"},
    {"the update was left out", "not finite", "a lower optimizer.lr, optimizer.clip=1.0, or a look at that batch"},
    {"No space left on device", "disk full", "free space on that disk, or fewer checkpoints (checkpoint.keep_last)"},
    {"Disk quota exceeded", "disk full", "free space within the quota, or fewer checkpoints (checkpoint.keep_last)"},
    {"Input/output error", "disk", "another disk, or --output-dir on one that works"},
    {"is stopped", "stopped rank", "kill -CONT of that process, or end the debugger"},
    {": stopped (", "stopped rank", "kill -CONT of that process, or end the debugger"},
    {": silent for", "silent rank", "see what that rank computes; --timeout step=SECONDS where a step is only slow"},
    {"killed by SIGSEGV", "crashed", "report it, with log/rank-R.log of that rank"},
    {"killed by SIGABRT", "crashed", "report it, with log/rank-R.log of that rank"},
    {"killed by SIGBUS", "crashed", "report it, with log/rank-R.log of that rank"},
    {"killed by SIGFPE", "crashed", "report it, with log/rank-R.log of that rank"},
    {"killed by SIGILL", "crashed", "a program built for this machine's CPU, or report it with log/rank-R.log"},
    {"killed by SIGSYS", "crashed", "what keeps this process from that call of the system (seccomp)"},
    {"killed by SIG", "killed", "--resume auto goes on from the newest checkpoint; --max-restarts 3 does so by itself"},
    {"was still", "rank left early", "see why that rank's program ends before the others"},
    {"do not match", "different calls", "see the named places of the program: all ranks of a group must call alike"},
    {"different configurations", "different configurations", "one configuration file for all ranks"},
    {"is not UTF-8", "bad data", "iconv -f latin1 -t utf8 FILE"},
    {"ranks arrived within", "ranks missing", "start all ranks of the mesh, with one MASTER_ADDR and MASTER_PORT"},
    {"ranks of the launcher", "wrong world", "a --mesh whose degrees multiply to the ranks that are started"},
    {"failed after", "lost peer", "the log of the rank that is named; --timeout where it is only slow"},
    {"connection", "lost peer", "the log of the rank that is named"},
}};

const KnownText* known(std::string_view text) {
  for (const auto& one : kKnownTexts) {
    if (text.find(one.words) != std::string_view::npos) return &one;
  }
  return nullptr;
}

bool is_consequence(const KnownText* text) {
  return text != nullptr &&
         (std::string_view(text->cause) == "lost peer" || std::string_view(text->cause) == "rank left early");
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// Behind "fix: " where the text has one.
std::string own_fix(const std::string& text) {
  const auto at = text.find("fix: ");
  return at == std::string::npos ? "" : first_line(text.substr(at + 5));
}

std::string with_place(const LogLine& line) {
  return fmt::format("log/rank-{}.log, {}: {}", line.rank, line.time, line.text);
}

// The last action of a rank, and whether it goes on.
std::string doing(const RankRecord& rank) {
  for (auto event = rank.events.rbegin(); event != rank.events.rend(); ++event) {
    if (!event->is_open() && !event->failed) continue;
    if (event->kind == EventKind::wait) {
      return fmt::format("waits for {} #{} of {}", event->text, event->sequence, event->group_text);
    }
    return fmt::format("is in {}{}, step {}", event->text,
                       event->microbatch >= 0 ? fmt::format(" m{}", event->microbatch) : "", event->step);
  }
  if (rank.events.empty()) return "has done nothing";
  const auto& last = rank.events.back();
  return fmt::format("did {} last, step {}", last.text, last.step);
}

// Lines of ranks that told an error of the newest attempt.
std::vector<LogLine> errors_of(const RunFolder& run) {
  std::map<int, std::vector<LogLine>> by_rank;
  for (const auto& line : run.log) {
    if (line.text.find(" started: host ") != std::string::npos) by_rank[line.rank].clear();  // another attempt
    if (line.text.starts_with("error: ")) by_rank[line.rank].push_back(line);
  }
  std::vector<LogLine> errors;
  for (const auto& [rank, lines] : by_rank) errors.insert(errors.end(), lines.begin(), lines.end());
  std::ranges::stable_sort(errors, [](const auto& a, const auto& b) { return a.time < b.time; });
  return errors;
}

// Who waits for whom, from the last events: of ranks that are in a wait, or whose wait failed.
class Waits {
 public:
  explicit Waits(const std::vector<RankRecord>& ranks) : ranks_(ranks) {
    for (const auto& rank : ranks) {
      for (const auto& event : rank.events) {
        if (event.kind == EventKind::exchange)
          started_[rank.header.rank].insert(trace::call_key(event, rank.header.rank));
      }
      const auto waiting = std::ranges::find_if(rank.events.rbegin(), rank.events.rend(), [](const auto& event) {
        return event.kind == EventKind::wait && (event.is_open() || event.failed);
      });
      if (waiting != rank.events.rend()) waiting_[rank.header.rank] = &*waiting;
    }
  }

  const std::map<int, const NamedEvent*>& all() const { return waiting_; }

  // Members that never came to the call that a rank waits for.
  std::vector<int> absent(int rank) const {
    const auto& event = *waiting_.at(rank);
    std::vector<int> members;
    if (trace::is_message(event)) {
      members = {event.peer};
    } else {
      members = members_of(event.group_text);
    }
    const auto key = trace::call_key(event, rank);
    std::vector<int> missing;
    for (const int member : members) {
      if (member == rank || !has_record(member)) continue;
      const auto found = started_.find(member);
      if (found == started_.end() || !found->second.contains(key)) missing.push_back(member);
    }
    return missing;
  }

  // "rank 0 waits for all_reduce #3 of world/control (since 12 s), to which rank 1 never came"
  std::vector<std::string> sentences(std::int64_t now_ns) const {
    std::vector<std::string> all;
    for (const auto& [rank, event] : waiting_) {
      const auto missing = absent(rank);
      std::string whom;
      for (const int member : missing) whom += fmt::format("{}rank {}", whom.empty() ? "" : ", ", member);
      const auto until = event->is_open() ? now_ns : event->end_ns;
      all.push_back(fmt::format("rank {} {} for {} #{} of {} for {}{}{}", rank, event->is_open() ? "waits" : "waited",
                                event->text, event->sequence, event->group_text.substr(0, event->group_text.find('@')),
                                format_seconds(static_cast<double>(until - event->begin_ns) * 1e-9),
                                event->microbatch >= 0 ? fmt::format(" (microbatch {})", event->microbatch) : "",
                                whom.empty() ? "" : fmt::format(", to which {} never came", whom)));
    }
    return all;
  }

  // The rank that most others wait for and that waits for nobody who is waiting for it; -1: none.
  int culprit() const {
    std::map<int, int> blamed;
    for (const auto& [rank, event] : waiting_) {
      for (const int member : absent(rank)) ++blamed[member];
    }
    int worst = -1;
    for (const auto& [rank, count] : blamed) {
      const bool waits = waiting_.contains(rank) && !absent(rank).empty();
      if (!waits && (worst < 0 || count > blamed[worst])) worst = rank;
    }
    return worst;
  }

  // Two ranks, each waiting for a call that the other has not come to.
  std::optional<std::pair<int, int>> cycle() const {
    for (const auto& [rank, event] : waiting_) {
      for (const int other : absent(rank)) {
        if (!waiting_.contains(other)) continue;
        const auto back = absent(other);
        if (std::ranges::find(back, rank) != back.end()) return std::pair(rank, other);
      }
    }
    return std::nullopt;
  }

 private:
  bool has_record(int rank) const {
    return std::ranges::any_of(ranks_, [&](const auto& record) { return record.header.rank == rank; });
  }
  static std::vector<int> members_of(const std::string& group) {
    std::vector<int> members;
    const auto blank = group.find(' ');
    int number = 0;
    bool digits = false;
    for (std::size_t i = blank == std::string::npos ? group.size() : blank + 1; i <= group.size(); ++i) {
      const char c = i < group.size() ? group[i] : ',';
      if (c == ',') {
        if (digits) members.push_back(number);
        number = 0;
        digits = false;
      } else if (c >= '0' && c <= '9') {
        number = 10 * number + (c - '0');
        digits = true;
      }
    }
    return members;
  }

  const std::vector<RankRecord>& ranks_;
  std::map<int, std::set<std::string>> started_;
  std::map<int, const NamedEvent*> waiting_;
};

const RankRecord* record_of(const RunFolder& run, int rank) {
  const auto found = std::ranges::find_if(run.ranks, [&](const auto& record) { return record.header.rank == rank; });
  return found == run.ranks.end() ? nullptr : &*found;
}

// By the launcher, which saw the ranks end.
std::optional<Finding> by_verdict(const RunFolder& run) {
  if (run.verdicts.empty()) return std::nullopt;
  const auto& last = run.verdicts.back();
  if (last.exit_code == 0 || last.exit_code == 75 || last.report.empty()) return std::nullopt;
  Finding finding{.cause = "failed", .confidence = 0.95, .answer = first_line(last.report), .evidence = {}, .fix = ""};
  finding.evidence.push_back("log/launcher.jsonl: " + first_line(last.report));
  const auto* text = known(last.report);
  // A rank that left with an exit code has said why in its log.
  if (text == nullptr || is_consequence(text)) {
    for (const auto& error : errors_of(run)) {
      const auto* said = known(error.text);
      if (is_consequence(said) || (last.failed_rank >= 0 && error.rank != last.failed_rank && text == nullptr))
        continue;
      finding.answer = fmt::format("rank {} ended with an error: {}", error.rank, error.text.substr(7));
      finding.evidence.push_back(with_place(error));
      finding.fix = own_fix(error.text);
      text = said;
      break;
    }
  }
  if (text != nullptr) {
    finding.cause = text->cause;
    if (const auto fix = own_fix(last.report); !fix.empty()) finding.fix = fix;
    if (finding.fix.empty()) finding.fix = text->fix;
  }
  if (const auto* record = record_of(run, last.failed_rank)) {
    finding.evidence.push_back(
        fmt::format("flight/rank-{}.events: rank {} {}", last.failed_rank, last.failed_rank, doing(*record)));
  }
  return finding;
}

// By what ranks said themselves: of those errors the first that is no consequence of another.
std::optional<Finding> by_errors(const RunFolder& run) {
  const auto errors = errors_of(run);
  if (errors.empty()) return std::nullopt;
  const auto cause = std::ranges::find_if(errors, [](const auto& line) { return !is_consequence(known(line.text)); });
  const auto& told = cause == errors.end() ? errors.front() : *cause;
  const auto* text = known(told.text);
  const bool sure = cause != errors.end();
  return Finding{.cause = text != nullptr ? text->cause : "failed",
                 .confidence = sure ? 0.92 : 0.55,
                 .answer = fmt::format("rank {} ended with an error: {}", told.rank, told.text.substr(7)),
                 .evidence = {with_place(told)},
                 .fix = text != nullptr ? text->fix : ""};
}

Finding killed(const RunFolder& run, const std::vector<const RankRecord*>& silent, double confidence) {
  std::string who;
  for (const auto* rank : silent) who += fmt::format("{}{}", who.empty() ? "" : ", ", rank->header.rank);
  const bool all = silent.size() == run.ranks.size();
  Finding finding{.cause = "killed",
                  .confidence = confidence,
                  .answer = fmt::format("{} {} ended without a word, as a process does that is killed (kill -9, the "
                                        "kernel for lack of memory, the machine)",
                                        all                  ? "all ranks:"
                                        : silent.size() == 1 ? "rank"
                                                             : "ranks",
                                        who),
                  .evidence = {},
                  .fix =
                      "--resume auto goes on from the newest checkpoint; dmesg tells of processes that the kernel "
                      "killed"};
  for (const auto* rank : silent) {
    if (finding.evidence.size() == 4) break;
    finding.evidence.push_back(
        fmt::format("flight/rank-{}.events: process {} is gone and has not said that it ended; it {}",
                    rank->header.rank, rank->header.process, doing(*rank)));
  }
  return finding;
}

// By the state of processes: killed, stopped, or waiting for one another.
std::vector<Finding> by_processes(const RunFolder& run, const Observed& observed) {
  std::vector<Finding> findings;
  std::vector<const RankRecord*> silent, stopped;
  bool alive = false;
  for (std::size_t i = 0; i < run.ranks.size(); ++i) {
    const auto& rank = run.ranks[i];
    const auto state = observed.processes[i];
    alive |= state == ProcessState::running || state == ProcessState::stopped;
    if (state == ProcessState::stopped) stopped.push_back(&rank);
    if (state == ProcessState::gone && rank.end() == RankEnd::running) silent.push_back(&rank);
  }
  const Waits waits(run.ranks);
  if (!stopped.empty()) {
    Finding finding{.cause = "stopped rank",
                    .confidence = 0.95,
                    .answer = "",
                    .evidence = waits.sentences(observed.now_ns),
                    .fix = ""};
    finding.answer = fmt::format("rank {} is stopped by a signal or a debugger, and the others wait for it: it {}",
                                 stopped.front()->header.rank, doing(*stopped.front()));
    finding.fix = fmt::format("kill -CONT {}, or end the debugger", stopped.front()->header.process);
    return {finding};
  }
  if (!silent.empty() && !alive) findings.push_back(killed(run, silent, 0.9));
  if (alive && !waits.all().empty()) {
    const auto& longest = *std::ranges::max_element(waits.all(), {}, [&](const auto& entry) {
      return entry.second->is_open() ? observed.now_ns - entry.second->begin_ns : 0;
    });
    const double seconds = static_cast<double>(observed.now_ns - longest.second->begin_ns) * 1e-9;
    if (longest.second->is_open() && seconds > 5) {
      Finding finding{
          .cause = "hang", .confidence = 0.7, .answer = "", .evidence = waits.sentences(observed.now_ns), .fix = ""};
      const int culprit = waits.culprit();
      const auto* record = record_of(run, culprit);
      finding.answer = fmt::format("the run hangs: rank {} has waited for {}", longest.first, format_seconds(seconds));
      if (const auto both = waits.cycle()) {
        finding.cause = "deadlock";
        finding.answer +=
            fmt::format("; ranks {} and {} wait for each other, in different calls", both->first, both->second);
        finding.fix = "make both call in one order; --check-collectives names the places";
      } else if (record != nullptr) {
        finding.answer += fmt::format("; rank {} is the one that does not come: it {}", culprit, doing(*record));
        finding.fix =
            fmt::format("see what process {} does (gdb -p, log/rank-{}.log)", record->header.process, culprit);
      }
      findings.push_back(std::move(finding));
    }
  }
  return findings;
}

// Steps whose update was left out, in a run that went on.
std::optional<Finding> by_bad_steps(const RunFolder& run) {
  const LogLine* last = nullptr;
  int count = 0;
  for (const auto& line : run.log) {
    if (line.rank != 0 || line.text.find("; the update was left out; ") == std::string::npos) continue;
    last = &line;
    if (!line.text.starts_with("error: ")) ++count;
  }
  if (last == nullptr) return std::nullopt;
  return Finding{
      .cause = "not finite",
      .confidence = count > 1 ? 0.9 : 0.85,
      .answer = fmt::format("{} step{} had values that are not finite, and {} not updated: {}", std::max(count, 1),
                            count > 1 ? "s" : "", count > 1 ? "were" : "was", last->text),
      .evidence = {with_place(*last)},
      .fix = "a lower optimizer.lr, optimizer.clip=1.0, or a look at that batch (data.log_samples=true)"};
}

}  // namespace

std::vector<Finding> find_failures(const RunFolder& run, const Observed& observed) {
  std::vector<Finding> findings;
  auto verdict = by_verdict(run);
  auto errors = by_errors(run);
  const auto processes = by_processes(run, observed);
  // Ranks that only lost their peers explain nothing where somebody was killed.
  const bool known_end = verdict || (errors && errors->confidence > 0.9);
  if (verdict) findings.push_back(*std::move(verdict));
  if (errors && (findings.empty() || findings.front().cause == "failed")) findings.push_back(*std::move(errors));
  for (const auto& finding : processes) {
    if (!known_end || finding.cause == "stopped rank") findings.push_back(finding);
  }
  if (auto bad = by_bad_steps(run)) {
    if (std::ranges::none_of(findings, [](const auto& finding) { return finding.cause == "not finite"; })) {
      findings.push_back(*std::move(bad));
    }
  }
  const Waits waits(run.ranks);
  const bool lost =
      !findings.empty() && (findings.front().cause == "silent rank" || findings.front().cause == "lost peer");
  if (lost) {
    for (auto& sentence : waits.sentences(observed.now_ns)) findings.front().evidence.push_back(std::move(sentence));
    if (const auto both = waits.cycle()) {
      findings.front().cause = "deadlock";
      findings.front().answer +=
          fmt::format("; ranks {} and {} waited for each other, in different calls", both->first, both->second);
      findings.front().fix = "make both call in one order; --check-collectives names the places";
    }
  }
  return findings;
}

}  // namespace orthant::report
