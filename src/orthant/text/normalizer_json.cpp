// The normalizer of a tokenizer.json as a list of rules.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "orthant/base/base64.h"
#include "orthant/base/nearest.h"
#include "orthant/text/charsmap.h"
#include "orthant/text/json_section.h"
#include "orthant/text/tokenizer_json.h"

namespace orthant {
namespace {

constexpr std::size_t kMaxRules = 64;

NormalizerRulePtr read_replace(const JsonSection& section) {
  const auto pattern = section.object("pattern");
  if (const auto text = pattern.find_text("String"); text && text->empty()) {
    pattern.fail("String", "is empty", "give the text to replace");
  }
  return make_replace(read_pattern(section), section.text("content"), pattern.value().dump());
}

NormalizerRulePtr read_precompiled(const JsonSection& section) {
  const auto bytes = bytes_of_base64(section.text("precompiled_charsmap"));
  if (!bytes) section.fail("precompiled_charsmap", "is not base64", "export the tokenizer once more");
  return make_precompiled(std::make_shared<const Charsmap>(*bytes, section.source()));
}

NormalizerRulePtr read_rule(const JsonSection& section) {
  static const std::vector<std::string> kKnown = {"NFC",          "NFD",         "NFKC",    "NFKD",
                                                  "Lowercase",    "Prepend",     "Replace", "Strip",
                                                  "StripAccents", "Precompiled", "Sequence"};
  const auto type = section.text("type");
  if (type == "NFC") return make_normal_form(NormalForm::nfc);
  if (type == "NFD") return make_normal_form(NormalForm::nfd);
  if (type == "NFKC") return make_normal_form(NormalForm::nfkc);
  if (type == "NFKD") return make_normal_form(NormalForm::nfkd);
  if (type == "Lowercase") return make_lowercase();
  if (type == "Prepend") return make_prepend(section.text("prepend"));
  if (type == "Replace") return read_replace(section);
  if (type == "Strip") return make_strip(section.flag("strip_left", true), section.flag("strip_right", true));
  if (type == "StripAccents") return make_strip_accents();
  if (type == "Precompiled") return read_precompiled(section);
  section.fail("type", fmt::format("is \"{}\"", type), did_you_mean(type, kKnown));
}

void read_rules(const JsonSection& section, std::vector<NormalizerRulePtr>& rules) {
  if (section.text("type") == "Sequence") {
    for (const auto& inner : section.objects("normalizers")) read_rules(inner, rules);
    return;
  }
  if (rules.size() == kMaxRules) section.fail("type", fmt::format("is rule {}", kMaxRules + 1), "use fewer rules");
  rules.push_back(read_rule(section));
}

}  // namespace

TextNormalizer read_normalizer(const JsonSection& root) {
  std::vector<NormalizerRulePtr> rules;
  if (root.has("normalizer")) read_rules(root.object("normalizer"), rules);
  return TextNormalizer(std::move(rules));
}

}  // namespace orthant
