#include "orthant/schedule/stage_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "orthant/base/error.h"
#include "orthant/base/regular_file.h"

namespace orthant {
namespace {

// Larger numbers in a file are taken for a mistake.
constexpr int kMaxIndex = 1'000'000;

std::optional<int> parse_index(std::string_view digits) {
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  int index = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (error != std::errc() || index > kMaxIndex) return std::nullopt;
  return index;
}

std::optional<StageKind> parse_kind(std::string_view text) {
  for (const StageKind kind : {StageKind::F, StageKind::B, StageKind::W, StageKind::BW}) {
    if (text == stage_kind_name(kind)) return kind;
  }
  return std::nullopt;
}

// A word of a line and its number, from 1.
struct Word {
  std::string_view text;
  int number = 0;
};

std::vector<Word> words_of(std::string_view line) {
  constexpr std::string_view kSeparators = " \t\r,";
  line = line.substr(0, line.find('#'));
  std::vector<Word> words;
  for (std::size_t begin = 0; (begin = line.find_first_not_of(kSeparators, begin)) != std::string_view::npos;) {
    const std::size_t end = std::min(line.find_first_of(kSeparators, begin), line.size());
    words.push_back({line.substr(begin, end - begin), static_cast<int>(words.size()) + 1});
    begin = end;
  }
  return words;
}

std::vector<StageAction> parse_actions(const std::vector<Word>& words, std::string_view source, int line_number) {
  std::vector<StageAction> actions;
  if (words.size() == 1 && words[0].text == "-") return actions;
  for (const Word& word : words) {
    const auto action = parse_action(word.text);
    if (!action) {
      throw ConfigError(
          fmt::format("{} line {}, word {}: \"{}\" is no stage action", source, line_number, word.number, word.text),
          {.remedy = "write stage, kind (F, B, W or BW) and microbatch, as in 2BW5"});
    }
    actions.push_back(*action);
  }
  return actions;
}

}  // namespace

std::string_view stage_kind_name(StageKind kind) {
  switch (kind) {
    case StageKind::F:
      return "F";
    case StageKind::B:
      return "B";
    case StageKind::W:
      return "W";
    case StageKind::BW:
      return "BW";
  }
  throw InternalError(fmt::format("stage kind {} has no name", static_cast<int>(kind)));
}

std::string to_string(const StageAction& action) {
  return fmt::format("{}{}{}", action.stage, stage_kind_name(action.kind), action.microbatch);
}

std::optional<StageAction> parse_action(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789";
  const std::size_t kind_begin = std::min(text.find_first_not_of(kDigits), text.size());
  const std::size_t kind_end = std::min(text.find_first_of(kDigits, kind_begin), text.size());
  const auto stage = parse_index(text.substr(0, kind_begin));
  const auto kind = parse_kind(text.substr(kind_begin, kind_end - kind_begin));
  const auto microbatch = parse_index(text.substr(kind_end));
  if (!stage || !kind || !microbatch) return std::nullopt;
  return StageAction{*stage, *kind, *microbatch};
}

bool is_forward_only(const StageTable& table) {
  return std::ranges::all_of(table.actions, [](const std::vector<StageAction>& actions) {
    return std::ranges::all_of(actions, [](const StageAction& action) { return action.kind == StageKind::F; });
  });
}

std::vector<int> stage_pp_coordinates(const StageTable& table) {
  std::vector<int> pp_coordinates(static_cast<std::size_t>(table.num_stages), -1);
  for (std::size_t pp_coordinate = 0; pp_coordinate < table.actions.size(); ++pp_coordinate) {
    for (const StageAction& action : table.actions[pp_coordinate]) {
      int& home = pp_coordinates.at(static_cast<std::size_t>(action.stage));
      if (home < 0) home = static_cast<int>(pp_coordinate);
    }
  }
  const auto missing = std::ranges::find(pp_coordinates, -1);
  if (missing != pp_coordinates.end()) {
    throw ConfigError(
        fmt::format("no pp coordinate runs stage {} of {}", missing - pp_coordinates.begin(), table.num_stages),
        {.remedy = "number the stages from 0 without gaps, and give each to a pp coordinate"});
  }
  return pp_coordinates;
}

std::string to_text(const StageTable& table) {
  std::string text;
  for (const auto& actions : table.actions) {
    if (actions.empty()) text += '-';
    for (std::size_t i = 0; i < actions.size(); ++i) {
      if (i > 0) text += ' ';
      text += to_string(actions[i]);
    }
    text += '\n';
  }
  return text;
}

StageTable parse_table(std::string_view text, std::string_view source) {
  StageTable table;
  int line_number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::vector<Word> words = words_of(text.substr(begin, end - begin));
    ++line_number;
    if (!words.empty()) table.actions.push_back(parse_actions(words, source, line_number));
    begin = end + 1;
  }
  for (const auto& actions : table.actions) {
    for (const StageAction& action : actions) {
      table.num_stages = std::max(table.num_stages, action.stage + 1);
      table.num_microbatches = std::max(table.num_microbatches, action.microbatch + 1);
    }
  }
  if (table.num_stages == 0) {
    throw ConfigError(fmt::format("{} holds no stage action", source),
                      {.remedy = "write one line per pp coordinate, as in \"0F0 0BW0\""});
  }
  return table;
}

StageTable read_table(const std::string& path) {
  constexpr std::int64_t kMostBytes = 256 << 20;
  const auto [text, problem] = read_regular_file(path, {.max_bytes = kMostBytes});
  if (problem) {
    throw ConfigError(fmt::format("schedule file {} cannot be read: {}", path, problem.text),
                      {.remedy = "name a file that exists and may be read, one line of actions per pp coordinate"});
  }
  return parse_table(text, path);
}

}  // namespace orthant
