// The rule Precompiled of a tokenizer.json: a table of SentencePiece, applied as `tokenizers` does it. That is not how
// SentencePiece does it: the text is taken by grapheme clusters, and a short cluster becomes what the shortest entry
// that begins it becomes, the rest of the cluster being lost.
#include <fmt/format.h>

#include "orthant/text/charsmap.h"
#include "orthant/text/grapheme_cluster.h"
#include "orthant/text/normalizer_rule.h"
#include "orthant/text/unicode.h"

namespace orthant {
namespace {

constexpr std::size_t kShortCluster = 6;  // bytes from which a cluster is taken character by character

class PrecompiledRule : public NormalizerRule {
 public:
  explicit PrecompiledRule(std::shared_ptr<const Charsmap> map) : map_(std::move(map)) {}

  std::string apply(std::string_view text, std::size_t limit) const override {
    std::string out;
    out.reserve(text.size());
    for (std::size_t at = 0; at < text.size();) {
      const auto end = grapheme_cluster_end(text, at);
      add_cluster(text.substr(at, end - at), out, limit);
      at = end;
    }
    return out;
  }
  std::string describe() const override { return fmt::format("Precompiled {:016x}", map_->fingerprint()); }

 private:
  void add_cluster(std::string_view cluster, std::string& out, std::size_t limit) const {
    if (cluster.size() < kShortCluster) {
      if (const auto match = map_->shortest(cluster); match.length > 0) return grow(out, match.result, limit);
    }
    for (std::size_t at = 0; at < cluster.size();) {
      const auto length = static_cast<std::size_t>(unicode::decode_valid(cluster.data() + at).length);
      const auto character = cluster.substr(at, length);
      const auto match = map_->shortest(character);
      grow(out, match.length > 0 ? match.result : character, limit);
      at += length;
    }
  }

  std::shared_ptr<const Charsmap> map_;
};

}  // namespace

NormalizerRulePtr make_precompiled(std::shared_ptr<const Charsmap> map) {
  return std::make_shared<PrecompiledRule>(std::move(map));
}

}  // namespace orthant
