// Characters as readers see them: extended grapheme clusters of Unicode 17, as PyPI `tokenizers` cuts them. utf8proc
// knows those of Unicode 15; what came since, and the conjuncts of Indic scripts, is added here.
#pragma once

#include <cstddef>
#include <string_view>

namespace orthant {

// The end of the cluster that begins at `begin` < text.size(). `text` is well-formed UTF-8.
std::size_t grapheme_cluster_end(std::string_view text, std::size_t begin);

}  // namespace orthant
