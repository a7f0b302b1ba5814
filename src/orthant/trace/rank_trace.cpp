#include "orthant/trace/rank_trace.h"

#include <fmt/format.h>

#include <cstring>
#include <map>

#include "orthant/base/error.h"

namespace orthant::trace {
namespace {

void put_text(std::string& bytes, std::string_view text) {
  const auto size = static_cast<std::uint32_t>(text.size());
  bytes.append(reinterpret_cast<const char*>(&size), sizeof size);
  bytes.append(text);
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <typename Number>
  Number number() {
    Number found;
    std::memcpy(&found, take(sizeof found).data(), sizeof found);
    return found;
  }
  std::string text() { return std::string(take(number<std::uint32_t>())); }
  std::string_view take(std::size_t size) {
    if (size > bytes_.size() - at_) throw InternalError("the events of a rank end early");
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }

 private:
  std::string_view bytes_;
  std::size_t at_ = 0;
};

template <typename Act>
void walk(const std::vector<NamedEvent>& events, const Act& act) {
  std::map<int, std::vector<int>> open;  // by row, the outermost first
  for (std::size_t i = 0; i < events.size(); ++i) {
    auto& around = open[events[i].row];
    while (!around.empty() && events[static_cast<std::size_t>(around.back())].end_ns < events[i].end_ns) {
      around.pop_back();
    }
    while (!around.empty() && events[static_cast<std::size_t>(around.back())].end_ns <= events[i].begin_ns &&
           events[i].end_ns > events[i].begin_ns) {
      around.pop_back();
    }
    act(static_cast<int>(i), around.empty() ? -1 : around.back());
    around.push_back(static_cast<int>(i));
  }
}

}  // namespace

std::string packed(const RankTrace& trace) {
  std::map<std::string, std::uint32_t> places;
  std::vector<const std::string*> texts;
  const auto place = [&](const std::string& text) {
    const auto [found, added] = places.emplace(text, static_cast<std::uint32_t>(texts.size()));
    if (added) texts.push_back(&found->first);
    return found->second;
  };
  std::string events;
  for (const auto& event : trace.events) {
    Event one = event;
    one.name = place(event.text);
    one.group = place(event.group_text);
    events.append(reinterpret_cast<const char*>(&one), sizeof one);
  }
  std::string bytes;
  const auto put = [&](auto number) { bytes.append(reinterpret_cast<const char*>(&number), sizeof number); };
  put(trace.rank);
  put(trace.clock_error_ns);
  put_text(bytes, trace.place);
  put(static_cast<std::uint64_t>(texts.size()));
  for (const auto* text : texts) put_text(bytes, *text);
  put(static_cast<std::uint64_t>(trace.events.size()));
  return bytes + events;
}

RankTrace unpacked(std::string_view bytes) {
  Reader reader(bytes);
  RankTrace trace;
  trace.rank = reader.number<int>();
  trace.clock_error_ns = reader.number<std::int64_t>();
  trace.place = reader.text();
  std::vector<std::string> texts(reader.number<std::uint64_t>());
  for (auto& text : texts) text = reader.text();
  trace.events.resize(reader.number<std::uint64_t>());
  for (auto& event : trace.events) {
    static_cast<Event&>(event) = reader.number<Event>();
    event.text = texts.at(event.name);
    event.group_text = texts.at(event.group);
  }
  return trace;
}

std::vector<int> parents(const std::vector<NamedEvent>& events) {
  std::vector<int> found(events.size(), -1);
  walk(events, [&](int event, int around) { found[static_cast<std::size_t>(event)] = around; });
  return found;
}

std::vector<double> own_seconds(const std::vector<NamedEvent>& events) {
  std::vector<double> own;
  for (const auto& event : events) own.push_back(event.seconds());
  const auto around = parents(events);
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (around[i] >= 0) own[static_cast<std::size_t>(around[i])] -= events[i].seconds();
  }
  return own;
}

std::vector<NamedEvent> of_steps(const std::vector<NamedEvent>& events) {
  std::vector<NamedEvent> kept;
  std::int64_t work_ends = 0;
  for (const auto& event : events) {
    if (event.kind == EventKind::phase && event.text == "work") work_ends = event.end_ns;
    if (event.kind == EventKind::phase || event.begin_ns < work_ends) kept.push_back(event);
  }
  return kept;
}

bool is_message(const NamedEvent& event) {
  return event.text == "send" || event.text == "receive";
}

std::string call_key(const NamedEvent& event, int rank) {
  if (!is_message(event)) return fmt::format("{}#{}", event.group_text, event.sequence);
  const bool sends = event.text == "send";
  return fmt::format("{}#{} {}>{}:{}", event.group_text, event.sequence, sends ? rank : event.peer,
                     sends ? event.peer : rank, event.tag);
}

}  // namespace orthant::trace
