// Where token ids go while text is tokenized: the two files of a prepared folder, or memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "orthant/data/token_index.h"
#include "orthant/files/file_handle.h"

namespace orthant {

class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void add(std::span<const std::int32_t> ids) = 0;
  virtual void end_document(std::int64_t end) = 0;  // tokens so far
  virtual void skip_empty_document() {}
};

class MemoryTokens : public TokenSink {
 public:
  void add(std::span<const std::int32_t> new_ids) override { ids.insert(ids.end(), new_ids.begin(), new_ids.end()); }
  void end_document(std::int64_t end) override {
    ends.push_back(static_cast<std::uint64_t>(end));
    numbers.push_back(documents++);
  }
  void skip_empty_document() override { ++documents; }

  std::vector<std::uint32_t> ids;
  std::vector<std::uint64_t> ends;
  std::vector<std::int64_t> numbers;  // of the documents that are not empty, among all
  std::int64_t documents = 0;         // empty ones too
};

// Appends to tokens.bin and documents.bin, through buffers.
class TokenWriter : public TokenSink {
 public:
  // Goes on after what the index counts: longer files are cut there, shorter ones are a DataError.
  TokenWriter(const std::filesystem::path& folder, const TokenIndex& index);

  void add(std::span<const std::int32_t> ids) override;
  void end_document(std::int64_t end) override;

  // Blocks until all is on the device.
  void flush();

  // The end of the last document that was there at the start.
  std::int64_t first_end() const { return first_end_; }

 private:
  void write(FileHandle& file, std::vector<std::byte>& buffer);

  std::int64_t token_bytes_;
  FileHandle tokens_, documents_;
  std::vector<std::byte> token_buffer_, document_buffer_;
  std::int64_t first_end_ = 0;
};

}  // namespace orthant
