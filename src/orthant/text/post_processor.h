// What is put around the ids of one text or two: [CLS] A [SEP], <s> A </s></s> B </s>, or nothing; and how much of the
// texts fits into a length.
#pragma once

#include <cstdint>
#include <vector>

#include "orthant/text/tokenizer.h"

namespace orthant {

struct PostProcessor {
  enum class Source { first, second, token };
  struct Part {
    Source source = Source::first;
    std::int32_t id = 0;    // of a token
    std::int32_t type = 0;  // the segment
  };

  std::vector<Part> single = {{Source::first, 0, 0}};
  std::vector<Part> pair = {{Source::first, 0, 0}, {Source::second, 0, 1}};

  static PostProcessor bert(std::int32_t cls, std::int32_t sep);  // [CLS] A [SEP], [CLS] A [SEP] B [SEP] (types 0, 1)
  static PostProcessor roberta(std::int32_t cls, std::int32_t sep);  // <s> A </s>, <s> A </s></s> B </s> (types 0)

  // The tokens in front of one text.
  std::vector<std::int32_t> begin() const;

  // Puts one text's ids at the end of `ids`, cut so that all are at most options.max_length. ConfigError when the
  // special tokens alone are more.
  void apply(std::vector<std::int32_t> text, const EncodeOptions& options, std::vector<std::int32_t>& ids) const;
  Encoding apply_pair(std::vector<std::int32_t> first, std::vector<std::int32_t> second,
                      const EncodeOptions& options) const;
};

// How many ids of each text stay so that both are at most `room`: the longer one loses first, then both are halved, the
// odd one going to the longer.
struct PairLengths {
  std::int64_t first = 0;
  std::int64_t second = 0;
};
PairLengths truncated_lengths(std::int64_t first, std::int64_t second, std::int64_t room);

}  // namespace orthant
