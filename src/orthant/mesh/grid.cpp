// The grid of ranks in the picture of a mesh.
#include <fmt/format.h>

#include <algorithm>

#include "orthant/mesh/hosts.h"
#include "orthant/mesh/picture.h"

namespace orthant {
namespace {

constexpr std::size_t kRanksPerLine = 16;

// How much is shown of a mesh too large to be shown whole.
constexpr std::size_t kBlocksShown = 4;
constexpr std::size_t kRowsShown = 8;
constexpr std::size_t kColumnsShown = 16;

std::size_t width_of(int largest) {
  return fmt::formatted_size("{}", largest);
}

class Grid {
 public:
  Grid(const Mesh& mesh, int ranks_per_host) : mesh_(mesh), ranks_per_host_(ranks_per_host) {
    for (Axis axis : mesh.order()) {
      if (mesh.degree(axis) > 1) block_axes_.push_back(axis);
    }
    columns_ = take_innermost();
    rows_ = take_innermost();
  }

  std::string text() const {
    std::string text;
    const std::vector<RankList> blocks = mesh_.groups(rows_ | columns_);
    const std::size_t shown = std::min(blocks.size(), shown_of(kBlocksShown));
    for (std::size_t i = 0; i < shown; ++i) text += block_text(blocks[i]);
    if (shown < blocks.size()) text += fmt::format("  ... {} more blocks\n", blocks.size() - shown);
    return text;
  }

 private:
  // The innermost axis not yet used; the empty set, of degree 1, when there is none left.
  AxisSet take_innermost() {
    if (block_axes_.empty()) return {};
    const Axis axis = block_axes_.back();
    block_axes_.pop_back();
    return axis;
  }

  std::size_t shown_of(std::size_t limit) const {
    return mesh_.world_size() > kRanksShownWhole ? limit : kRanksShownWhole;
  }

  std::string block_text(const RankList& block) const {
    std::string text;
    std::string margin = "  ";
    if (!block_axes_.empty()) {
      const Coordinate place = mesh_.coordinate(block.front());
      for (Axis axis : block_axes_)
        text += fmt::format("{}{} {}", text.empty() ? "  " : ", ", axis_name(axis), place[axis]);
      text += "\n";
      margin += "  ";
    }
    const std::size_t num_rows = mesh_.group_size(rows_);
    const std::size_t shown = std::min(num_rows, shown_of(kRowsShown));
    const std::size_t num_columns = mesh_.group_size(columns_);
    for (std::size_t row = 0; row < shown; ++row) {
      std::string label = margin;
      if (!rows_.empty())
        label += fmt::format("{} {:>{}}: ", rows_.name(), row, width_of(static_cast<int>(num_rows) - 1));
      const auto begin = block.begin() + static_cast<std::ptrdiff_t>(row * num_columns);
      text += label + row_text({begin, begin + static_cast<std::ptrdiff_t>(num_columns)}, label.size() + 1) + "\n";
    }
    if (shown < num_rows) text += fmt::format("{}... {} more rows\n", margin, num_rows - shown);
    return text;
  }

  // "[ 8,  9 | 10, 11]  hosts 0-1"; long rows go on in lines indented by `indent`.
  std::string row_text(const RankList& ranks, std::size_t indent) const {
    const std::size_t shown = std::min(ranks.size(), shown_of(kColumnsShown));
    const std::size_t width = width_of(mesh_.world_size() - 1);
    std::string text = "[";
    for (std::size_t i = 0; i < shown; ++i) {
      if (i > 0) {
        text += host(ranks[i - 1]) == host(ranks[i]) ? "," : " |";
        text += i % kRanksPerLine == 0 ? "\n" + std::string(indent, ' ') : " ";
      }
      text += fmt::format("{:>{}}", ranks[i], width);
    }
    if (shown < ranks.size()) text += fmt::format(", ... {} more", ranks.size() - shown);
    const int first = host(ranks.front());
    const int last = host(ranks.back());
    return text + (first == last ? fmt::format("]  host {}", first) : fmt::format("]  hosts {}-{}", first, last));
  }

  int host(int rank) const { return host_of(rank, ranks_per_host_); }

  const Mesh& mesh_;
  int ranks_per_host_;
  std::vector<Axis> block_axes_;
  AxisSet rows_;
  AxisSet columns_;
};

}  // namespace

std::string grid_text(const Mesh& mesh, int ranks_per_host) {
  return Grid(mesh, ranks_per_host).text();
}

}  // namespace orthant
