// Tokens that are looked for in the text before the model sees it: <|endoftext|>, [MASK], <s>, and what users add. They
// cut the text; what lies between them is the model's. The longest one that starts leftmost wins.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orthant {

struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool special = false;      // left out by decode(skip_special)
  bool single_word = false;  // only where no letter, mark, digit or underscore touches it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and after it
  bool normalized = false;   // looked for in normalised text, in its own normalised form
};

class AddedTokens {
 public:
  using Normalize = std::function<std::string(std::string_view)>;
  // Takes a stretch of text, with the id of the token it is, or -1 for text between tokens.
  using Sink = std::function<void(std::string_view piece, std::int32_t id)>;

  AddedTokens() = default;
  // Tokens without content are left out; of two with the same content the last one counts.
  AddedTokens(const std::vector<AddedToken>& tokens, const Normalize& normalize);

  // Cuts at the tokens that are looked for before normalisation, or at those that are looked for after it.
  void split_raw(std::string_view text, const Sink& sink) const { split(raw_, text, sink); }
  void split_normalized(std::string_view text, const Sink& sink) const { split(normalized_, text, sink); }

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  const AddedToken* find(std::string_view content) const;
  const AddedToken* find(std::int64_t id) const;

 private:
  // A tree of bytes; node 0 is the root.
  struct Trie {
    struct Node {
      std::vector<std::pair<unsigned char, std::int32_t>> next;  // sorted by byte
      std::int32_t token = -1;                                   // index into tokens_
    };
    std::vector<Node> nodes;
    std::array<bool, 256> starts = {};
    int only_start = -1;  // the byte that all tokens start with, when there is one

    void insert(std::string_view content, std::int32_t token);
    // The first match at or after `from`: its begin and token; the end is begin + the normalised content's length.
    struct Match {
      std::size_t begin = 0, end = 0;
      std::int32_t token = -1;
    };
    std::optional<Match> search(std::string_view text, std::size_t from) const;
    std::size_t next_start(std::string_view text, std::size_t from) const;
  };

  void split(const Trie& trie, std::string_view text, const Sink& sink) const;

  std::vector<AddedToken> tokens_;
  std::map<std::string, std::size_t, std::less<>> by_content_;
  std::map<std::int64_t, std::size_t> by_id_;
  Trie raw_;
  Trie normalized_;
};

}  // namespace orthant
