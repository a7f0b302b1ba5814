// cuBLASLt behind ProductLibrary: tensors become addresses, libtorch's allocator gives workspaces and scratch memory.
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>

#include "orthant/base/quantile.h"
#include "orthant/cuda/cublas_lt.h"
#include "orthant/nn/device_kernels.h"
#include "orthant/ops/linear/product_library.h"

namespace orthant::nn {
namespace {

constexpr int kWarmups = 3;
constexpr int kTimes = 5;

at::ScalarType dtype_of(cuda::Element element) {
  return element == cuda::Element::bfloat16  ? at::kBFloat16
         : element == cuda::Element::float16 ? at::kHalf
                                             : at::kFloat;
}

// Values in memory of their own that lies as the product says.
at::Tensor scratch(std::int64_t rows, std::int64_t columns, bool turned, std::int64_t stride, cuda::Element element,
                   int alignment, at::Device device) {
  const auto options = at::TensorOptions().device(device).dtype(dtype_of(element));
  constexpr int kAligned = 16;
  const std::int64_t first = alignment >= kAligned ? 0 : alignment / static_cast<int>(options.dtype().itemsize());
  const auto memory = at::empty({first + (turned ? columns : rows) * stride}, options).normal_();
  return turned ? memory.as_strided({rows, columns}, {1, stride}, first)
                : memory.as_strided({rows, columns}, {stride, 1}, first);
}

class DeviceProductLibrary : public ProductLibrary {
 public:
  explicit DeviceProductLibrary(at::Device device) : device_(device) {}

  std::string version() const override { return library_.version(); }
  std::string card() const override {
    const c10::DeviceGuard guard(device_);
    return driver_.card();
  }

  std::vector<cuda::ProductPlan> plans(const cuda::Product& product, int most) override {
    const c10::DeviceGuard guard(device_);
    driver_.enter_context();
    return library_.plans(product, most);
  }

  bool accepts(const cuda::Product& product, const cuda::ProductPlan& plan) override {
    const c10::DeviceGuard guard(device_);
    driver_.enter_context();
    return library_.accepts(product, plan);
  }

  double seconds(const cuda::Product& product, const cuda::ProductPlan& plan) override {
    const c10::DeviceGuard guard(device_);
    const auto operands = scratch_operands(product);
    const auto stream = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
    for (int i = 0; i < kWarmups; ++i) multiply(product, plan, operands);
    // The host runs ahead, so that the device does not wait for it between the events.
    std::vector<c10::Event> events;
    for (int i = 0; i < 2 * kTimes; ++i) {
      events.emplace_back(device_.type(), c10::EventFlag::BACKEND_DEFAULT);  // takes the time
    }
    for (std::size_t i = 0; i < events.size(); i += 2) {
      events[i].record(stream);
      multiply(product, plan, operands);
      events[i + 1].record(stream);
    }
    events.back().synchronize();
    std::vector<double> times;
    for (std::size_t i = 0; i < events.size(); i += 2) times.push_back(events[i].elapsedTime(events[i + 1]) * 1e-3);
    return quantile(times, 0.5);
  }

  void multiply(const cuda::Product& product, const cuda::ProductPlan& plan, const ProductOperands& operands) override {
    const c10::DeviceGuard guard(device_);
    driver_.enter_context();
    // The allocator knows the stream: it hands this memory out again only behind the product.
    const at::Tensor workspace =
        plan.workspace_bytes == 0
            ? at::Tensor()
            : at::empty({static_cast<std::int64_t>(plan.workspace_bytes)}, operands.out.options().dtype(at::kByte));
    library_.multiply(product, plan,
                      {.out = device::data(operands.out),
                       .left = device::data(operands.left),
                       .right = device::data(operands.right),
                       .added = device::data(operands.added),
                       .bias = device::data(operands.bias),
                       .workspace = device::data(workspace)},
                      device::stream(operands.out));
  }

 private:
  ProductOperands scratch_operands(const cuda::Product& product) {
    const auto matrix = [&](std::int64_t rows, std::int64_t columns, bool turned, std::int64_t stride,
                            cuda::Element element) {
      return scratch(rows, columns, turned, stride, element, product.alignment, device_);
    };
    ProductOperands operands;
    operands.out = matrix(product.rows, product.columns, false, product.out_stride, product.out);
    operands.left = matrix(product.rows, product.depth, product.left_turned, product.left_stride, product.in);
    operands.right = matrix(product.depth, product.columns, product.right_turned, product.right_stride, product.in);
    if (product.adds) operands.added = operands.out;
    if (product.has_bias) operands.bias = matrix(1, product.columns, false, product.columns, product.out).squeeze(0);
    return operands;
  }

  at::Device device_;
  cuda::Driver driver_;
  cuda::CublasLt library_;
};

}  // namespace

std::shared_ptr<ProductLibrary> device_product_library(at::Device device) {
  const c10::DeviceGuard guard(device);
  at::empty({1}, at::TensorOptions().device(device));  // makes the context that the library belongs to
  return std::make_shared<DeviceProductLibrary>(device);
}

}  // namespace orthant::nn
