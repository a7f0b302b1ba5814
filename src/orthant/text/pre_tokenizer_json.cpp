// The normalizer and the pre-tokenizer of a tokenizer.json as lists of steps.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "orthant/base/nearest.h"
#include "orthant/text/json_section.h"
#include "orthant/text/regex_splitter.h"
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

std::shared_ptr<const Splitter> regex_splitter(std::string_view regex, const std::string& source) {
  if (auto words = WordSplitter::of_regex(regex)) return std::make_shared<const WordSplitter>(std::move(*words));
  return make_regex_splitter(regex, source);
}

Step read_split(const JsonSection& section) {
  Step step;
  const auto pattern = section.object("pattern");
  if (pattern.has("Regex")) {
    step.splitter = regex_splitter(pattern.text("Regex"), section.source());
  } else {
    step.splitter = make_literal_splitter(pattern.text("String"));
  }
  step.behavior = read_behavior(section);
  step.invert = section.flag("invert", false);
  step.description =
      fmt::format("Split {} {} {}", pattern.value().dump(), static_cast<int>(step.behavior), step.invert);
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
void read_steps(const JsonSection& section, std::vector<Step>& steps, bool& ended) {
  static const std::vector<std::string> kKnown = {"ByteLevel", "Split",      "Sequence",
                                                  "Digits",    "Whitespace", "WhitespaceSplit"};
  const auto type = section.text("type");
  if (ended) section.fail("type", fmt::format("is \"{}\" after ByteLevel", type), "ByteLevel must be the last step");
  if (type == "Sequence") {
    for (const auto& inner : section.objects("pretokenizers")) read_steps(inner, steps, ended);
  } else if (type == "ByteLevel") {
    steps.push_back(byte_level_step(section.flag("add_prefix_space", true), section.flag("use_regex", true)));
    ended = true;
  } else if (type == "Split") {
    steps.push_back(read_split(section));
  } else if (type == "Digits") {
    steps.push_back(read_digits(section));
  } else if (type == "Whitespace" || type == "WhitespaceSplit") {
    steps.push_back(white_space_step(type == "Whitespace"));
  } else {
    section.fail("type", fmt::format("is \"{}\", which is not read", type), did_you_mean(type, kKnown));
  }
}

void read_normalizer_steps(const JsonSection& section, std::vector<NormalizerStep>& steps) {
  static const std::map<std::string, NormalizerStep> kKnown = {{"NFC", NormalizerStep::nfc},
                                                               {"NFD", NormalizerStep::nfd},
                                                               {"NFKC", NormalizerStep::nfkc},
                                                               {"NFKD", NormalizerStep::nfkd},
                                                               {"Lowercase", NormalizerStep::lowercase}};
  if (section.text("type") == "Sequence") {
    for (const auto& inner : section.objects("normalizers")) read_normalizer_steps(inner, steps);
  } else {
    steps.push_back(lookup(section, "type", kKnown));
  }
}

}  // namespace

PreTokenizer::Step byte_level_step(bool prefix_space, bool words) {
  Step step{.prefix_space = prefix_space, .description = fmt::format("ByteLevel {} {}", prefix_space, words)};
  if (words) step.splitter = std::make_shared<const WordSplitter>(WordSplitter::gpt2());
  return step;
}

PreTokenizer read_pre_tokenizer(const JsonSection& root) {
  std::vector<Step> steps;
  bool ended = false;
  if (root.has("pre_tokenizer")) read_steps(root.object("pre_tokenizer"), steps, ended);
  if (!ended) {
    root.fail("pre_tokenizer", "has no ByteLevel step, so that the BPE is not byte-level",
              "only byte-level BPE (GPT-2, RoBERTa, Llama 3, ...) and WordPiece are read");
  }
  return PreTokenizer(std::move(steps));
}

TextNormalizer read_normalizer(const JsonSection& root) {
  std::vector<NormalizerStep> steps;
  if (root.has("normalizer")) read_normalizer_steps(root.object("normalizer"), steps);
  return TextNormalizer(std::move(steps));
}

}  // namespace orthant
