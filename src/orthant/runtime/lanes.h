// Streams of a device for branches of a graph, which then run side by side. Local.
//
// Note [Lanes]: a unit belongs to a lane, a stream of the device. It has that of a unit before it on which it depends,
// where no other unit has gone on there; else one of its own. So each lane is a chain: within it, order is that of the
// list. Whatever a unit takes from another lane it waits for, and its memory is not handed out again before it has been
// read. Each sum has the order that it has on one stream, so bits do not change. Where units of several lanes use one
// parameter, all are in one lane. What units of several lanes share and the first of them makes, as a table of
// positions, is there before: the first step of a shape runs on one stream.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <vector>

#include "orthant/graph/spec.h"

namespace orthant {

// Per unit its lane, from 0 on; at most `most`. Pure.
std::vector<int> unit_lanes(const GraphSpec& graph, int most);

class Lanes {
 public:
  // A stream of the device for each lane; lane 0 is whatever stream is current when a step begins.
  Lanes(const GraphSpec& graph, at::Device device);

  // 1: no two units may run side by side.
  std::size_t count() const { return streams_.size(); }

  // Before and after the work of a list: lanes wait for what was asked of the device before, and it for them.
  void begin();
  void end() const;

  c10::Stream of(int unit) const { return streams_[static_cast<std::size_t>(lane(unit))]; }
  // `tensor`, which work of unit `from` made, is about to be read by work of unit `to`.
  void hand_over(const at::Tensor& tensor, int from, int to) const;

 private:
  int lane(int unit) const { return lanes_[static_cast<std::size_t>(unit)]; }
  static void wait(const c10::Stream& waiting, const c10::Stream& for_this);

  at::Device device_;
  std::vector<int> lanes_;
  std::vector<c10::Stream> streams_;
};

}  // namespace orthant
