// Tokenizers: the first byte chooses between a tokenizer.json of any bytes and one of a few tokenizers made in memory,
// which encode the rest. Byte-level ones must give back every byte; only the library's own errors may come out.
// ORTHANT_FUZZ_KIND names the one that every input goes to.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/base/error.h"
#include "orthant/text/byte_alphabet.h"
#include "orthant/text/tokenizer_json.h"
#include "orthant/text/word_splitter.h"
#include "orthant/text/wordpiece.h"

namespace {

using namespace orthant;
using nlohmann::json;

// All bytes and a few merges, with added tokens of every kind.
json byte_level(const json& pre_tokenizer) {
  json vocabulary = json::object();
  for (int byte = 0; byte < 256; ++byte) vocabulary[spelling_of_bytes(std::string(1, static_cast<char>(byte)))] = byte;
  json merges = json::array();
  for (const auto& [left, right] :
       {std::pair("a", "a"), {"aa", "aa"}, {"h", "e"}, {" ", "he"}, {"\xc3", "\xa9"}, {" ", " "}}) {
    vocabulary.emplace(spelling_of_bytes(std::string(left) + right), vocabulary.size());
    merges.push_back({spelling_of_bytes(left), spelling_of_bytes(right)});
  }
  const auto token = [](const char* content, int id, bool single_word, bool normalized) {
    return json{
        {"content", content}, {"id", id}, {"special", true}, {"single_word", single_word}, {"normalized", normalized}};
  };
  return {{"added_tokens", json::array({token("<x>", 300, false, false), token("<xx", 301, true, false),
                                        token("he>", 302, false, true)})},
          {"pre_tokenizer", pre_tokenizer},
          {"post_processor", nullptr},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}}}};
}

json split_by(std::string_view regex) {
  return {{"type", "Sequence"},
          {"pretokenizers",
           {{{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}},
            {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
}

// Characters with marks for spaces: BPE as Llama 2 has it, and Unigram with rules of every kind.
json over_characters(bool unigram) {
  const std::vector<std::string> tokens = {"<unk>", "\u2581",   "a",      "h",  "e",
                                           "he",    "\u2581he", "\u00e9", "aa", "<0x0A>"};
  json file =
      json::parse(R"({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKD"}, {"type": "StripAccents"},
      {"type": "Strip"}, {"type": "Prepend", "prepend": "\u2581"},
      {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]},
    "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"},
    "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
              "merges": ["h e", "\u2581 he", "a a"]}})");
  if (unigram) file["model"] = {{"type", "Unigram"}, {"unk_id", 0}, {"byte_fallback", true}};
  auto& vocabulary = file["model"]["vocab"];
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (unigram) {
      vocabulary.push_back(json::array({tokens[id], -1.5 * static_cast<double>(id)}));
    } else {
      vocabulary[tokens[id]] = id;
    }
  }
  return file;
}

std::vector<Tokenizer> make_tokenizers() {
  std::vector<Tokenizer> all;
  const json gpt2 = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  for (const auto& steps : {gpt2, split_by(kLlama3Regex), split_by(R"(\w+|[^\w\s]+(?=\s)|\s\p{Lu}?)")}) {
    all.emplace_back(tokenizer_from_json(byte_level(steps).dump(), "memory"));
  }
  auto lower = byte_level(gpt2);
  lower["normalizer"] =
      json::parse(R"({"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}]})");
  lower["pre_tokenizer"]["add_prefix_space"] = true;
  all.emplace_back(tokenizer_from_json(lower.dump(), "memory"));
  WordPieceOptions words;
  words.source = "memory";
  for (const auto* token : {"[UNK]", "a", "##a", "he", "##e", "!", "\u4e2d"}) {
    words.vocabulary.push_back({token, static_cast<std::int64_t>(words.vocabulary.size())});
  }
  all.emplace_back(make_wordpiece(words));
  for (const bool unigram : {false, true}) {
    all.emplace_back(tokenizer_from_json(over_characters(unigram).dump(), "memory"));
  }
  return all;
}

// In the order of make_tokenizers(); what lies behind them is a tokenizer.json of any bytes.
constexpr std::array<std::string_view, 8> kKinds = {"gpt2",      "llama3",        "regex",   "normalized",
                                                    "wordpiece", "character_bpe", "unigram", "json"};
constexpr std::size_t kJson = kKinds.size() - 1;
constexpr std::size_t kNumExact = 3;  // those that give back every byte

// What ORTHANT_FUZZ_KIND says; kKinds.size() without it.
std::size_t asked_kind() {
  const char* name = std::getenv("ORTHANT_FUZZ_KIND");
  if (name == nullptr) return kKinds.size();
  const auto found = std::find(kKinds.begin(), kKinds.end(), name);
  if (found == kKinds.end()) {
    std::fprintf(stderr, "ORTHANT_FUZZ_KIND=%s: there is no such kind\n", name);
    std::exit(2);
  }
  return static_cast<std::size_t>(found - kKinds.begin());
}

void encode_with(const std::vector<Tokenizer>& all, std::size_t which, std::string_view text) {
  const auto ids = all[which].encode(text);
  const auto back = all[which].decode(ids);
  if (which < kNumExact && back != text) std::abort();
  (void)all[which].encode_pair(text, text.substr(text.size() / 2), {.max_length = 7});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<Tokenizer> kTokenizers = make_tokenizers();
  static const std::size_t kAsked = asked_kind();
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  // '{' begins a tokenizer.json; other bytes choose a tokenizer.
  const auto chosen = data[0] == '{' ? kJson : data[0] % kTokenizers.size();
  const auto kind = kAsked < kKinds.size() ? kAsked : chosen;
  try {
    if (kind != kJson) {
      encode_with(kTokenizers, kind, rest);
      return 0;
    }
    const Tokenizer tokenizer(tokenizer_from_json("{" + std::string(rest), "memory"));
    (void)tokenizer.decode(tokenizer.encode(rest.substr(0, 200)));
  } catch (const DataError&) {
  } catch (const ConfigError&) {
  }
  return 0;
}
