// Data kind `trimodal_demo`: made-up insurance claims on parcels, each a dialogue, a shipment track and eight numbers,
// with a label that needs all three. For demos and tests: nothing to fetch, and the best result is known.
//
// Note [Trimodal demo]: each part carries one signal, three fair and independent coins: the customer says that the
// order did not arrive; the carrier's scans say that it was lost; the risk score feature_1 - (feature_2 + feature_3) /
// 2 is positive (by at least 0.5; it keeps its sign under layer normalisation of the numbers). The label is what at
// least two of them say, then turned around at random in label_noise of the samples. So who reads all three parts is
// right in 1 - label_noise of the cases. The label agrees with one signal alone in 3/4 of the cases before noise, and
// two signals agree in half of the cases and leave a coin toss otherwise: two parts together are no better than one.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "orthant/data/dataset.h"
#include "orthant/data/word_vocabulary.h"

namespace orthant {

struct TrimodalDemoOptions {
  std::int64_t size = 4096;
  std::uint64_t seed = 0;
  DataSplit split = DataSplit::train;
  std::int64_t primary_length = 32;    // positions of a dialogue, [CLS] and [SEP] included; longer ones are cut
  std::int64_t secondary_length = 24;  // of a track
  double label_noise = 0.03;
  std::vector<double> class_weights = {};
};

// One sample as files hold it.
struct TrimodalSample {
  static constexpr std::size_t kNumbers = 8;

  std::string dialogue;  // words separated by single blanks
  std::string track;
  std::array<float, kNumbers> numbers;  // in standard units
  std::int64_t label;
  std::array<bool, 3> signals;  // of dialogue, track and numbers
};

// Fields: "primary_ids" int64 [rows, primary_length], "primary_mask" bool alike, "secondary_ids", "secondary_mask",
// "tabular" float32 [rows, 8], "labels" int64 [rows].
class TrimodalDemo : public Dataset {
 public:
  static constexpr std::int64_t kNumLabels = 2;

  // ConfigError for sizes below 1, lengths that would cut a signal off, noise outside [0, 0.5), wrong class weights.
  explicit TrimodalDemo(TrimodalDemoOptions options = {});

  std::int64_t size() const override { return options_.size; }
  Fields rows(std::span<const std::int64_t> indices) const override;

  // A pure function of (seed, split, index).
  TrimodalSample sample(std::int64_t index) const;

  const WordVocabulary& vocabulary() const { return vocabulary_; }
  std::int64_t vocab_size() const { return vocabulary_.size(); }

  // Expected over fresh samples, of the best possible classifier: with all parts, and with any one or two of them.
  double best_accuracy() const { return 1 - options_.label_noise; }
  double best_accuracy_of_some_parts() const;

  const TrimodalDemoOptions& options() const { return options_; }

  // Column names of the numbers, "feature_1" to "feature_8", and what each stands for.
  static std::vector<std::string> number_names();
  static std::vector<std::string> number_meanings();

 private:
  TrimodalDemoOptions options_;
  WordVocabulary vocabulary_;
};

}  // namespace orthant
