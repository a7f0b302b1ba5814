// Records what a unit computes. A family's code reads like eager code: functions of ops/functions.h take values and
// give values, and each call is an operation of the list. Pure.
#pragma once

#include <string>
#include <vector>

#include "orthant/graph/operation.h"

namespace orthant {

// Of the recorder that made it.
struct Value {
  int id = -1;
};

class Recorder {
 public:
  // The unit's next input: `channels` numbers per token or row.
  Value tokens(std::string name, std::int64_t channels);
  Value rows(std::string name, std::int64_t channels);
  // A batch field: one number per token, or per row.
  Value field(std::string name, Sym per, Number number);
  // Of any shape and type.
  Value opaque(std::string name);

  // A parameter of the unit, or several that lie side by side.
  int parameter(std::string name);
  int joined(std::string label);

  const std::vector<Dim>& dims(Value value) const { return body_.values[static_cast<std::size_t>(value.id)].dims; }
  std::int64_t channels(Value value) const { return dims(value).back().factor; }

  // A new value of `dims`, which an operation makes.
  int value(std::string name, std::vector<Dim> dims, Number number = Number::compute);
  void add(Operation operation) { body_.operations.push_back(std::move(operation)); }

  void output(Value value) { body_.outputs.push_back(value.id); }
  Body finish() { return std::move(body_); }

 private:
  Value input(std::string name, std::vector<Dim> dims, Number number);
  int parameter(std::string name, bool is_joined);

  Body body_;
};

}  // namespace orthant
