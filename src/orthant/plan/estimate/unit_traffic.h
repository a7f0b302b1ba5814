// Calls and payload bytes of what units exchange over tp, cp and ep, per rank and step, as the counters of `comm` count
// them: the tensor of an all-reduce or a message, the gathered output, the whole input of a reduce-scatter or an
// all-to-all; a call over a list of tensors is one call. All of it is read from the units' programs. Pure.
//
// Note [Unit traffic]: over tp, N is tokens x hidden in the compute dtype. Per microbatch, without and with sequence
// parallelism (SP):
//   column product   forward -, SP gather N        backward sum N, SP scatter N, where its input needs a gradient;
//                                                  SP with regather besides gather N where its weight is trained
//   row product      forward sum N, SP scatter N   backward -, SP gather N
//   cut table        forward sum N, SP scatter N   backward -, SP gather N where it is trained
//   pooler           forward -, SP sum rows x hidden
//   whole logits     forward gather tokens x words
//   cut logits       three sums (one is a maximum) of a number per token in the forward of the loss
// So a layer has 2 sums forward and 2 backward, or as many gathers and as many scatters. Recompute `full` repeats of
// a layer's forward what backward reads: not its last sum, unless a norm follows that. With every reduction of a unit,
// once a step unless gradients are accumulated in shards: the sums of gradients that are partial because ranks see
// their own tokens, together with those of key/value heads that every rank has a copy of, and of other copies; one call
// each per unit that owns such parameters. On a pipeline, a rank has the share of its units; where the owner of tied
// parameters is elsewhere, their first borrower here stands in for it. Over cp: Note [Context traffic] in
// program/context_exchanged.h.
//
// Note [Expert traffic]: of a microbatch's tokens a rank has t, each taken by k experts, of H channels; its own experts
// take r rows of all tokens. Forward sends t k rows of H channels to experts with a weight for each, and r rows back,
// and a count of every expert once; backward sends t k rows of gradients to experts, and r rows back with the gradient
// of each one's weight. Whatever tokens choose, what a rank sends to experts is the same; what comes back follows from
// the loads. Recompute `full` sends rows, weights and answers once more, and no counts.
#pragma once

#include <cstdint>
#include <vector>

#include "orthant/graph/spec.h"
#include "orthant/program/exchanged.h"
#include "orthant/program/program_cache.h"

namespace orthant {

struct TensorSettings {
  int degree = 1;
  bool sequence_parallel = false;
  bool loss_parallel = false;
  bool regather = false;
  DType compute = DType::float32;
  DType reduce = DType::float32;
  DType statistics = DType::float64;  // in which a loss over cut logits sums; on a device that of the loss
  int microbatches = 1;
  int reductions = 1;  // of a unit's gradients in a step: one for every microbatch where shards accumulate them
  Recompute recompute = Recompute::none;
  std::vector<int> unit_pp_coordinates = {};  // per unit: its pp coordinate; empty: one stage
  int pp = 0;                                 // coordinate of the rank
};

struct TpTraffic {
  using Entry = CountedCalls;
  Entry sum = {};       // all_reduce over tp of activations, their gradients and loss statistics
  Entry gather = {};    // all_gather over tp
  Entry scatter = {};   // reduce_scatter over tp
  Entry partials = {};  // all_reduce over tp of gradients
  Entry copies = {};    // all_reduce over the holders of a copy of gradients
  friend bool operator==(const TpTraffic&, const TpTraffic&) = default;
};

// All three are of a resolved graph (layout/tensor_policy.h) with the sizes of one microbatch, of the units at
// settings.pp; of its forward alone when it has no loss.
// InternalError when the graph was not resolved by these settings.
TpTraffic tp_traffic(const GraphSpec& graph, const TensorSettings& settings, ProgramCache* programs = nullptr);
// The entries of gradients alone.
TpTraffic gradient_traffic(const GraphSpec& graph, const TensorSettings& settings);

// At that coordinate of cp; sums of gradients over cp are those of data parallelism.
Exchanged cp_traffic(const GraphSpec& graph, const TensorSettings& settings, int coordinate = 0,
                     ProgramCache* programs = nullptr);

// Of the experts' operations. `taken`: for every unit of the graph, the rows that the rank's experts take in a step;
// empty: as many as its tokens have, as when all experts take the same.
CountedCalls ep_traffic(const GraphSpec& graph, const TensorSettings& settings,
                        const std::vector<std::int64_t>& taken = {}, ProgramCache* programs = nullptr);

}  // namespace orthant
