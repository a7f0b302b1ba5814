// A schedule as data: for every pp coordinate the stage actions it runs, in order. Generators write tables, files hold
// them, and lowering turns them into actions of units. A table knows no graph: it names stages and microbatches only,
// and communication is not part of it. Several stages may run on one pp coordinate.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orthant {

// F forward, B backward for the inputs, W backward for the weights, BW both at once.
enum class StageKind { F, B, W, BW };

std::string_view stage_kind_name(StageKind kind);

struct StageAction {
  int stage = 0;
  StageKind kind = StageKind::F;
  int microbatch = 0;
  friend bool operator==(const StageAction&, const StageAction&) = default;
};

// "2BW5": stage, kind, microbatch; and back, nothing when the text is not of that form.
std::string to_string(const StageAction& action);
std::optional<StageAction> parse_action(std::string_view text);

struct StageTable {
  int num_stages = 0;
  int num_microbatches = 0;
  std::vector<std::vector<StageAction>> actions;  // by pp coordinate
  friend bool operator==(const StageTable&, const StageTable&) = default;
};

// True when no action is a backward: an evaluation, in which nothing is kept and nothing reduced.
bool is_forward_only(const StageTable& table);

// The pp coordinate on which each stage first appears: where a file puts its stages. ConfigError when one appears on
// none.
std::vector<int> stage_pp_coordinates(const StageTable& table);

// One line per pp coordinate, actions separated by blanks; "-" stands for a pp coordinate without actions.
std::string to_text(const StageTable& table);

// Reads what to_text writes, and tables from spreadsheets. Commas separate as well as blanks, empty lines and what
// follows a '#' are skipped. Stages and microbatches are counted from the largest ones named. ConfigError with
// `source`, line and word.
StageTable parse_table(std::string_view text, std::string_view source);

// parse_table() of a file; ConfigError when it cannot be read.
StageTable read_table(const std::string& path);

}  // namespace orthant
