#include "orthant/nn/binding.h"
#include "orthant/ops/exchange/token_values.h"

namespace orthant {
namespace {

Step bind_first_token(const Binding& b) {
  return [x = b.in(0), y = b.out(0)](Frame& frame) { frame[y] = nn::held_first_tokens(frame[x], frame.pass); };
}

Step bind_first_token_back(const Binding& b) {
  return [gy = b.in(0), gx = b.out(0)](Frame& frame) { frame[gx] = nn::first_tokens_gradient(frame[gy], frame.pass); };
}

}  // namespace

std::vector<NamedBinder> first_token_binders() {
  return {{"first_token", bind_first_token}, {"first_token_back", bind_first_token_back}};
}

}  // namespace orthant
