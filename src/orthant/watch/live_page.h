// The page of a report that is kept up to date: its pieces, each with the revision that last changed it, so that a
// reader is sent what is new to it, however long it was away.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "orthant/report/page.h"

namespace orthant::watch {

class LivePage {
 public:
  LivePage();

  void update(const std::vector<report::ReportedRun>& runs);

  std::string html() const;
  // The event "pieces" of Server-Sent Events with all that changed since then; empty when nothing did. `since`: what
  // revision() gave; of another page, or of nobody, everything is new.
  std::string event_since(const std::string& since) const;
  std::string revision() const;

 private:
  std::string name_;  // tells pages of two servers apart
  std::int64_t revision_ = 0;
  std::string title_;
  std::vector<report::PagePiece> pieces_;
  std::vector<std::int64_t> changed_;  // as pieces_
};

}  // namespace orthant::watch
