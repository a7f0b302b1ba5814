#include "orthant/text/regex_splitter.h"

#include <fmt/format.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "orthant/base/error.h"
#include "orthant/text/unicode.h"

namespace orthant {
namespace {

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};
using Code = std::unique_ptr<pcre2_code, FreeCode>;
using Match = std::unique_ptr<pcre2_match_data, FreeMatch>;

std::string message_of(int error) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

class RegexSplitter : public Splitter {
 public:
  RegexSplitter(std::string_view regex, std::string source) : regex_(regex), source_(std::move(source)) {
    const auto translated = translate_regex(regex, source_);
    int error = 0;
    PCRE2_SIZE where = 0;
    // Lines end and begin at every newline, as Oniguruma has it.
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &where, nullptr));
    if (!code_) {
      throw DataError(fmt::format("{}: the regular expression {} is not one: {}", source_, regex_, message_of(error)),
                      {.remedy = "correct the pattern of the pre-tokenizer"});
    }
    // Without it the interpreter runs: slower, with the same results.
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
  }

  std::vector<Cut> split(std::string_view text) const override {
    std::vector<Cut> cuts;
    const Match match(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    std::size_t done = 0;
    std::size_t from = 0;
    while (from <= text.size() && find(text, from, match.get())) {
      const auto* range = pcre2_get_ovector_pointer(match.get());
      const std::size_t begin = range[0];
      const std::size_t end = range[1];
      if (end > begin || begin > done || cuts.empty()) {
        if (done < begin) cuts.push_back({done, begin, false});
        cuts.push_back({begin, end, true});
        done = end;
      }
      from = end > begin ? end : begin + step(text, begin);
    }
    if (done < text.size()) cuts.push_back({done, text.size(), false});
    return cuts;
  }

 private:
  static std::size_t step(std::string_view text, std::size_t at) {
    return at < text.size() ? static_cast<std::size_t>(unicode::decode_valid(text.data() + at).length) : 1;
  }

  bool find(std::string_view text, std::size_t from, pcre2_match_data* match) const {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    int found = pcre2_match(code_.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK, match, nullptr);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
      found = pcre2_match(code_.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match, nullptr);
    }
    if (found == PCRE2_ERROR_NOMATCH) return false;
    if (found < 0) {
      throw DataError(fmt::format("{}: the regular expression {} gave up on a text of {} bytes: {}", source_, regex_,
                                  text.size(), message_of(found)),
                      {.remedy = "cut the text into smaller parts"});
    }
    return true;
  }

  std::string regex_;
  std::string source_;
  Code code_;
};

}  // namespace

std::unique_ptr<Splitter> make_regex_splitter(std::string_view regex, const std::string& source) {
  return std::make_unique<RegexSplitter>(regex, source);
}

}  // namespace orthant
