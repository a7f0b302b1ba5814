#include "orthant/launch/node_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <sstream>
#include <string_view>

#include "orthant/base/error.h"
#include "orthant/base/regular_file.h"

namespace orthant::launch {
namespace {

constexpr std::size_t kMostHosts = 100'000;

// Reads one whole text as a number; -1 when it is none.
int number_of(std::string_view text) {
  int value = -1;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && rest == text.data() + text.size() ? value : -1;
}

// Splits at commas that are not inside brackets.
std::vector<std::string_view> split_outside_brackets(std::string_view text) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && depth == 0)) {
      parts.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    } else if (text[i] == '[') {
      ++depth;
    } else if (text[i] == ']') {
      --depth;
    }
  }
  return parts;
}

// "01-03" as 01, 02, 03: numbers keep the width of the first. False when the range is broken.
bool append_range(std::string_view range, std::vector<std::string>& numbers) {
  const auto dash = range.find('-');
  const auto first_text = range.substr(0, dash);
  const int first = number_of(first_text);
  const int last = dash == std::string_view::npos ? first : number_of(range.substr(dash + 1));
  if (first < 0 || last < first || static_cast<std::size_t>(last - first) >= kMostHosts) return false;
  for (int i = first; i <= last; ++i) numbers.push_back(fmt::format("{:0{}}", i, first_text.size()));
  return true;
}

// Every host of one part, which may have several brackets: the last bracket varies fastest. False when it is broken.
bool append_hosts(std::string_view part, std::vector<std::string>& hosts) {
  std::vector<std::string> names{""};
  while (!part.empty()) {
    const auto open = part.find('[');
    const auto close = part.find(']');
    for (auto& name : names) name += part.substr(0, open);
    if (open == std::string_view::npos) {
      if (close != std::string_view::npos) return false;
      break;
    }
    if (close == std::string_view::npos || close < open) return false;
    std::vector<std::string> numbers;
    for (const auto range : split_outside_brackets(part.substr(open + 1, close - open - 1))) {
      if (!append_range(range, numbers)) return false;
    }
    if (names.size() * numbers.size() > kMostHosts) return false;
    std::vector<std::string> longer;
    for (const auto& name : names) {
      for (const auto& number : numbers) longer.push_back(name + number);
    }
    names = std::move(longer);
    part.remove_prefix(close + 1);
  }
  if (names.front().empty()) return false;
  hosts.insert(hosts.end(), names.begin(), names.end());
  return true;
}

}  // namespace

std::vector<std::string> expand_node_list(const std::string& text, const std::string& variable) {
  std::vector<std::string> hosts;
  for (const auto part : split_outside_brackets(text)) {
    if (!append_hosts(part, hosts)) {
      throw ConfigError(fmt::format("{}='{}' is not a list of hosts", variable, text),
                        {.remedy = "name the first host with --rendezvous HOST:PORT"});
    }
  }
  return hosts;
}

std::vector<int> expand_tasks_per_node(const std::string& text, const std::string& variable) {
  std::vector<int> counts;
  for (const auto part : split_outside_brackets(text)) {
    const auto open = part.find("(x");
    const int count = number_of(part.substr(0, open));
    int repeat = 1;
    if (open != std::string_view::npos) {
      repeat = part.ends_with(')') ? number_of(part.substr(open + 2, part.size() - open - 3)) : -1;
    }
    if (count < 1 || repeat < 1 || static_cast<std::size_t>(repeat) > kMostHosts) {
      throw ConfigError(fmt::format("{}='{}' is not a list of task counts such as 4(x2),3", variable, text));
    }
    counts.insert(counts.end(), repeat, count);
  }
  return counts;
}

std::vector<std::string> read_node_file(const std::string& path, const std::string& variable) {
  constexpr std::int64_t kMostBytes = std::int64_t{16} << 20;
  const auto [text, problem] = read_regular_file(path, {.max_bytes = kMostBytes});
  auto words = split_words(text);
  if (problem || words.empty()) {
    throw ConfigError(
        fmt::format("{}='{}' cannot be read or names no host{}{}", variable, path, problem ? ": " : "", problem.text),
        {.remedy = "name the first host with --rendezvous HOST:PORT"});
  }
  return words;
}

std::vector<std::string> split_words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::vector<std::string> different_hosts(const std::vector<std::string>& words) {
  std::vector<std::string> hosts;
  std::set<std::string> seen;
  for (const auto& word : words) {
    if (seen.insert(word).second) hosts.push_back(word);
  }
  return hosts;
}

std::vector<std::string> lsf_compute_hosts(const std::vector<std::string>& words) {
  auto hosts = different_hosts(words);
  const auto times = [&](const std::string& host) { return std::count(words.begin(), words.end(), host); };
  if (hosts.size() > 1 && times(hosts.front()) == 1 &&
      std::all_of(hosts.begin() + 1, hosts.end(), [&](const auto& host) { return times(host) > 1; })) {
    hosts.erase(hosts.begin());
  }
  return hosts;
}

}  // namespace orthant::launch
