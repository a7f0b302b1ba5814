// Code for operations: one function per name, which takes an operation of a compiled list to what runs it. Each
// folder of ops has those of its operations in bind.cpp. Local.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/nn/frame.h"
#include "orthant/nn/module_code.h"
#include "orthant/nn/tables.h"
#include "orthant/program/program.h"

namespace orthant {

// Runs one operation: reads and writes values of the frame, adds to gradients of parameters. Frees are the caller's.
using Step = std::function<void(Frame&)>;

// What the code of an operation is made from. All of it outlives the code.
struct Binding {
  const Program& program;
  const Operation& operation;
  std::vector<nn::Parameter*> parameters;  // the operation's, null for absent ones
  std::string_view unit;                   // its name
  Tables& tables;
  nn::TensorAxis* tensor = nullptr;
  nn::ModuleCode* module = nullptr;  // of the operation "module"

  nn::Parameter* parameter(std::size_t i) const { return i < parameters.size() ? parameters[i] : nullptr; }
  int in(std::size_t i) const { return i < operation.in.size() ? operation.in[i] : -1; }
  int out(std::size_t i) const { return i < operation.out.size() ? operation.out[i] : -1; }
  const ValuePlace& placement(int value) const { return program.values[static_cast<std::size_t>(value)].at; }
  const Attributes& attributes() const { return operation.attributes; }
  // The name of a site of random draws: within the whole model.
  std::string site() const;
  // Nobody reads the first input after this operation, and an operation of the unit has made it.
  bool owns_input() const;
};

using Binder = Step (*)(const Binding&);
struct NamedBinder {
  std::string_view name;
  Binder bind;
};
// The binders of every folder of operations, and of exchanges.
#define ORTHANT_OPERATION(folder) std::vector<NamedBinder> folder##_binders();
#include "orthant/ops/folders.inc"
#undef ORTHANT_OPERATION
std::vector<NamedBinder> exchange_binders();

}  // namespace orthant
