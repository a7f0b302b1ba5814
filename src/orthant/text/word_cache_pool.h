// Caches of words for a tokenizer that several threads use: each call borrows one, and gives it back for later calls.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "orthant/text/word_cache.h"

namespace orthant {

// Safe from several threads.
class WordCachePool {
 public:
  WordCachePool() { caches_.reserve(kMaxCaches); }

  // A cache for the time of one call; callers on other threads take others.
  class Borrowed {
   public:
    explicit Borrowed(WordCachePool& pool) : pool_(pool) {
      {
        const std::lock_guard lock(pool_.mutex_);
        if (!pool_.caches_.empty()) {
          cache_ = std::move(pool_.caches_.back());
          pool_.caches_.pop_back();
        }
      }
      if (!cache_) cache_ = std::make_unique<WordCache>();
    }
    ~Borrowed() {
      const std::lock_guard lock(pool_.mutex_);
      if (pool_.caches_.size() < kMaxCaches) pool_.caches_.push_back(std::move(cache_));
    }
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;

    // Adds the ids of a word that is not empty: those of the last time, else those that `make(word, ids)` adds.
    template <typename Make>
    void ids_of(std::string_view word, std::vector<std::int32_t>& ids, const Make& make) const {
      if (word.size() > WordCache::kMaxBytes) return make(word, ids);
      const auto key = WordCache::key(word);
      if (cache_->find(key, ids)) return;
      const auto from = ids.size();
      make(word, ids);
      cache_->put(key, std::span(ids).subspan(from));
    }

   private:
    WordCachePool& pool_;
    std::unique_ptr<WordCache> cache_;
  };

 private:
  static constexpr std::size_t kMaxCaches = 64;

  std::mutex mutex_;
  std::vector<std::unique_ptr<WordCache>> caches_;
};

}  // namespace orthant
