// What the functions of seed 001 return for its own examples, beside what the planner says and why they differ. The
// numbers of mistakes are those of docs/planner_seed001.md.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace orthant {

struct SeedFigure {
  std::string quantity;
  std::optional<double> seed;       // none: it has no such figure
  std::optional<double> corrected;  // none: it has no right value
  std::string unit;                 // "GB" is 1e9 bytes
  std::string why;
  std::vector<int> mistakes = {};  // none: both agree, or the figure is the planner's alone
};

// One call in the seed's text.
struct SeedExample {
  std::string name;
  std::string call;
  std::string failure;  // how its Python ends as printed, and figures are of what was meant; empty: it runs
  std::vector<SeedFigure> figures = {};
};

// Local; takes some searches' time.
std::vector<SeedExample> seed_examples();

// A table for each example.
std::string seed_text(const std::vector<SeedExample>& examples);

}  // namespace orthant
