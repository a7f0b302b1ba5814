#include "orthant/schedule/message_queues.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <set>
#include <tuple>

#include "orthant/base/error.h"
#include "orthant/base/index.h"

namespace orthant {
namespace {

bool is_receive(const Action& action) {
  return action.kind == ActionKind::receive || action.kind == ActionKind::receive_gradient;
}

bool is_send(const Action& action) {
  return action.kind == ActionKind::send || action.kind == ActionKind::send_gradient;
}

// The numbers of communicators and contents, the same for all ranks.
class Names {
 public:
  Names(const GraphSpec& graph, const QueueRules& rules) : graph_(graph), rules_(rules) {}

  int rank_of(int pp, int replica) const { return pp * rules_.replicas + replica; }

  int communicator(const Channel& channel, int replica, int pp_degree) {
    const int low = std::min(channel.from, channel.to);
    const int high = std::max(channel.from, channel.to);
    if (rules_.carrier == MessageCarrier::channel) {
      return number({0, channel.from, channel.to, channel.gradients ? 1 : 0, replica},
                    {rank_of(low, replica), rank_of(high, replica)});
    }
    if (rules_.carrier == MessageCarrier::pair) {
      return number({1, low, high, 0, replica}, {rank_of(low, replica), rank_of(high, replica)});
    }
    std::vector<int> members;
    for (int pp = 0; pp < pp_degree; ++pp) members.push_back(rank_of(pp, replica));
    return number({2, 0, 0, 0, replica}, members);
  }

  // Of the ranks of a pp coordinate, for parameters or gradients.
  int collective(int pp, bool gradients) {
    std::vector<int> members;
    for (int replica = 0; replica < rules_.replicas; ++replica) members.push_back(rank_of(pp, replica));
    return number({3, pp, gradients ? 1 : 0, 0, 0}, members);
  }

  int message(const Action& action, bool header) {
    auto text = fmt::format("{}{} m{}", header ? "header of " : "", graph_.values[to_index(action.value)].name,
                            action.microbatch);
    if (action.consumer >= 0) {
      text = fmt::format("gradient of {} of {}", text, graph_.units[to_index(action.consumer)].name);
    }
    return content(text);
  }

  int content(const std::string& text) {
    const auto [place, added] = contents_.emplace(text, static_cast<int>(texts_.size()));
    if (added) texts_.push_back(text);
    return place->second;
  }

  void tell(QueuePrograms& programs) && {
    programs.communicators = std::move(members_);
    programs.contents = std::move(texts_);
  }

 private:
  int number(const std::array<int, 5>& key, const std::vector<int>& members) {
    const auto [place, added] = numbers_.emplace(key, static_cast<int>(members_.size()));
    if (added) members_.push_back(members);
    return place->second;
  }

  const GraphSpec& graph_;
  const QueueRules& rules_;
  std::map<std::array<int, 5>, int> numbers_;
  std::vector<std::vector<int>> members_;
  std::map<std::string, int> contents_;
  std::vector<std::string> texts_;
};

// One rank's list as StageLinks and the executor carry it out.
class ProgramOfRank {
 public:
  ProgramOfRank(const std::vector<Action>& actions, const GraphSpec& graph, const QueueRules& rules, Names& names,
                int pp, int replica, int pp_degree)
      : actions_(actions),
        graph_(graph),
        rules_(rules),
        names_(names),
        pp_(pp),
        replica_(replica),
        pp_degree_(pp_degree) {}

  QueueProgram run() {
    for (const Action& action : actions_) {
      if (is_receive(action)) incoming_[channel_of(action, pp_)].waiting.push_back(&action);
    }
    for (auto& [channel, incoming] : incoming_) post_ahead(incoming);
    for (const Action& action : actions_) act(action);
    for (int call = 0; call < static_cast<int>(program_.calls.size()); ++call) await(call);
    return std::move(program_);
  }

 private:
  struct Incoming {
    std::deque<const Action*> waiting;  // to be posted
    std::deque<int> posted;             // calls
  };

  void act(const Action& action) {
    if (is_receive(action)) return receive(action);
    if (is_send(action)) return send(action);
    switch (action.kind) {
      case ActionKind::gather:
        gathers_[action.unit] = start(names_.collective(pp_, false), {{.content = unit_content("gather", action)}});
        return;
      case ActionKind::reduce:
        start(names_.collective(pp_, true), {{.content = unit_content("reduce", action)}});
        return;
      case ActionKind::free:
        return;
      default:
        if (const auto gather = gathers_.find(action.unit); gather != gathers_.end()) await(gather->second);
        program_.steps.push_back({HostStep::Kind::compute, -1});
    }
  }

  int unit_content(const char* what, const Action& action) {
    return names_.content(fmt::format("{} {} m{}", what, graph_.units[to_index(action.unit)].name, action.microbatch));
  }

  bool is_opaque(const Action& action) const { return graph_.values[to_index(action.value)].opaque; }

  int start_message(const Action& action, bool sends, bool header) {
    const int communicator = names_.communicator(channel_of(action, pp_), replica_, pp_degree_);
    return start(
        communicator,
        {{.peer = names_.rank_of(action.peer, replica_), .sends = sends, .content = names_.message(action, header)}});
  }

  void send(const Action& action) {
    if (is_opaque(action)) start_message(action, true, true);
    start_message(action, true, false);
  }

  void post_ahead(Incoming& incoming) {
    while (incoming.posted.size() < rules_.posted_ahead && !incoming.waiting.empty()) {
      const Action& action = *incoming.waiting.front();
      if (is_opaque(action) && !incoming.posted.empty()) return;
      post(incoming);
      if (is_opaque(action)) return;
    }
  }

  void post(Incoming& incoming) {
    const Action& action = *incoming.waiting.front();
    incoming.waiting.pop_front();
    incoming.posted.push_back(start_message(action, false, is_opaque(action)));
  }

  void receive(const Action& action) {
    auto& incoming = incoming_[channel_of(action, pp_)];
    if (incoming.posted.empty()) post(incoming);
    const int call = incoming.posted.front();
    incoming.posted.pop_front();
    if (!is_opaque(action)) post_ahead(incoming);
    await(call);
    if (!is_opaque(action)) return;
    await(start_message(action, false, false));
    post_ahead(incoming);
  }

  // Joined with the call before it where nothing lies between them.
  int start(int communicator, std::vector<QueuedPart> parts) {
    auto& calls = program_.calls;
    if (rules_.joins_calls && !program_.steps.empty() && program_.steps.back().kind == HostStep::Kind::start &&
        calls.back().communicator == communicator && calls.back().parts.front().peer >= 0) {
      calls.back().parts.insert(calls.back().parts.end(), parts.begin(), parts.end());
    } else {
      program_.steps.push_back({HostStep::Kind::start, static_cast<int>(calls.size())});
      calls.push_back({communicator, std::move(parts)});
    }
    return static_cast<int>(calls.size()) - 1;
  }

  void await(int call) {
    if (awaited_.insert(call).second) program_.steps.push_back({HostStep::Kind::await, call});
  }

  const std::vector<Action>& actions_;
  const GraphSpec& graph_;
  const QueueRules& rules_;
  Names& names_;
  int pp_;
  int replica_;
  int pp_degree_;
  std::map<Channel, Incoming> incoming_;
  std::map<int, int> gathers_;  // unit -> its last gather
  std::set<int> awaited_;
  QueueProgram program_;
};

// The calls of all ranks as a graph of what comes before what: it has no cycle exactly when every call ends. Three
// kinds of moments: a call starts, a call ends, a rank has done a step.
class QueueProof {
 public:
  explicit QueueProof(const QueuePrograms& programs) : programs_(programs) {
    int count = 0;
    for (const auto& rank : programs.ranks) {
      first_call_.push_back(count);
      count += static_cast<int>(rank.calls.size());
    }
    num_calls_ = count;
    for (const auto& rank : programs.ranks) {
      first_step_.push_back(2 * num_calls_ + num_steps_);
      num_steps_ += static_cast<int>(rank.steps.size());
    }
    before_.resize(to_index(2 * num_calls_ + num_steps_));
  }

  void run() {
    for (int rank = 0; rank < static_cast<int>(programs_.ranks.size()); ++rank) order_of_rank(rank);
    match_messages();
    match_collectives();
    find_cycle();
  }

 private:
  struct Place {
    int rank = -1;
    int call = -1;
    int content = -1;
  };

  int start_of(int rank, int call) const { return 2 * (first_call_[to_index(rank)] + call); }
  int end_of(int rank, int call) const { return start_of(rank, call) + 1; }
  int step_of(int rank, int step) const { return first_step_[to_index(rank)] + step; }
  void comes_before(int earlier, int later) { before_[to_index(later)].push_back(earlier); }

  // Queues and the stream of computation.
  void order_of_rank(int rank) {
    const auto& program = programs_.ranks[to_index(rank)];
    std::map<int, int> last;  // communicator -> call
    for (int step = 0; step < static_cast<int>(program.steps.size()); ++step) {
      const auto& [kind, call] = program.steps[to_index(step)];
      if (step > 0) comes_before(step_of(rank, step - 1), step_of(rank, step));
      if (kind == HostStep::Kind::await) comes_before(end_of(rank, call), step_of(rank, step));
      if (kind != HostStep::Kind::start) continue;
      const int communicator = program.calls[to_index(call)].communicator;
      comes_before(start_of(rank, call), end_of(rank, call));
      comes_before(step_of(rank, step), start_of(rank, call));
      const auto [place, is_first] = last.emplace(communicator, call);
      if (!is_first) comes_before(end_of(rank, place->second), start_of(rank, call));
      place->second = call;
    }
  }

  template <typename See>
  void each_part(const See& see) const {
    for (int rank = 0; rank < static_cast<int>(programs_.ranks.size()); ++rank) {
      const auto& calls = programs_.ranks[to_index(rank)].calls;
      for (int call = 0; call < static_cast<int>(calls.size()); ++call) {
        for (const auto& part : calls[to_index(call)].parts) see(rank, call, calls[to_index(call)].communicator, part);
      }
    }
  }

  // The n-th send of a directed pair of a communicator meets the n-th receive.
  void match_messages() {
    struct Line {
      std::vector<Place> sends;
      std::vector<Place> receives;
    };
    std::map<std::tuple<int, int, int>, Line> lines;  // communicator, from, to
    each_part([&](int rank, int call, int communicator, const QueuedPart& part) {
      if (part.peer < 0) return;
      auto& line = part.sends ? lines[{communicator, rank, part.peer}] : lines[{communicator, part.peer, rank}];
      (part.sends ? line.sends : line.receives).push_back({rank, call, part.content});
    });
    for (const auto& [key, line] : lines) {
      for (std::size_t i = 0; i < std::min(line.sends.size(), line.receives.size()); ++i) {
        const Place& send = line.sends[i];
        const Place& receive = line.receives[i];
        if (send.content != receive.content) refuse_other(send, receive);
        comes_before(start_of(send.rank, send.call), end_of(receive.rank, receive.call));
        comes_before(start_of(receive.rank, receive.call), end_of(send.rank, send.call));
      }
      if (line.sends.size() == line.receives.size()) continue;
      const bool more_sends = line.sends.size() > line.receives.size();
      refuse_lonely(more_sends ? line.sends[line.receives.size()] : line.receives[line.sends.size()], more_sends);
    }
  }

  // The n-th collective of a communicator is the same one on all members.
  void match_collectives() {
    std::map<int, std::map<int, std::vector<Place>>> lines;  // communicator -> rank
    each_part([&](int rank, int call, int communicator, const QueuedPart& part) {
      if (part.peer < 0) lines[communicator][rank].push_back({rank, call, part.content});
    });
    for (const auto& [communicator, by_rank] : lines) {
      const auto& members = programs_.communicators[to_index(communicator)];
      const auto& first = by_rank.begin()->second;
      for (const int member : members) {
        const auto found = by_rank.find(member);
        const std::size_t count = found == by_rank.end() ? 0 : found->second.size();
        if (count != first.size()) refuse_lonely(first.empty() ? found->second.front() : first.front(), true);
        for (std::size_t i = 0; i < first.size(); ++i) {
          if (found->second[i].content != first[i].content) refuse_other(first[i], found->second[i]);
          for (const int other : members) {
            if (other == member) continue;
            comes_before(start_of(member, found->second[i].call), end_of(other, by_rank.at(other)[i].call));
          }
        }
      }
    }
  }

  // Takes away every moment that nothing is before, until none is left or the rest waits for itself.
  void find_cycle() {
    const auto count = before_.size();
    std::vector<std::vector<int>> after(count);
    std::vector<int> missing(count, 0);
    for (std::size_t moment = 0; moment < count; ++moment) {
      missing[moment] = static_cast<int>(before_[moment].size());
      for (const int earlier : before_[moment]) after[to_index(earlier)].push_back(static_cast<int>(moment));
    }
    std::vector<int> ready;
    for (std::size_t moment = 0; moment < count; ++moment) {
      if (missing[moment] == 0) ready.push_back(static_cast<int>(moment));
    }
    std::size_t passed = 0;
    for (; !ready.empty(); ++passed) {
      const int moment = ready.back();
      ready.pop_back();
      for (const int later : after[to_index(moment)]) {
        if (--missing[to_index(later)] == 0) ready.push_back(later);
      }
    }
    if (passed == count) return;
    int moment = 0;
    while (missing[to_index(moment)] == 0) ++moment;
    std::vector<int> path;
    for (; std::ranges::find(path, moment) == path.end();) {
      path.push_back(moment);
      moment =
          *std::ranges::find_if(before_[to_index(moment)], [&](int earlier) { return missing[to_index(earlier)] > 0; });
    }
    path.erase(path.begin(), std::ranges::find(path, moment));
    refuse_cycle(path);
  }

  // The call of a moment; none for a step of the computation.
  Place place_of(int moment) const {
    if (moment >= 2 * num_calls_) return {};
    const int call = moment / 2;
    const auto next = std::ranges::upper_bound(first_call_, call);
    const int rank = static_cast<int>(next - first_call_.begin()) - 1;
    return {rank, call - first_call_[to_index(rank)], -1};
  }

  std::string text(const Place& place) const {
    const auto& call = programs_.ranks[to_index(place.rank)].calls[to_index(place.call)];
    std::vector<std::string> parts;
    for (const auto& part : call.parts) {
      const auto& content = programs_.contents[to_index(part.content)];
      parts.push_back(part.peer < 0 ? content
                                    : fmt::format("{} {} {} rank {}", part.sends ? "send" : "receive", content,
                                                  part.sends ? "to" : "from", part.peer));
    }
    return fmt::format("rank {} in \"{}\"", place.rank, fmt::join(parts, ", "));
  }

  [[noreturn]] void refuse_cycle(const std::vector<int>& path) const {
    std::vector<std::string> calls;
    for (const int moment : path) {
      const Place place = place_of(moment);
      if (place.rank < 0) continue;
      auto shown = text(place);
      if (std::ranges::find(calls, shown) == calls.end()) calls.push_back(std::move(shown));
    }
    throw ConfigError(
        fmt::format("deadlock: {} wait for each other in the queues of their communicators", fmt::join(calls, ", ")),
        {.remedy = "give each direction a communicator of its own, or join the calls of a tick"});
  }

  [[noreturn]] void refuse_other(const Place& send, const Place& receive) const {
    throw ConfigError(
        fmt::format("{} meets {}: messages of one communicator match in their order", text(send), text(receive)),
        {.remedy = "receive in the order in which the peer sends, or on a communicator of its own"});
  }

  [[noreturn]] void refuse_lonely(const Place& place, bool more) const {
    throw ConfigError(fmt::format("{} {}", text(place), more ? "is never taken part in" : "is never sent"),
                      {.remedy = "let both sides make the call"});
  }

  const QueuePrograms& programs_;
  std::vector<int> first_call_;  // per rank
  std::vector<int> first_step_;
  int num_calls_ = 0;
  int num_steps_ = 0;
  std::vector<std::vector<int>> before_;  // per moment
};

}  // namespace

QueuePrograms queue_programs(const std::vector<std::vector<Action>>& lists, const GraphSpec& graph,
                             const QueueRules& rules) {
  QueuePrograms programs;
  Names names(graph, rules);
  const int pp_degree = static_cast<int>(lists.size());
  for (int pp = 0; pp < pp_degree; ++pp) {
    for (int replica = 0; replica < rules.replicas; ++replica) {
      programs.ranks.push_back(ProgramOfRank(lists[to_index(pp)], graph, rules, names, pp, replica, pp_degree).run());
    }
  }
  std::move(names).tell(programs);
  return programs;
}

void check_queues(const QueuePrograms& programs) {
  QueueProof(programs).run();
}

void validate_queues(const std::vector<std::vector<Action>>& lists, const GraphSpec& graph, const QueueRules& rules) {
  check_queues(queue_programs(lists, graph, rules));
}

std::vector<Channel> channels_of(const std::vector<std::vector<Action>>& lists) {
  std::set<Channel> channels;
  for (int pp = 0; pp < static_cast<int>(lists.size()); ++pp) {
    for (const Action& action : lists[to_index(pp)]) {
      if (is_send(action) || is_receive(action)) channels.insert(channel_of(action, pp));
    }
  }
  return {channels.begin(), channels.end()};
}

}  // namespace orthant
