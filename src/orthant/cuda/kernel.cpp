#include "orthant/cuda/kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "orthant/base/error.h"
#include "orthant/cuda/cubin_cache.h"
#include "orthant/cuda/nvrtc.h"

namespace orthant::cuda {

namespace sources {
extern const std::string_view prelude;
}

constexpr int kFirstGeneration = 8;  // of cards with bfloat16

struct KernelLibrary::Tools {
  Driver driver;
  Nvrtc compiler;
  std::string architecture = driver.architecture();
  std::int64_t most_shared_bytes = driver.most_shared_bytes();
  int multiprocessors = driver.multiprocessors();
  CubinCache cache;
};

void Kernel::start(const LaunchShape& shape, void** arguments) const {
  if (shape.shared_bytes > shared_bytes_.load(std::memory_order_relaxed)) {
    driver_.allow_shared_bytes(function_, shape.shared_bytes);
    shared_bytes_ = shape.shared_bytes;
  }
  driver_.launch(function_, shape, arguments);
  launches_.fetch_add(1, std::memory_order_relaxed);
}

std::string full_text(const Source& source) {
  return fmt::format("{}\n#line 1 \"{}\"\n{}", sources::prelude, source.name, source.text);
}

std::vector<std::string> compile_options(const Source& source, const Values& values) {
  std::vector<std::string> options = {"--extra-device-vectorization"};
  for (std::size_t i = 0; i < source.macros.size(); ++i) {
    options.push_back(fmt::format("-D{}={}", source.macros[i], values[i]));
  }
  return options;
}

KernelLibrary::KernelLibrary() = default;
KernelLibrary::~KernelLibrary() = default;

KernelLibrary& KernelLibrary::of_process() {
  static KernelLibrary library;
  return library;
}

void KernelLibrary::configure(Options options) {
  const std::lock_guard lock(mutex_);
  options_ = std::move(options);
  on_host_ = options_.on_host;
  if (tools_) tools_->cache = CubinCache(options_.cache_folder);
}

bool KernelLibrary::available() {
  std::string reason;
  {
    const std::lock_guard lock(mutex_);
    if (tried_) return tools_ != nullptr;
    tried_ = true;
    try {
      Driver driver;
      if (driver.generation() < kFirstGeneration) {
        throw ConfigError(fmt::format("cards before sm_{}0 have no kernels, and this one is {}", kFirstGeneration,
                                      driver.architecture()));
      }
      tools_ = std::make_unique<Tools>(
          Tools{.driver = std::move(driver), .compiler = Nvrtc(), .cache = CubinCache(options_.cache_folder)});
      return true;
    } catch (const Error& error) {
      reason = error.message();
    }
  }
  say_once(
      fmt::format("kernels of this device cannot be compiled, so everything takes plain formulas, which are many "
                  "times slower: {}",
                  reason));
  return false;
}

KernelLibrary::Tools& KernelLibrary::tools() {
  if (!available()) throw InternalError("a kernel was asked for where kernels cannot be compiled");
  return *tools_;
}

// Takes no lock: variants are compiled side by side.
std::string KernelLibrary::code(const Tools& made, const CodeKey& key) {
  const auto& [source, values] = key;
  const auto options = compile_options(*source, values);
  const std::string text = full_text(*source);
  const std::string name = fmt::format("NVRTC {}\n{}\n{}\n{}\n{}", made.compiler.version(), made.architecture,
                                       source->name, fmt::join(options, " "), text);
  return made.cache.get(name, [&] {
    ++compiled_;
    return made.compiler.compile(text, source->name, made.architecture, options).cubin;
  });
}

std::int64_t KernelLibrary::most_shared_bytes() {
  return tools().most_shared_bytes;
}

int KernelLibrary::multiprocessors() {
  return tools().multiprocessors;
}

const std::string& KernelLibrary::architecture() {
  return tools().architecture;
}

const Kernel& KernelLibrary::get(const Source& source, const char* function, const Values& values) {
  const Tools& made = tools();
  const std::lock_guard lock(mutex_);
  const auto known = kernels_.find({&source, function, values});
  if (known != kernels_.end()) return *known->second;
  const CodeKey key(&source, values);
  auto module = modules_.find(key);
  if (module == modules_.end()) {
    const auto found = codes_.find(key);
    const Module loaded = made.driver.load(found == codes_.end() ? code(made, key) : found->second);
    if (found != codes_.end()) codes_.erase(found);
    module = modules_.emplace(key, loaded).first;
  }
  auto kernel = std::make_unique<Kernel>(made.driver, made.driver.function(module->second, function));
  return *kernels_.emplace(std::tuple(&source, std::string_view(function), values), std::move(kernel)).first->second;
}

void KernelLibrary::prepare(const std::vector<Variant>& variants) {
  if (!available()) return;
  std::vector<CodeKey> missing;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [source, values] : variants) {
      const CodeKey key(source, values);
      if (!modules_.contains(key) && !codes_.contains(key) && std::ranges::find(missing, key) == missing.end()) {
        missing.push_back(key);
      }
    }
  }
  const auto began = std::chrono::steady_clock::now();
  const auto compiled_before = compiled_.load();
  std::vector<std::string> made(missing.size());
  std::vector<std::exception_ptr> failed(missing.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < missing.size(); i = next++) {
      try {
        made[i] = code(*tools_, missing[i]);
      } catch (...) {
        failed[i] = std::current_exception();
      }
    }
  };
  {
    const std::size_t count = std::min<std::size_t>(missing.size(), std::max(1U, std::thread::hardware_concurrency()));
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < count; ++t) threads.emplace_back(work);
  }
  for (const auto& failure : failed) {
    if (failure) std::rethrow_exception(failure);
  }
  const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < missing.size(); ++i) codes_[missing[i]] = std::move(made[i]);
  if (compiled_ > compiled_before && options_.say) {
    options_.say(fmt::format(
        "compiled {} kernels for {} in {:.1f} s{}", compiled_ - compiled_before, tools_->architecture, seconds,
        options_.cache_folder.empty() ? std::string() : fmt::format("; kept in {}", options_.cache_folder.string())));
  }
}

void KernelLibrary::say_once(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (std::ranges::find(said_, text) != said_.end()) return;
  said_.push_back(text);
  if (options_.say) options_.say(text);
}

std::uint64_t KernelLibrary::num_launches(std::string_view function) const {
  const std::lock_guard lock(mutex_);
  std::uint64_t sum = 0;
  for (const auto& [key, kernel] : kernels_) {
    if (function.empty() || std::get<1>(key) == function) sum += kernel->num_launches();
  }
  return sum;
}

const Kernel& kernel(const Source& source, const char* function, std::initializer_list<int> values) {
  Values all = {};
  std::ranges::copy(values, all.begin());
  return KernelLibrary::of_process().get(source, function, all);
}

}  // namespace orthant::cuda
