// A machine as the planner knows it: what a card computes, holds and moves, and the links between cards. Presets by
// name, or a JSON file with the same keys; what `orthant plan --calibrate` measures is such a file. Pure data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace orthant {

// A share of the best, by size; straight between points over the logarithm of the size, flat outside of them.
struct Curve {
  struct Point {
    double size = 0;
    double share = 0;
    friend bool operator==(const Point&, const Point&) = default;
  };
  std::vector<Point> points = {};  // ascending in size; none: 1 everywhere

  double at(double size) const;
  friend bool operator==(const Curve&, const Curve&) = default;
};

// Between cards, of one card and in one direction.
struct Link {
  std::string name;
  double bandwidth = 0;      // bytes per second
  double efficiency = 1;     // what collectives reach of it
  double latency = 0;        // seconds per hop
  double slows_compute = 0;  // share of a card's speed that it takes while something travels beside products
  friend bool operator==(const Link&, const Link&) = default;

  double rate() const { return bandwidth * efficiency; }
  double seconds(double bytes) const { return latency + bytes / rate(); }
};

// What drawing a factor of dropout costs a kernel of a device that drops what it reads or writes anyway, in bytes that
// it could move instead. Measured on an H200: 0.2 and 0.9 in a LayerNorm's forward and backward, 0.4 in a residual sum,
// 1.7 alone, 2.4 behind an activation.
inline constexpr double kDrawnMoves = 1;

// Channels of a head for which a device's share of fused attention holds. Each score costs an exponential besides its
// products, which takes as long as they do at this size (cuDNN reaches 1.5 times the FLOPs per second of 64 channels
// with 128): narrower heads reach less of the peak.
inline constexpr double kUsualHead = 128;

// What heads of so many channels reach of that share.
constexpr double head_share(double head_size) {
  return 2 * head_size / (head_size + kUsualHead);
}

// Attention with dropout or a mask of keys, by our kernels, in the share of the peak that the library's reaches
// without: that of an H200, heads of 64 channels.
inline constexpr double kDroppedAttention = 0.36;

struct Hardware {
  std::string name;
  std::string description;  // what it is, and where the figures are from
  std::int64_t memory_bytes = 0;
  std::int64_t reserve_bytes = 0;      // for the runtime and the communication library
  double reserve_share = 0;            // of what tensors take: fragmentation
  double peak_flops = 0;               // of dense products, in 16 bits on a card
  double float8_flops = 0;             // the same in 8 bits; 0: the card has no such products
  Curve products = {};                 // share of the peak, by FLOPs of the product
  double attention_share = 0.5;        // of the peak, fused attention; on a device with heads of kUsualHead channels
  double dropped_attention_share = 0;  // of a device: with dropout or a mask of keys; 0: kDroppedAttention of the other
  double memory_bandwidth = 0;         // bytes per second
  double memory_efficiency = 1;        // what kernels without products reach of it
  double kernel_seconds = 0;           // to start one product or one sweep over memory
  double update_rate = 0;              // bytes per second that an update moves; 0: as other kernels without products
  double draw_rate = 0;                // factors of dropout per second; 0: as a device's kernels draw them, kDrawnMoves
  double interrupted = 0;              // share of a rank's time that the machine takes for something else
  bool on_host = false;                // ranks compute on the cores of the machine
  bool widens_products = true;         // of a host: its products of narrow types are made in float32
  int cards_per_node = 8;
  Link local = {};              // within a node
  Link network = {};            // between nodes
  double dollars_per_hour = 0;  // of one card; 0: not known
  friend bool operator==(const Hardware&, const Hardware&) = default;

  // `head_size` 0: not known, or of no matter. `dropped`: by a device's kernels that drop probabilities and hide keys.
  double attention_share_at(double head_size, bool dropped = false) const {
    const double own = dropped_attention_share > 0 ? dropped_attention_share : kDroppedAttention * attention_share;
    return (dropped ? own : attention_share) * (head_size == 0 ? 1 : head_share(head_size));
  }
  double moving_seconds(double bytes) const { return bytes / (memory_bandwidth * memory_efficiency); }
  double drawing_seconds(double factors) const {
    return draw_rate > 0 ? factors / draw_rate : moving_seconds(kDrawnMoves * factors);
  }
  double updating_seconds(double bytes) const { return update_rate > 0 ? bytes / update_rate : moving_seconds(bytes); }
};

std::vector<std::string> hardware_names();

// A preset by name, or a JSON file where the text has a '/' or ends in ".json". ConfigError with the nearest name.
// A file may say `preset` and then gives only what differs.
Hardware find_hardware(const std::string& name_or_path);

// The text of a file that find_hardware() reads; its name is the file's.
std::string to_json(const Hardware& hardware);

}  // namespace orthant
