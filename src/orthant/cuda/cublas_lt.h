// cuBLASLt, opened at run time, as libtorch has loaded it: plans for products, and products by plan. Local.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "orthant/cuda/driver.h"
#include "orthant/cuda/product.h"
#include "orthant/cuda/shared_library.h"

namespace orthant::cuda {

class CublasLt {
 public:
  // In a thread that has a context. ConfigError when this machine has no such library.
  CublasLt();
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  // "cuBLASLt 130100".
  std::string version() const;

  // At most so many, the library's best guess first; none when it cannot compute the product. A plan that
  // cuts the depth adds the parts in float32 and in one order: its bits repeat.
  std::vector<ProductPlan> plans(const Product& product, int most) const;

  // Whether a plan, which may come from a file, computes the product on this device. Its workspace is known then.
  bool accepts(const Product& product, const ProductPlan& plan) const;

  // Returns before the product is computed. In any thread that has a context. InternalError when the library refuses.
  void multiply(const Product& product, const ProductPlan& plan, const ProductMemory& memory,
                StreamHandle stream) const;

 private:
  using Status = int;
  struct Descriptors;  // of one product
  struct Answer;       // of the library, as it lies in memory
  const Descriptors& descriptors(const Product& product) const;
  void set(void* descriptor, int attribute, const void* value, std::size_t bytes) const;
  void check(Status status, const char* what) const;

  SharedLibrary library_;
  void* handle_ = nullptr;
  mutable std::mutex mutex_;  // of descriptors: a bias is part of one
  mutable std::map<Product, std::unique_ptr<Descriptors>> made_;

  std::size_t (*get_version_)() = nullptr;
  const char* (*status_text_)(Status) = nullptr;
  Status (*create_)(void**) = nullptr;
  Status (*make_product_)(void**, int compute, int scale) = nullptr;
  Status (*set_product_)(void*, int attribute, const void*, std::size_t) = nullptr;
  Status (*make_matrix_)(void**, int type, std::uint64_t rows, std::uint64_t columns, std::int64_t stride) = nullptr;
  Status (*end_product_)(void*) = nullptr;
  Status (*end_matrix_)(void*) = nullptr;
  Status (*make_preference_)(void**) = nullptr;
  Status (*set_preference_)(void*, int attribute, const void*, std::size_t) = nullptr;
  Status (*end_preference_)(void*) = nullptr;
  Status (*ask_)(void* handle, void* product, void* a, void* b, void* c, void* d, void* preference, int most,
                 void* answers, int* found) = nullptr;
  Status (*check_plan_)(void* handle, void* product, void* a, void* b, void* c, void* d, const void* plan,
                        void* answers) = nullptr;
  Status (*multiply_)(void* handle, void* product, const void* alpha, const void* a, void* a_matrix, const void* b,
                      void* b_matrix, const void* beta, const void* c, void* c_matrix, void* d, void* d_matrix,
                      const void* plan, void* workspace, std::size_t workspace_bytes, StreamHandle) = nullptr;
};

}  // namespace orthant::cuda
