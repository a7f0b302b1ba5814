// One exchange between ranks under way.
#pragma once

namespace orthant::nn {

// wait() once: blocks until outputs are readable and inputs may be reused.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual void wait() = 0;
};

}  // namespace orthant::nn
