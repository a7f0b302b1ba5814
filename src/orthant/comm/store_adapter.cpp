// Our store behind c10d's interface. What differs between the releases of libtorch that are supported is here alone:
// clone() is new in some of them, so it overrides without saying so.
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "orthant/comm/store_impl.h"

namespace orthant::comm {
namespace {

using Bytes = std::vector<uint8_t>;
using Milliseconds = std::chrono::milliseconds;

std::string_view text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Bytes bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

double seconds_of(const Milliseconds& time) {
  return std::chrono::duration<double>(time).count();
}

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Winconsistent-missing-override"
#pragma clang diagnostic ignored "-Wsuggest-override"
#endif

class StoreAdapter : public c10d::Store {
 public:
  StoreAdapter(std::shared_ptr<launch::JoinedStore> joined, const Milliseconds& timeout)
      : c10d::Store(timeout), joined_(std::move(joined)) {}

  // One connection serves any number of threads.
  c10::intrusive_ptr<c10d::Store> clone() { return c10::make_intrusive<StoreAdapter>(joined_, timeout_); }

  using c10d::Store::compareSet;
  using c10d::Store::set;

  void set(const std::string& key, const Bytes& value) override { client().set(key, text_of(value)); }

  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override {
    return bytes_of(client().compare_set(key, text_of(expected), text_of(desired)));
  }

  Bytes get(const std::string& key) override { return multiGet({key}).front(); }
  int64_t add(const std::string& key, int64_t value) override { return client().add(key, value); }
  bool deleteKey(const std::string& key) override { return client().erase(key); }
  bool check(const std::vector<std::string>& keys) override { return client().check(keys); }
  int64_t getNumKeys() override { return client().num_keys(); }

  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const Milliseconds& timeout) override {
    if (!client().wait(keys, seconds_of(timeout))) fail(keys, timeout);
  }

  void append(const std::string& key, const Bytes& value) override { client().append(key, text_of(value)); }

  std::vector<Bytes> multiGet(const std::vector<std::string>& keys) override {
    const auto values = client().get(keys, seconds_of(timeout_));
    if (!values) fail(keys, timeout_);
    std::vector<Bytes> result;
    for (const auto& value : *values) result.push_back(bytes_of(value));
    return result;
  }

  void multiSet(const std::vector<std::string>& keys, const std::vector<Bytes>& values) override {
    std::vector<std::string_view> texts;
    for (const auto& value : values) texts.push_back(text_of(value));
    client().multi_set(keys, texts);
  }

  bool hasExtendedApi() const override { return true; }

 private:
  [[noreturn]] static void fail(const std::vector<std::string>& keys, const Milliseconds& timeout) {
    C10_THROW_ERROR(DistStoreError,
                    fmt::format("no value of {} within {:.6g} s", fmt::join(keys, ", "), seconds_of(timeout)));
  }

  launch::StoreClient& client() const { return *joined_->client; }

  std::shared_ptr<launch::JoinedStore> joined_;
};

#if defined(__clang__)
#pragma clang diagnostic pop
#endif

}  // namespace

c10::intrusive_ptr<c10d::Store> make_c10d_store(std::shared_ptr<launch::JoinedStore> joined, double timeout_seconds) {
  return c10::make_intrusive<StoreAdapter>(std::move(joined), to_milliseconds(timeout_seconds));
}

}  // namespace orthant::comm
