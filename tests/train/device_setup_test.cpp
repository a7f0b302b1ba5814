// What is refused of a device's settings, and what libtorch is told; none of it needs a card.
#include "orthant/train/device_setup.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error_text.h"

namespace orthant {
namespace device_setup_test {

TEST(DeviceSetup, LibtorchIsToldOfTf32) {
  for (const bool permitted : {true, false}) {
    permit_tf32(permitted);
    EXPECT_EQ(at::globalContext().allowTF32CuBLAS(), permitted);
    EXPECT_EQ(at::globalContext().allowTF32CuDNN(), permitted);
  }
}

TEST(DeviceSetup, Tf32NeedsACudaDeviceAndFloat32) {
  TrainerOptions options;
  options.device = at::Device(at::kCUDA, 0);
  options.precision.tf32 = true;
  check_device(options);
  options.precision.compute = DType::bfloat16;
  auto text = error_text<ConfigError>([&] { check_device(options); });
  EXPECT_NE(text.find("precision.tf32 with compute bfloat16: it rounds products of float32 alone"), std::string::npos)
      << text;
  options.device = at::kCPU;
  text = error_text<ConfigError>([&] { check_device(options); });
  EXPECT_NE(text.find("precision.tf32 needs a CUDA device, and this run trains on cpu"), std::string::npos) << text;
  EXPECT_NE(text.find("use --device cuda, or leave precision.tf32 out"), std::string::npos) << text;
  options.precision.tf32 = false;
  check_device(options);
}

TEST(DeviceSetup, ReplicasAreComparedWhereSumsHaveOneOrder) {
  TrainerOptions options;
  options.verify_replicas = 1;
  check_device(options);
  options.device = at::Device(at::kCUDA, 0);
  const auto text = error_text<ConfigError>([&] { check_device(options); });
  EXPECT_NE(text.find("train.verify_replicas on a GPU without train.deterministic"), std::string::npos) << text;
  options.deterministic = true;
  check_device(options);
}

}  // namespace device_setup_test
}  // namespace orthant
