// The two texts of the trimodal demo, put together from phrases: what a customer says, and what a carrier's scans say.
// Each text carries one yes-or-no signal, worded in many ways that share most of their words; the rest is neutral.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "orthant/base/random.h"

namespace orthant {

// Draws from a stream one after the other. A value with a position; one thread at a time.
class DrawSequence {
 public:
  explicit DrawSequence(RandomStream stream) : stream_(stream) {}

  std::size_t below(std::size_t count) { return static_cast<std::size_t>(stream_.bits(next_++) % count); }
  double uniform() { return stream_.uniform(next_++); }

 private:
  RandomStream stream_;
  std::uint64_t next_ = 0;
};

// Signal: the customer says that the order did not arrive; otherwise it did, and something else is the matter.
std::string dialogue_text(bool not_received, DrawSequence& draws);

// Signal: one of the scans says that the parcel was lost; otherwise one says that it was delivered.
std::string track_text(bool lost, DrawSequence& draws);

// The signal of any text of the kind lies within its first words, this many.
std::size_t dialogue_signal_words();
std::size_t track_signal_words();

// Every phrase that the texts are made of.
std::vector<std::string> trimodal_phrases();

}  // namespace orthant
