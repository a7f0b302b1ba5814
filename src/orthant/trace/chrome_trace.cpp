#include "orthant/trace/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace orthant::trace {
namespace {

std::string json_string(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

class Document {
 public:
  explicit Document(const std::vector<RankTrace>& ranks) : ranks_(ranks) {
    first_ns_ = std::numeric_limits<std::int64_t>::max();
    for (const auto& rank : ranks) {
      for (const auto& event : rank.events) first_ns_ = std::min(first_ns_, event.begin_ns);
    }
  }

  std::string text() {
    for (const auto& rank : ranks_) add_rank(rank);
    for (std::size_t r = 0; r < ranks_.size(); ++r) add_exchanges(r);
    add_arrows();
    return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + lines_ + "\n]}\n";
  }

 private:
  // An event of one rank: by rank and place.
  struct At {
    std::size_t rank = 0;
    std::size_t event = 0;
  };
  struct CallEvents {
    std::vector<At> starts, waits;
  };

  std::string micros(std::int64_t ns) const {
    return fmt::format("{:.3f}", static_cast<double>(ns - first_ns_) * 1e-3);
  }

  void add(const std::string& line) { lines_ += (lines_.empty() ? "" : ",\n") + line; }

  const NamedEvent& event_at(const At& at) const { return ranks_[at.rank].events[at.event]; }

  void add_rank(const RankTrace& rank) {
    const auto title =
        rank.place.empty() ? fmt::format("rank {}", rank.rank) : fmt::format("rank {} ({})", rank.rank, rank.place);
    add(fmt::format(R"({{"ph":"M","pid":{},"name":"process_name","args":{{"name":{}}}}})", rank.rank,
                    json_string(title)));
    add(fmt::format(R"({{"ph":"M","pid":{},"name":"process_sort_index","args":{{"sort_index":{}}}}})", rank.rank,
                    rank.rank));
    std::set<int> rows;
    for (const auto& event : rank.events) {
      if (rows.insert(event.row).second) {
        add(fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":"{}"}}}})", rank.rank,
                        event.row, rows.size() == 1 ? "steps" : fmt::format("thread {}", event.row)));
      }
      add_slice(rank.rank, event);
      if (event.kind == EventKind::action && event.bytes > 0) {
        add(fmt::format(R"({{"ph":"C","pid":{},"name":"tensors","ts":{},"args":{{"bytes":{}}}}})", rank.rank,
                        micros(event.end_ns), event.bytes));
      }
    }
  }

  void add_slice(int rank, const NamedEvent& event) {
    std::string arguments = fmt::format(R"("step":{})", event.step);
    const auto tell = [&](const char* name, auto number) { arguments += fmt::format(R"(,"{}":{})", name, number); };
    if (event.stage >= 0) tell("stage", event.stage);
    if (event.unit >= 0) tell("unit", event.unit);
    if (event.microbatch >= 0) tell("microbatch", event.microbatch);
    if (event.bytes > 0) tell("bytes", event.bytes);
    if (event.flops > 0) tell("flops", event.flops);
    auto name = event.text;
    if (event.kind == EventKind::exchange || event.kind == EventKind::wait) {
      tell("sequence", event.sequence);
      if (event.peer >= 0) tell("peer", event.peer);
      arguments += ",\"group\":" + json_string(event.group_text);
      name = (event.kind == EventKind::wait ? "wait for " : "start ") + name;
    } else if (event.microbatch >= 0 && event.kind == EventKind::action) {
      name += fmt::format(" m{}", event.microbatch);
    }
    add(fmt::format(R"({{"ph":"X","pid":{},"tid":{},"cat":"{}","name":{},"ts":{},"dur":{:.3f},"args":{{{}}}}})", rank,
                    event.row, name_of(event.kind), json_string(name), micros(event.begin_ns),
                    static_cast<double>(event.end_ns - event.begin_ns) * 1e-3, arguments));
  }

  // From the start of a call to where somebody has waited for it.
  void add_exchanges(std::size_t r) {
    const auto& rank = ranks_[r];
    std::map<std::string, std::size_t> started;
    for (std::size_t i = 0; i < rank.events.size(); ++i) {
      const auto& event = rank.events[i];
      if (event.kind != EventKind::exchange && event.kind != EventKind::wait) continue;
      const auto key = call_key(event, rank.rank);
      auto& call = calls_[key];
      if (event.kind == EventKind::exchange) {
        started[key] = i;
        call.starts.push_back({r, i});
        continue;
      }
      call.waits.push_back({r, i});
      const auto begun = started.find(key);
      if (begun == started.end()) continue;
      const auto id = fmt::format("{}.{}", rank.rank, begun->second);
      const auto axis = event.group_text.substr(0, event.group_text.find('@'));
      for (const auto& [phase, ns] :
           {std::pair("b", rank.events[begun->second].begin_ns), std::pair("e", event.end_ns)}) {
        add(fmt::format(R"({{"ph":"{}","pid":{},"tid":{},"cat":"exchange","id":"{}","name":{},"ts":{}}})", phase,
                        rank.rank, event.row, id, json_string(event.text + " " + axis), micros(ns)));
      }
    }
  }

  void add_arrow(const At& from, const At& to, const char* name) {
    const auto& begin = event_at(from);
    const auto& end = event_at(to);
    const int id = ++num_arrows_;
    add(fmt::format(R"({{"ph":"s","pid":{},"tid":{},"cat":"flow","name":"{}","id":{},"ts":{}}})",
                    ranks_[from.rank].rank, begin.row, name, id, micros(begin.begin_ns)));
    // Bound to the slice that it ends in.
    add(fmt::format(R"({{"ph":"f","bp":"e","pid":{},"tid":{},"cat":"flow","name":"{}","id":{},"ts":{}}})",
                    ranks_[to.rank].rank, end.row, name, id, micros(end.end_ns)));
  }

  void add_arrows() {
    for (const auto& [key, call] : calls_) {
      if (call.starts.empty()) continue;
      if (is_message(event_at(call.starts.front()))) {
        add_message(call);
        continue;
      }
      const auto last = *std::ranges::max_element(call.starts, {}, [&](const At& at) { return event_at(at).begin_ns; });
      for (const auto& wait : call.waits) {
        if (wait.rank != last.rank) add_arrow(last, wait, "last to come");
      }
    }
  }

  void add_message(const CallEvents& call) {
    const auto sent = std::ranges::find_if(call.starts, [&](const At& at) { return event_at(at).text == "send"; });
    const auto received =
        std::ranges::find_if(call.waits, [&](const At& at) { return event_at(at).text == "receive"; });
    if (sent != call.starts.end() && received != call.waits.end()) add_arrow(*sent, *received, "message");
  }

  const std::vector<RankTrace>& ranks_;
  std::int64_t first_ns_ = 0;
  std::string lines_;
  std::map<std::string, CallEvents> calls_;
  int num_arrows_ = 0;
};

}  // namespace

std::string chrome_trace(const std::vector<RankTrace>& ranks) {
  return Document(ranks).text();
}

}  // namespace orthant::trace
