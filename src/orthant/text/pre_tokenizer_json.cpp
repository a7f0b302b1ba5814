// The pre-tokenizer of a tokenizer.json as a list of steps.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "orthant/base/nearest.h"
#include "orthant/text/json_section.h"
#include "orthant/text/regex_splitter.h"
#include "orthant/text/shown.h"
#include "orthant/text/tokenizer_json.h"

namespace orthant {
namespace {

using Step = PreTokenizer::Step;

template <typename Value>
Value lookup(const JsonSection& section, std::string_view key, const std::map<std::string, Value>& known) {
  const auto name = section.text(key);
  if (const auto place = known.find(name); place != known.end()) return place->second;
  std::vector<std::string> names;
  for (const auto& [candidate, value] : known) names.push_back(candidate);
  section.fail(key, fmt::format("is \"{}\"", name), did_you_mean(name, names));
}

SplitBehavior read_behavior(const JsonSection& section) {
  static const std::map<std::string, SplitBehavior> kKnown = {
      {"Removed", SplitBehavior::removed},
      {"Isolated", SplitBehavior::isolated},
      {"MergedWithPrevious", SplitBehavior::merged_with_previous},
      {"MergedWithNext", SplitBehavior::merged_with_next},
      {"Contiguous", SplitBehavior::contiguous}};
  return lookup(section, "behavior", kKnown);
}

Step read_split(const JsonSection& section) {
  Step step;
  const auto pattern = section.object("pattern");
  step.splitter = read_pattern(section);
  step.behavior = read_behavior(section);
  step.invert = section.flag("invert", false);
  step.description =
      fmt::format("Split {} {} {}", pattern.value().dump(), static_cast<int>(step.behavior), step.invert);
  return step;
}

enum class PrependScheme { never, first, always };

// Old files say add_prefix_space instead.
PrependScheme read_scheme(const JsonSection& section) {
  static const std::map<std::string, PrependScheme> kKnown = {
      {"never", PrependScheme::never}, {"first", PrependScheme::first}, {"always", PrependScheme::always}};
  const bool prefix = section.flag("add_prefix_space", true);
  if (!section.has("prepend_scheme")) return prefix ? PrependScheme::always : PrependScheme::never;
  const auto scheme = lookup(section, "prepend_scheme", kKnown);
  if (!prefix && scheme != PrependScheme::never) {
    section.fail("add_prefix_space", "is false, but prepend_scheme is not \"never\"", "keep prepend_scheme alone");
  }
  return scheme;
}

// `normalizer` and the steps before it must leave the begin of a text where it is when only that gets a space.
Step read_metaspace(const JsonSection& section, bool is_first, const TextNormalizer& normalizer) {
  const auto space = read_character(section, "replacement");
  const auto scheme = read_scheme(section);
  const bool split = section.flag("split", true);
  if (scheme == PrependScheme::first && (!is_first || !normalizer.keeps_begin())) {
    section.fail("prepend_scheme",
                 fmt::format("is \"first\" behind {}", is_first ? "a normalizer that may take the begin of a text away"
                                                                : "another step that cuts the text"),
                 "set it to \"always\" or \"never\"");
  }
  Step step{.prefix_space = scheme != PrependScheme::never,
            .space = space,
            .prefix_at_begin = scheme == PrependScheme::first,
            .behavior = SplitBehavior::merged_with_next,
            .description = fmt::format("Metaspace {} {} {}", space, static_cast<int>(scheme), split)};
  if (split) step.splitter = make_literal_splitter(space);
  return step;
}

Step read_digits(const JsonSection& section) {
  const bool individual = section.flag("individual_digits", false);
  const auto is_digit = [](char32_t c) { return unicode::is_number(unicode::category(c)); };
  return {.splitter = make_character_splitter(is_digit),
          .behavior = individual ? SplitBehavior::isolated : SplitBehavior::contiguous,
          .description = fmt::format("Digits {}", individual)};
}

// Every word and every run of signs, without the white space between; or just without white space.
Step white_space_step(bool signs) {
  if (!signs) {
    return {.splitter = make_character_splitter(unicode::is_space),
            .behavior = SplitBehavior::removed,
            .description = "WhitespaceSplit"};
  }
  return {.splitter = make_word_and_sign_splitter(), .behavior = SplitBehavior::removed, .description = "Whitespace"};
}

// Steps are added to `steps`; ByteLevel must be the last of all.
void read_steps(const JsonSection& section, const TextNormalizer& normalizer, std::vector<Step>& steps, bool& ended) {
  static const std::vector<std::string> kKnown = {"ByteLevel", "Split",      "Sequence",       "Metaspace",
                                                  "Digits",    "Whitespace", "WhitespaceSplit"};
  const auto type = section.text("type");
  if (ended) section.fail("type", fmt::format("is \"{}\" after ByteLevel", type), "ByteLevel must be the last step");
  if (type == "Sequence") {
    for (const auto& inner : section.objects("pretokenizers")) read_steps(inner, normalizer, steps, ended);
  } else if (type == "ByteLevel") {
    steps.push_back(byte_level_step(section.flag("add_prefix_space", true), section.flag("use_regex", true)));
    ended = true;
  } else if (type == "Split") {
    steps.push_back(read_split(section));
  } else if (type == "Metaspace") {
    steps.push_back(read_metaspace(section, steps.empty(), normalizer));
  } else if (type == "Digits") {
    steps.push_back(read_digits(section));
  } else if (type == "Whitespace" || type == "WhitespaceSplit") {
    steps.push_back(white_space_step(type == "Whitespace"));
  } else {
    section.fail("type", fmt::format("is \"{}\", which is not read", type), did_you_mean(type, kKnown));
  }
}

}  // namespace

PreTokenizer::Step byte_level_step(bool prefix_space, bool words) {
  Step step{.prefix_space = prefix_space, .description = fmt::format("ByteLevel {} {}", prefix_space, words)};
  if (words) step.splitter = std::make_shared<const WordSplitter>(WordSplitter::gpt2());
  return step;
}

std::shared_ptr<const Splitter> read_pattern(const JsonSection& section) {
  const auto pattern = section.object("pattern");
  if (!pattern.has("Regex")) return make_literal_splitter(pattern.text("String"));
  const auto regex = pattern.text("Regex");
  if (auto words = WordSplitter::of_regex(regex)) return std::make_shared<const WordSplitter>(std::move(*words));
  return make_regex_splitter(regex, section.source());
}

std::string read_character(const JsonSection& section, std::string_view key) {
  const auto text = section.text(key);
  if (text.empty() || static_cast<std::size_t>(unicode::decode(text, 0).length) != text.size()) {
    section.fail(key, fmt::format("is {}", shown(text)), "give one character");
  }
  return text;
}

ReadPreTokenizer read_pre_tokenizer(const JsonSection& root, const TextNormalizer& normalizer) {
  std::vector<Step> steps;
  bool byte_level = false;
  if (root.has("pre_tokenizer")) read_steps(root.object("pre_tokenizer"), normalizer, steps, byte_level);
  return {PreTokenizer(std::move(steps)), byte_level};
}

}  // namespace orthant
