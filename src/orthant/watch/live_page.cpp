#include "orthant/watch/live_page.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "orthant/base/json_text.h"
#include "orthant/launch/unix_sockets.h"

namespace orthant::watch {

LivePage::LivePage() : name_(launch::random_name().substr(0, 8)) {}

void LivePage::update(const std::vector<report::ReportedRun>& runs) {
  auto pieces = report::page_pieces(runs);
  changed_.resize(pieces.size());
  bool any = false;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (i < pieces_.size() && pieces[i] == pieces_[i]) continue;
    changed_[i] = revision_ + 1;
    any = true;
  }
  if (any) ++revision_;
  title_ = report::page_title(runs);
  pieces_ = std::move(pieces);
}

std::string LivePage::html() const {
  return report::page_of_pieces(title_, pieces_, revision());
}

std::string LivePage::revision() const {
  return fmt::format("{}-{}", name_, revision_);
}

std::string LivePage::event_since(const std::string& since) const {
  std::int64_t known = -1;
  const auto own = name_ + "-";
  if (since.starts_with(own)) std::from_chars(since.data() + own.size(), since.data() + since.size(), known);
  if (known >= revision_) return "";
  nlohmann::ordered_json event = {{"title", "orthant report: " + title_}, {"pieces", nlohmann::ordered_json::array()}};
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    if (changed_[i] > known) event["pieces"].push_back({{"id", pieces_[i].id}, {"html", pieces_[i].html}});
  }
  return fmt::format("id: {}\nevent: pieces\ndata: {}\n\n", revision(), json_text(event));
}

}  // namespace orthant::watch
